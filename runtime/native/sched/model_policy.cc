#include "native/sched/model_policy.h"

namespace veltair::sched {
namespace {

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
    const NeededCores needed = needed_cores(model, total_cores);
    plans_.push_back({model.layers(), needed.cores, reason_of(needed.need)});
  }
}

Decision ModelPolicy::decide(const View& view, const Event& event, int64_t /*now_ns*/) const {
  const int32_t id =
      event.kind == EventKind::kWorkerIdle ? view.queue_head : view.workers[event.worker].task;
  if (id == kNone) return {};
  const Task& task = view.tasks[id];
  const Plan& plan = plans_[task.model];
  return {.task = id,
          .layer_begin = task.next_layer,
          .layer_end = plan.layers,
          .level = 0,
          .cores = plan.cores,
          .reason = plan.reason};
}

}  // namespace veltair::sched
