#include "native/sched/block_policy.h"

#include <algorithm>

namespace veltair::sched {

BlockPolicy::BlockPolicy(std::string_view name, int32_t layers_per_block, int32_t total_cores,
                         std::span<const ModelProfile> models)
    : name_(name), layers_per_block_(layers_per_block), plans_(make_plans(models, total_cores)) {}

Decision BlockPolicy::decide(const View& view, const Event& event, int64_t /*now_ns*/) const {
  const int32_t id = task_of(view, event);
  if (id == kNone) return {};
  const Task& task = view.tasks[id];
  const ModelPlan& plan = plans_[task.model];
  const int32_t begin = task.next_layer;
  const int64_t next_block = int64_t{begin / layers_per_block_ + 1} * layers_per_block_;
  const auto end = static_cast<int32_t>(std::min<int64_t>(next_block, plan.layers()));
  const int64_t budget_ns = plan.share_ns(begin, end) / task.queries;
  const int32_t cores = plan.cores_for(begin, end, budget_ns, 0);
  const bool met = plan.time_ns(begin, end, cores, 0) <= budget_ns;
  return {.task = id,
          .layer_begin = begin,
          .layer_end = end,
          .level = 0,
          .cores = cores,
          .reason = met ? Reason::kMeetsShare : Reason::kShareOutOfReach,
          .action = Action::kRun,
          .expected_ns = plan.time_ns(begin, end, cores, 0)};
}

}  // namespace veltair::sched
