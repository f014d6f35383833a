#include "native/sched/prema_policy.h"

#include <algorithm>

namespace veltair::sched {
namespace {

constexpr int64_t kOne = 1000;  // tokens are in thousandths
constexpr int64_t kSteps[] = {9 * kOne, 3 * kOne, kOne};

int64_t rounded_down(int64_t token) {
  for (int64_t step : kSteps) {
    if (token >= step) return step;
  }
  return 0;
}

// Calls `visit(task)` for each task that could run: those waiting amid their layers, the worker's
// own included, and, where a worker is free to begin one, those of the queue.
template <typename Visit>
void each_candidate(const View& view, int32_t own, bool with_queue, Visit visit) {
  if (own != kNone) visit(own);
  for (int32_t w : *view.busy) {
    const Running& running = view.workers[w];
    if (running.waits() && running.task != own) visit(running.task);
  }
  if (!with_queue) return;
  for (int32_t t = view.queue_head; t != kNone; t = view.tasks[t].next) visit(t);
}

bool waits_at_a_worker(const View& view, int32_t task) {
  for (int32_t w : *view.busy) {
    if (view.workers[w].task == task) return true;
  }
  return false;
}

}  // namespace

PremaPolicy::PremaPolicy(int32_t total_cores, std::span<const ModelProfile> models)
    : plans_(make_plans(models, total_cores)) {
  for (const ModelPlan& plan : plans_) {
    std::vector<int64_t> left(plan.layers() + 1, 0);
    std::vector<int32_t> cores;
    cores.reserve(plan.layers());
    for (int32_t l = 0; l < plan.layers(); ++l) {
      cores.push_back(plan.fastest_cores(l, l + 1, total_cores, 0));
    }
    for (int32_t l = plan.layers(); l-- > 0;) {
      left[l] = left[l + 1] + plan.time_ns(l, l + 1, cores[l], 0);
    }
    left_ns_.push_back(std::move(left));
    fastest_cores_.push_back(std::move(cores));
  }
}

int64_t PremaPolicy::left_ns(const Task& task) const {
  const std::vector<int64_t>& left_ns = left_ns_[task.model];
  return left_ns[task.next_layer] + (task.passes - 1) * left_ns[0];
}

int64_t PremaPolicy::token(const Task& task, int64_t now_ns) const {
  const int64_t alone_ns = std::max<int64_t>(task.queries * left_ns_[task.model][0], 1);
  const int64_t served_ns = alone_ns - left_ns(task);
  const int64_t waited_ns = std::max<int64_t>(now_ns - task.arrival_ns - served_ns, 0);
  return plans_[task.model].priority() * (kOne + waited_ns * kOne / alone_ns);
}

Decision PremaPolicy::decide(const View& view, const Event& event, int64_t now_ns) const {
  const int32_t own = event.kind == EventKind::kBlockEnd ? view.workers[event.worker].task : kNone;
  for (int32_t w : *view.busy) {
    if (w != event.worker && !view.workers[w].waits()) {
      return {.task = own, .reason = Reason::kOtherRuns, .action = Action::kWait};
    }
  }
  const bool idle_worker = view.busy->size() < view.workers.size();
  int64_t most = -1;
  each_candidate(view, own, idle_worker,
                 [&](int32_t task) { most = std::max(most, token(view.tasks[task], now_ns)); });
  const int64_t enough = rounded_down(most);
  int32_t best = kNone;
  each_candidate(view, own, idle_worker, [&](int32_t each) {
    const Task& task = view.tasks[each];
    if (token(task, now_ns) < enough) return;
    const int64_t left = left_ns(task);
    const int64_t least = best == kNone ? 0 : left_ns(view.tasks[best]);
    const bool older = best != kNone && task.order < view.tasks[best].order;
    if (best == kNone || left < least || (left == least && older)) best = each;
  });
  if (best == kNone) return {};
  // A task of the queue can only be begun by an idle worker, one that waits only by its own.
  if (own != kNone ? best != own : waits_at_a_worker(view, best)) {
    return {.task = own, .reason = Reason::kLessUrgent, .action = Action::kWait};
  }
  const Task& task = view.tasks[best];
  const int32_t layer = task.next_layer;
  const int32_t cores = fastest_cores_[task.model][layer];
  return {.task = best,
          .layer_begin = layer,
          .layer_end = layer + 1,
          .level = 0,
          .cores = cores,
          .reason = Reason::kHighestToken,
          .action = Action::kRun,
          .expected_ns = plans_[task.model].time_ns(layer, layer + 1, cores, 0)};
}

}  // namespace veltair::sched
