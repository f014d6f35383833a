// `prema`: one task at a time on the whole machine, chosen by tokens at each layer end.
#pragma once

#include <vector>

#include "native/sched/policy.h"

namespace veltair::sched {

// A task's token is its priority times its slowdown: (time since its arrival without its predicted
// service so far) / (its predicted time alone), plus one. Candidates are the tasks with at least
// the largest token rounded down to 1, 3 or 9; among them the one with the least predicted time
// left runs. The question is asked again at each layer end, and a task that loses waits there.
//
// Reference: PREMA (Choi and Rhu, HPCA 2020), Algorithm 2, as VELTAIR §5.1 uses it for a baseline.
// Differs: tokens are worked out from the state when they are asked for, not added up by a timer,
// so that the policy stays a pure function; the checkpoint is the layer end, where a CPU has no
// state to move; a layer runs on the measured core count that is fastest for it, which is not
// always the largest; where two tasks tie the older one runs. Overload: nothing is refused, waiting
// raises the token.
class PremaPolicy final : public Policy {
 public:
  static constexpr std::string_view kName = "prema";

  PremaPolicy(int32_t total_cores, std::span<const ModelProfile> models);

  std::string_view name() const override { return kName; }
  Needs needs() const override { return {.waiting = true, .queued = kWholeQueue}; }
  Decision decide(const View& view, const Event& event, int64_t now_ns) const override;

  // In thousandths.
  int64_t token(const Task& task, int64_t now_ns) const;

 private:
  int64_t left_ns(const Task& task) const;

  std::vector<ModelPlan> plans_;
  std::vector<std::vector<int64_t>> left_ns_;        // [model][layers + 1], each layer at its best
  std::vector<std::vector<int32_t>> fastest_cores_;  // [model][layers]
};

}  // namespace veltair::sched
