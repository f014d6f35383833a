// The interference level as a server's own blocks tell it.
#pragma once

#include <cstdint>
#include <string_view>

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

// A trained model of these features alone, as a segment has it.
struct OwnModel {
  enum class Feature : int32_t { kLevel, kSlowdown };
  static constexpr int kMostTerms = 2;

  int32_t n_terms = 0;
  Feature features[kMostTerms] = {};  // of each term
  LevelTerm terms[kMostTerms] = {};
  LevelLine line;

  LevelEstimate estimate(const OwnFeatures& found) const;
};

// A mean of estimates by their confidence, in which each counts less the older it is. Its
// confidence falls as time passes without one, so that a level that nothing tells any more isn't
// believed for long. What is believed is from 0; that estimates of nothing are as often below it as
// above is why they aren't cut before.
//
// Zeros are one that knows nothing. Thread-safety: none.
class SmoothLevel {
 public:
  SmoothLevel() = default;
  explicit SmoothLevel(int64_t now_ns) : time_ns_(now_ns) {}

  // Takes one in, and returns what is believed then. One without confidence only lets time pass.
  // `now_ns` is not before that of the last one; after `memory_ns` one counts for 1/e.
  LevelEstimate add(const LevelEstimate& estimate, int64_t now_ns, double memory_ns);

 private:
  int64_t time_ns_ = 0;
  double level_ = 0;
  double weight_ = 0;
};

// How long an estimate counts: no shorter than the blocks, of which each is one.
double level_memory_ns(const BlockTotals& totals);

inline constexpr std::string_view kOwnSource = "self";

}  // namespace veltair::ipc
