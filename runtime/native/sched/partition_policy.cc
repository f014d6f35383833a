#include "native/sched/partition_policy.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace veltair::sched {

PartitionPolicy::PartitionPolicy(int32_t total_cores, std::span<const ModelProfile> models,
                                 const PolicyOptions& options)
    : instance_cores_(options.partition_cores), plans_(make_plans(models, total_cores)) {
  if (instance_cores_ < 0 || instance_cores_ > total_cores) {
    throw std::invalid_argument("partition_cores = " + std::to_string(instance_cores_) +
                                ": an instance has from 1 core to all " +
                                std::to_string(total_cores) + " (0: chosen by the profiles)");
  }
  if (instance_cores_ > 0) return;
  int32_t needed = 1;
  for (const ModelPlan& plan : plans_) needed = std::max(needed, plan.average_cores(0));
  instance_cores_ = total_cores / (total_cores / std::min(needed, total_cores));
}

Decision PartitionPolicy::decide(const View& view, const Event& event, int64_t /*now_ns*/) const {
  const int32_t id = task_of(view, event);
  if (id == kNone) return {};
  // A task that is amid its layers (its worker died, say) keeps the instance that it holds.
  if (event.kind == EventKind::kWorkerIdle && view.free_cores < instance_cores_) {
    return {.reason = Reason::kPartitionsBusy, .action = Action::kWait};
  }
  const Task& task = view.tasks[id];
  const ModelPlan& plan = plans_[task.model];
  return {.task = id,
          .layer_begin = task.next_layer,
          .layer_end = plan.layers(),
          .level = 0,
          .cores = instance_cores_,
          .reason = Reason::kPartition,
          .action = Action::kRun,
          .expected_ns = plan.time_ns(task.next_layer, plan.layers(), instance_cores_, 0)};
}

}  // namespace veltair::sched
