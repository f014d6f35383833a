// The interference level as a server's own blocks tell it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "native/ipc/board.h"
#include "native/ipc/level_model.h"

namespace veltair::ipc {

// Sums over blocks that ended within some time.
struct BlockTotals {
  double blocks = 0;
  double took_ns = 0;
  double alone_ns = 0;  // by their profiles
  double excess = 0;    // (took - alone) * sensitivity, ns²
  double weight = 0;    // sensitivity², ns²

  BlockTotals& operator+=(const BlockTotals& other);
};

// How far the level that fits blocks best can be trusted: less the more their noise is worth in
// levels. As if all were alike, the error is that of one's time over its sensitivity. Noise of each
// by itself averages out over many; that the machine is faster or slower than when it was profiled
// is in all of them, so blocks that nothing disturbs say little however many there are.
double level_confidence(const BlockTotals& totals);

// What blocks tell: the level that fits them best by least squares, in which a block that nothing
// disturbs much says little, and one that memory holds up all of it; and how much longer they took
// than alone, (took / alone) - 1.
struct OwnFeatures {
  LevelFeature level;
  LevelFeature slowdown;
};
OwnFeatures own_features(const BlockTotals& totals);

// A trained model of these features alone.
struct OwnModel {
  enum class Feature { kLevel, kSlowdown };
  std::vector<Feature> features;  // of each term
  LevelModel model;
};

// A mean of estimates by their confidence, in which each counts less the older it is. Its
// confidence falls as time passes without one, so that a level that nothing tells any more isn't
// believed for long. What is believed is from 0; that estimates of nothing are as often below it as
// above is why they aren't cut before.
//
// Thread-safety: none.
class SmoothLevel {
 public:
  explicit SmoothLevel(int64_t now_ns) : time_ns_(now_ns) {}

  // Takes one in, and returns what is believed then. One without confidence only lets time pass.
  // `now_ns` is not before that of the last one; after `memory_ns` one counts for 1/e.
  LevelEstimate add(const LevelEstimate& estimate, int64_t now_ns, double memory_ns);

 private:
  int64_t time_ns_;
  double level_ = 0;
  double weight_ = 0;
};

// What ended since the last read, by core complex.
//
// Thread-safety: none. The board outlives it.
class BlockReader {
 public:
  explicit BlockReader(Board& board) : board_(board), last_(board.block_sums()) {}

  std::vector<BlockTotals> read();

 private:
  Board& board_;
  std::vector<BlockSums> last_;
};

// When to look again, after a look that changed what is believed by so much.
int64_t next_look_ns(double change, int64_t period_ns);

// How long an estimate counts: no shorter than the blocks, of which each is one.
double level_memory_ns(const BlockTotals& totals);

// Measures the level by our own blocks alone, and tells it to whoever decides. With trained models
// it is the estimate of the first that has any confidence, else what fits the blocks.
//
// Thread-safety: one thread samples or follows; any may stop it. The board outlives it.
class OwnLevels {
 public:
  static constexpr std::string_view kSource = "self";

  // `models`: the most accurate first.
  OwnLevels(Board& board, int64_t now_ns, std::vector<OwnModel> models = {});

  // What ended since the last look, by core complex: for whoever has more than our own blocks.
  std::vector<BlockTotals> read() { return reader_.read(); }
  // Reads, estimates and tells once; returns the level of the node.
  LevelEstimate sample(int64_t now_ns);
  // Samples as blocks end, every `period_ns` at most, until `stop`; while none runs it looks every
  // `idle_ns`, and while the level stays as it is every third period: each look takes a core from
  // a kernel. A step is seen by the next look, and followed from there on.
  void follow(int64_t period_ns, int64_t idle_ns);
  void stop();

 private:
  LevelEstimate estimate(const BlockTotals& totals) const;

  Board& board_;
  BlockReader reader_;
  std::vector<OwnModel> models_;
  std::vector<SmoothLevel> smooth_;  // the node's, then the complexes'
  std::atomic<uint32_t> stopped_{0};
};

}  // namespace veltair::ipc
