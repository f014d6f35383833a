// `veltair-as`, `veltair-ac`, `veltair`: layer blocks by a dynamic threshold, versions by level.
#pragma once

#include <vector>

#include "native/sched/policy.h"

namespace veltair::sched {

// The threshold of one model: the cores that are idle on average, divided among the active models
// in proportion to their average cores (VELTAIR §4.3; of 64 cores, models of 12, 12 and 24 get
// 4, 4 and 8). 0 where the averages take all cores or more.
int32_t threshold(int32_t total_cores, int32_t sum_of_averages, int32_t average);

// The first layer after `begin` whose demand is at least `limit` (thres + Avg_C); the number of
// layers where there is none (Algorithm 2, Finding1stPivot).
int32_t first_pivot(const ModelPlan& plan, int32_t begin, int32_t limit, int32_t level);

// Throws std::invalid_argument where the fixed threshold is out of range.
void check_threshold(const PolicyOptions& options, int32_t total_cores);

// Where the block that begins at `begin` ends under a threshold: at the first pivot, or, where the
// threshold is 0, with the model (see VeltairPolicy).
int32_t block_end(const ModelPlan& plan, int32_t begin, int32_t spare, int32_t level);

// The same of the task that a decision is about: `threshold` by all active models, or what the
// options fix.
int32_t spare_cores(const View& view, std::span<const ModelPlan> plans, int32_t task, int32_t level,
                    const PolicyOptions& options);

// All blocks of a whole model (Algorithm 2, FormingLBs): where each ends. For tests and figures; a
// policy forms one block at a time.
std::vector<int32_t> form_blocks(const ModelPlan& plan, int32_t limit, int32_t level);

// Sum of the average cores of all tasks that have begun, and of `task`, which may be beginning.
int32_t active_cores(const View& view, std::span<const ModelPlan> plans, int32_t task,
                     int32_t level);

// First come, first served over tasks; Algorithm 3 at each block boundary.
//
// Reference: VELTAIR §4.2, §4.3, Algorithms 2 and 3. `veltair-as` adapts the blocks to the load and
// keeps each layer's version for an empty machine; `veltair-ac` runs whole models in the versions
// for the current level; `veltair` does both.
//
// Differs:
// - The pivot begins the next block, as §4.2's text and Fig. 10a have it. Algorithm 2 as printed
//   goes on at `pivot + 1`, which would lose the pivot, and ends never where there is no pivot.
// - Avg_C is the whole model's, not the remaining layers': the plan is one line in Fig. 10a.
// - The threshold is rounded down; where the active models' averages exceed the machine it is 0.
// - At a threshold of 0 the rest of the model is one block. Taken literally every layer that needs
//   the average or more would then be a pivot, so that blocks would shrink to layers just when
//   conflicts are likeliest, against §4.2's aim of core counts close to the average.
// - On overload nothing is refused or reordered: a block begins on the cores that are free.
// - A target that is already lost, and a block that ends early, change no share: a late query
//   doesn't take cores from those that can still be in time.
// - Tasks of equal age are told apart by their order in the queue.
class VeltairPolicy final : public Policy {
 public:
  struct Kind {
    bool blocks;    // adaptive scheduling
    bool versions;  // adaptive compilation
  };
  // Throws std::invalid_argument for a parameter out of range.
  VeltairPolicy(std::string_view name, Kind kind, int32_t total_cores,
                std::span<const ModelProfile> models, const PolicyOptions& options);

  std::string_view name() const override { return name_; }
  Decision decide(const View& view, const Event& event, int64_t now_ns) const override;

 private:
  const std::string_view name_;  // one of the constants in policy.cc
  const Kind kind_;
  const PolicyOptions options_;
  const std::vector<ModelPlan> plans_;
};

}  // namespace veltair::sched
