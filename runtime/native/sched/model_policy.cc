#include "native/sched/model_policy.h"

#include <algorithm>
#include <utility>

namespace veltair::sched {
namespace {

constexpr int32_t kMostQueries = 32;  // a larger task gets the cores of one of this size

Reason reason_of(CoreNeed need) {
  switch (need) {
    case CoreNeed::kMeetsTarget:
      return Reason::kMeetsTarget;
    case CoreNeed::kOutOfReach:
      return Reason::kOutOfReach;
    case CoreNeed::kNoTarget:
      return Reason::kNoTarget;
  }
  return Reason::kNoTarget;
}

}  // namespace

ModelPolicy::ModelPolicy(int32_t total_cores, std::span<const ModelProfile> models) {
  for (const ModelProfile& model : models) {
    Plan plan{.layers = model.layers(), .by_queries = {}};
    ModelProfile each = model;
    for (int32_t queries = 1; queries <= kMostQueries; ++queries) {
      // Where there is a target it stays one: 0 would say that there is none.
      if (model.qos_ns > 0) each.qos_ns = std::max<int64_t>(model.qos_ns / queries, 1);
      const NeededCores needed = needed_cores(each, total_cores);
      plan.by_queries.push_back({needed.cores, reason_of(needed.need)});
    }
    plans_.push_back(std::move(plan));
  }
}

Decision ModelPolicy::decide(const View& view, const Event& event, int64_t /*now_ns*/) const {
  const int32_t id =
      event.kind == EventKind::kWorkerIdle ? view.queue_head : view.workers[event.worker].task;
  if (id == kNone) return {};
  const Task& task = view.tasks[id];
  const Plan& plan = plans_[task.model];
  const Cores& found = plan.by_queries[std::clamp(task.queries, 1, kMostQueries) - 1];
  return {.task = id,
          .layer_begin = task.next_layer,
          .layer_end = plan.layers,
          .level = 0,
          .cores = found.cores,
          .reason = found.reason};
}

}  // namespace veltair::sched
