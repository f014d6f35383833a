// Where the interference level comes from: what a driver asks before it asks a policy.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "native/sched/view.h"

namespace veltair::sched {

// Says how strongly the blocks that run now would disturb one that begins now, as an index into the
// profiles' levels (policies take their highest level where it is above).
//
// Pure, as `Policy` is. Thread-safety: immutable.
class Interference {
 public:
  Interference() = default;
  virtual ~Interference() = default;
  Interference(const Interference&) = delete;
  Interference& operator=(const Interference&) = delete;

  // `worker` asks: its own block doesn't disturb itself.
  virtual int32_t level(const View& view, int32_t worker, int64_t now_ns) const = 0;
};

// A level that is given: until a proxy measures one, and for models measured at one level.
class ConstantInterference final : public Interference {
 public:
  explicit ConstantInterference(int32_t level) : level_(level) {}
  int32_t level(const View&, int32_t, int64_t) const override { return level_; }

 private:
  const int32_t level_;
};

// The level in proportion to the share of the machine that others' blocks hold, from level 0 on an
// empty machine to the highest on a full one. Stands in for a proxy where only core counts are
// known, as in the simulator.
class OccupancyInterference final : public Interference {
 public:
  explicit OccupancyInterference(int32_t levels) : levels_(levels) {}
  int32_t level(const View& view, int32_t worker, int64_t now_ns) const override;

 private:
  const int32_t levels_;
};

// Whether at most a tenth of a block's predicted time is left, so that it hardly disturbs a block
// that begins now (VELTAIR §4.3). A block without a prediction is never soon to finish. Fewer cores
// than wanted stretch the prediction in proportion.
bool soon_to_finish(const Running& running, int64_t now_ns);

// Cores that blocks of other workers hold, without those that are soon to finish.
int32_t disturbing_cores(const View& view, int32_t worker, int64_t now_ns);

}  // namespace veltair::sched
