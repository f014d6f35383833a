#include "native/sched/veltair_policy.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace veltair::sched {

int32_t threshold(int32_t total_cores, int32_t sum_of_averages, int32_t average) {
  if (sum_of_averages <= 0) return total_cores;
  const int64_t idle = std::max(total_cores - sum_of_averages, 0);
  return static_cast<int32_t>(idle * average / sum_of_averages);
}

int32_t first_pivot(const ModelPlan& plan, int32_t begin, int32_t limit, int32_t level) {
  int32_t layer = begin + 1;
  while (layer < plan.layers() && plan.demand(layer, level) < limit) ++layer;
  return std::min(layer, plan.layers());
}

int32_t block_end(const ModelPlan& plan, int32_t begin, int32_t spare, int32_t level) {
  if (spare <= 0) return plan.layers();
  return first_pivot(plan, begin, spare + plan.average_cores(level), level);
}

std::vector<int32_t> form_blocks(const ModelPlan& plan, int32_t limit, int32_t level) {
  std::vector<int32_t> ends;
  for (int32_t begin = 0; begin < plan.layers(); begin = ends.back()) {
    ends.push_back(first_pivot(plan, begin, limit, level));
  }
  return ends;
}

int32_t active_cores(const View& view, std::span<const ModelPlan> plans, int32_t task,
                     int32_t level) {
  int32_t sum = plans[view.tasks[task].model].average_cores(level);
  for (int32_t w : *view.busy) {
    const int32_t other = view.workers[w].task;
    if (other == task) continue;
    sum += plans[view.tasks[other].model].average_cores(level);
  }
  return sum;
}

int32_t spare_cores(const View& view, std::span<const ModelPlan> plans, int32_t task, int32_t level,
                    const PolicyOptions& options) {
  if (options.threshold_cores != kNone) return options.threshold_cores;
  const ModelPlan& plan = plans[view.tasks[task].model];
  const int32_t active = active_cores(view, plans, task, level);
  return threshold(plan.total_cores(), active, plan.average_cores(level));
}

void check_threshold(const PolicyOptions& options, int32_t total_cores) {
  if (options.threshold_cores >= kNone && options.threshold_cores <= total_cores) return;
  throw std::invalid_argument("threshold_cores = " + std::to_string(options.threshold_cores) +
                              ": from 0 to the machine's " + std::to_string(total_cores) +
                              " cores, or -1: by the load");
}

VeltairPolicy::VeltairPolicy(std::string_view name, Kind kind, int32_t total_cores,
                             std::span<const ModelProfile> models, const PolicyOptions& options)
    : name_(name), kind_(kind), options_(options), plans_(make_plans(models, total_cores)) {
  check_threshold(options, total_cores);
}

Decision VeltairPolicy::decide(const View& view, const Event& event, int64_t /*now_ns*/) const {
  const int32_t id = task_of(view, event);
  if (id == kNone) return {};
  const Task& task = view.tasks[id];
  const ModelPlan& plan = plans_[task.model];
  const int32_t level = kind_.versions ? plan.level(view.level, view.slowdown) : 0;
  const int32_t begin = task.next_layer;
  int32_t end = plan.layers();
  if (kind_.blocks) {
    end = block_end(plan, begin, spare_cores(view, plans_, id, level, options_), level);
  }
  const int64_t budget_ns = plan.share_ns(begin, end) / task.queries;
  const int32_t cores = plan.cores_for(begin, end, budget_ns, level);
  const int64_t expected_ns = plan.time_ns(begin, end, cores, level);
  Reason reason = end < plan.layers() ? Reason::kPivot : Reason::kNoPivot;
  if (expected_ns > budget_ns) reason = Reason::kShareOutOfReach;
  return {.task = id,
          .layer_begin = begin,
          .layer_end = end,
          .level = level,
          .cores = cores,
          .reason = reason,
          .action = Action::kRun,
          .expected_ns = expected_ns};
}

}  // namespace veltair::sched
