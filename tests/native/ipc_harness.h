// What the tests of the shared segment have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "native/ipc/board.h"
#include "native/ipc/client.h"
#include "native/ipc/segment.h"
#include "native/sched/policy.h"

namespace harness {

using namespace veltair;  // NOLINT: short names for tests

inline constexpr int64_t kMs = 1'000'000;

struct ModelOptions {
  int32_t cores = 1;  // that a task asks for
  int32_t slots = 8;
  int64_t qos_ns = 20 * kMs;
};

// A profile by which a task asks for `cores` and takes 10 ms.
inline sched::ModelProfile profile(const ModelOptions& options) {
  sched::ModelProfile made;
  made.qos_ns = options.qos_ns;
  for (int32_t c = 1; c <= options.cores; ++c) {
    made.cores.push_back(c);
    made.model_ns.push_back(c == options.cores ? 10 * kMs : 100 * kMs);
  }
  made.variants = {1, 1};
  made.layer_ns.assign(2 * made.cores.size(), kMs);
  made.finish();
  return made;
}

// Of the queue it takes the youngest; after a layer an older task goes back for one that waits.
class ReturningPolicy final : public sched::Policy {
 public:
  std::string_view name() const override { return "returning"; }
  sched::Needs needs() const override { return {.returning = true, .queued = sched::kWholeQueue}; }
  sched::Decision decide(const sched::View& view, const sched::Event& event,
                         int64_t /*now_ns*/) const override {
    int32_t task = sched::task_of(view, event);
    if (task == ipc::kNone) return {};
    if (event.kind == sched::EventKind::kWorkerIdle) {
      while (view.tasks[task].next != ipc::kNone) task = view.tasks[task].next;
    } else if (view.queue_head != ipc::kNone &&
               view.tasks[task].order < view.tasks[view.queue_head].order) {
      return {.task = task, .action = sched::Action::kReturn};
    }
    const int32_t next = view.tasks[task].next_layer;
    return {.task = task, .layer_begin = next, .layer_end = next + 1, .cores = 1};
  }
};

// Blocks of two cores; where none is free, one of worker 1's.
class RevokingPolicy final : public sched::Policy {
 public:
  std::string_view name() const override { return "revoking"; }
  sched::Needs needs() const override { return {.revoking = true}; }
  sched::Decision decide(const sched::View& view, const sched::Event& event,
                         int64_t /*now_ns*/) const override {
    const int32_t task = sched::task_of(view, event);
    if (task == ipc::kNone) return {};
    const int32_t next = view.tasks[task].next_layer;
    sched::Decision decision = {
        .task = task, .layer_begin = next, .layer_end = next + 1, .cores = 2};
    if (view.free_cores > 0) return decision;
    decision.cores = 1;
    decision.revoke_worker = 1;
    decision.revoke_keep = 1;
    return decision;
  }
};

// A segment that serves, with a policy for its workers.
class Server {
 public:
  Server(int32_t cores, int32_t workers, const std::vector<ModelOptions>& models,
         bool admission = false, const std::string& scheduling = "model") {
    ipc::SegmentSpec spec;
    spec.policies.scheduling = scheduling;
    for (int32_t c = 0; c < cores; ++c) spec.cpus.push_back(c);
    spec.workers = workers;
    spec.policies.admission = admission;
    for (const ModelOptions& options : models) {
      profiles.push_back(profile(options));
      ipc::ModelSpec model;
      model.name = "m" + std::to_string(spec.models.size());
      model.input_bytes = {100, 64};
      model.output_bytes = {8};
      model.slots = options.slots;
      model.qos_ns = options.qos_ns;
      model.needed_cores = options.cores;
      model.expected_ns = 10 * kMs;
      model.metadata = "about " + model.name;
      spec.models.push_back(model);
    }
    segment = ipc::Segment::create(spec);
    board = std::make_unique<ipc::Board>(segment);
    policy = sched::make_policy(scheduling, cores, profiles);
    for (size_t m = 0; m < models.size(); ++m) {
      board->set_model_state(static_cast<int32_t>(m), ipc::ModelState::kReady, "");
    }
    board->set_state(ipc::ServerState::kServing);
  }

  ipc::Scheduler scheduler() const { return {*policy, profiles, nullptr, 0}; }
  int32_t held(int32_t worker) const { return segment->workers()[worker].running.cores_held; }
  void check() const {
    const std::string wrong = board->check();
    if (!wrong.empty()) std::fprintf(stderr, "check: %s\n", wrong.c_str());
    CHECK(wrong.empty());
  }

  std::vector<sched::ModelProfile> profiles;
  std::shared_ptr<ipc::Segment> segment;
  std::unique_ptr<ipc::Board> board;
  std::unique_ptr<sched::Policy> policy;
};

// Allocates and submits; returns the query's number.
inline int32_t post(ipc::Board& board, int32_t client, int32_t model, int64_t tag, int64_t now_ns) {
  int32_t query = ipc::kNone;
  CHECK(board.allocate(client, model, &query, now_ns).ok);
  CHECK(board.submit(client, query, now_ns, 0, tag, now_ns).ok);
  return query;
}

// Takes one completion.
inline ipc::Ended collect_one(ipc::Board& board, int32_t client) {
  ipc::Ended ended;
  CHECK(board.collect(client, {&ended, 1}) == 1);
  return ended;
}

}  // namespace harness
