// Where the interference level comes from: what a driver asks before it asks a policy.
#pragma once

#include <atomic>
#include <cstdint>

#include "native/sched/view.h"

namespace veltair::sched {

// How strongly the blocks that run now would disturb one that begins now, as `View` has it.
struct Level {
  int32_t index = 0;  // into the profiles' levels; policies take their highest if it is above
  int32_t slowdown = kNone;  // as measured, in millionths
};

// Who asks.
struct Asker {
  int32_t worker = kNone;  // its own block doesn't disturb itself
  int32_t complex = 0;     // core complex of the core that its block would begin on
};

// Says what the level is.
//
// Pure, as `Policy` is, but for what is measured meanwhile. Thread-safety: immutable.
class Interference {
 public:
  Interference() = default;
  virtual ~Interference() = default;
  Interference(const Interference&) = delete;
  Interference& operator=(const Interference&) = delete;

  virtual Level level(const View& view, const Asker& asker, int64_t now_ns) const = 0;
};

// A level that is given: where none is measured, and for models measured at one level.
class ConstantInterference final : public Interference {
 public:
  explicit ConstantInterference(int32_t level) : level_(level) {}
  Level level(const View&, const Asker&, int64_t) const override { return {.index = level_}; }

 private:
  const int32_t level_;
};

// The level in proportion to the share of the machine that others' blocks hold, from level 0 on an
// empty machine to the highest on a full one. Stands in for a proxy where only core counts are
// known, as in the simulator.
class OccupancyInterference final : public Interference {
 public:
  explicit OccupancyInterference(int32_t levels) : levels_(levels) {}
  Level level(const View& view, const Asker& asker, int64_t now_ns) const override;

 private:
  const int32_t levels_;
};

inline constexpr int32_t kMillion = 1'000'000;  // millionths in one
// A level that is older says nothing any more: whoever measures has stopped, or nothing ran.
inline constexpr int64_t kStaleNs = 250'000'000;
// Nor does one of less confidence, in millionths.
inline constexpr int32_t kLeastConfidence = 50'000;

// A level as it was measured.
struct Measured {
  int32_t slowdown = 0;    // of the reference kernel, in millionths
  int32_t confidence = 0;  // in millionths
  int64_t time_ns = 0;     // when; 0: never

  bool is_known(int64_t now_ns) const {
    return confidence >= kLeastConfidence && now_ns - time_ns <= kStaleNs;
  }
};

// The last such level of a node or of a core complex. Lives in shared memory, zero when it is made.
//
// Thread-safety: one writer, any readers, across processes. A reader that meets a write has the new
// level, maybe with the time of the last one.
class MeasuredRecord {
 public:
  void store(const Measured& measured) {
    const auto low = static_cast<uint64_t>(static_cast<uint32_t>(measured.slowdown));
    word_.store(static_cast<uint64_t>(measured.confidence) << 32 | low, std::memory_order_relaxed);
    time_ns_.store(measured.time_ns, std::memory_order_release);
  }
  Measured load() const {
    const int64_t time_ns = time_ns_.load(std::memory_order_acquire);
    const uint64_t word = word_.load(std::memory_order_relaxed);
    return {.slowdown = static_cast<int32_t>(word),
            .confidence = static_cast<int32_t>(word >> 32),
            .time_ns = time_ns};
  }

 private:
  std::atomic<uint64_t> word_{0};
  std::atomic<int64_t> time_ns_{0};
};

// The level that is measured: of the asker's core complex, else of the node; where neither is
// known, a given one, as an index. It falls by the share of others' cores whose blocks are soon to
// finish; where no other block of ours runs it stays, since others than we disturb too.
//
// Ownership: the records are the caller's and live longer.
class MeasuredInterference final : public Interference {
 public:
  MeasuredInterference(const MeasuredRecord& node, Table<MeasuredRecord> complexes,
                       int32_t otherwise)
      : node_(node), complexes_(complexes), otherwise_(otherwise) {}
  Level level(const View& view, const Asker& asker, int64_t now_ns) const override;

 private:
  const MeasuredRecord& node_;
  const Table<MeasuredRecord> complexes_;
  const int32_t otherwise_;
};

// Whether at most a tenth of a block's predicted time is left, so that it hardly disturbs a block
// that begins now (VELTAIR §4.3). A block without a prediction is never soon to finish. Fewer cores
// than wanted stretch the prediction in proportion.
bool soon_to_finish(const Running& running, int64_t now_ns);

// Cores that blocks of other workers hold.
struct OthersCores {
  int32_t held = 0;
  int32_t disturbing = 0;  // of these, without those of blocks that are soon to finish
};
OthersCores others_cores(const View& view, int32_t worker, int64_t now_ns);

}  // namespace veltair::sched
