// The executor that only takes the time: for schedules of machines that one doesn't have.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "native/ipc/executor.h"
#include "native/ipc/segment.h"
#include "native/sched/block_times.h"
#include "native/sched/plan.h"

namespace veltair::ipc {

// Sleeps for as long as the profile says that the layers take on the cores that it is told to use;
// when these change, what is left changes in proportion, as in sim::Simulator. Outputs stay as they
// are. How much the layers are disturbed is what `Header::emulated_slowdown` says as a block
// begins.
//
// Ownership: shares the segment, owns its tables.
class NullExecutor final : public Executor {
 public:
  // `profiles` are in the segment's order.
  NullExecutor(std::shared_ptr<Segment> segment, const std::vector<sched::ModelProfile>& profiles);

  void begin(int32_t model, int32_t slot) override;
  void set_cores(std::span<const int32_t> cores) override;
  bool in_use(int32_t core) const override;
  void expect_revocations(bool /*expected*/) override {}  // it lets go at once
  void run(int32_t model, engine::LayerRange layers, int32_t cores, int32_t level) override;

 private:
  int64_t whole_ns() const;
  void settle(int64_t now_ns);

  const std::shared_ptr<Segment> segment_;
  const std::vector<std::vector<sched::ModelPlan>> plans_;  // [model][level whose versions run]
  const std::vector<sched::BlockTimes> times_;              // by model
  mutable std::mutex mutex_;                                // guards all below
  std::condition_variable changed_;
  int32_t cores_ = 1;
  int32_t model_ = 0;
  int32_t level_ = 0;
  int32_t slowdown_ = kNone;  // kNone: as at `level_`
  engine::LayerRange layers_;
  double left_ = 0;         // of the block, from 1 down to 0
  int64_t settled_ns_ = 0;  // when `left_` was true
};

}  // namespace veltair::ipc
