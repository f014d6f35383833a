// The board as workers use it.
#include <algorithm>

#include "native/ipc/board.h"

namespace veltair::ipc {

void Board::join(int32_t worker, int32_t pid, int64_t now_ns) {
  Critical critical(*this);
  WorkerRecord& record = workers_[worker];
  record.running = {};
  record.pid = pid;
  record.signalled = 0;
  record.beat_ns.store(now_ns, std::memory_order_relaxed);
  record.progress_ns.store(now_ns, std::memory_order_relaxed);
  step();
  put(record.state, WorkerState::kIdle);
  step();
  ++header_.live_workers;
  dispatch(critical);
}

sched::View Board::view(const Scheduler& scheduler) const {
  return {.models = scheduler.profiles,
          .tasks = {&tasks_.data()->task, sizeof(TaskRecord), static_cast<int32_t>(tasks_.size())},
          .queue_head = header_.queue_head,
          .queue_length = header_.queue_length,
          .workers = {&workers_.data()->running, sizeof(WorkerRecord),
                      static_cast<int32_t>(workers_.size())},
          .total_cores = header_.geometry.n_cores,
          .free_cores = header_.free_cores};
}

void Board::begin_block(int32_t worker, const sched::Decision& decision, int64_t now_ns) {
  WorkerRecord& record = workers_[worker];
  sched::Running& running = record.running;
  running.layer_begin = decision.layer_begin;
  running.layer_end = decision.layer_end;
  running.level = decision.level;
  running.cores_wanted = std::clamp(decision.cores, 1, header_.geometry.n_cores);
  running.block_started_ns = now_ns;
  running.block_expected_ns = decision.expected_ns;
  give_back(worker, running.cores_wanted);
  grant(worker, running.cores_wanted);
  record.progress_ns.store(now_ns, std::memory_order_relaxed);
}

Step Board::take(int32_t worker, const Scheduler& scheduler, int64_t now_ns) {
  Critical critical(*this);
  WorkerRecord& record = workers_[worker];
  record.signalled = 0;
  Step next;
  next.seen = record.work.load(std::memory_order_acquire);
  if (is(header_.state, ServerState::kStopped)) {
    next.stop = true;
    return next;
  }
  if (header_.queue_length == 0 || header_.free_cores == 0) return next;
  next.decision =
      scheduler.policy.decide(view(scheduler), {sched::EventKind::kWorkerIdle, worker}, now_ns);
  const int32_t task = next.decision.task;
  if (task == kNone) return next;

  TaskRecord& taken = tasks_[task];
  for (int32_t q = task; q < task + taken.task.queries; ++q) queries_[q].start_ns = now_ns;
  taken.worker = worker;
  record.running.task = task;
  record.running.started_ns = now_ns;
  record.running.cores_held = 0;
  step();
  put(record.state, WorkerState::kBusy);
  step();
  put(taken.state, TaskState::kRunning);  // the worker's from here on
  step();
  unlink(task);
  begin_block(worker, next.decision, now_ns);
  dispatch(critical);
  return next;
}

Step Board::next_block(int32_t worker, const Scheduler& scheduler, int32_t layer_end,
                       int64_t now_ns) {
  Critical critical(*this);
  WorkerRecord& record = workers_[worker];
  tasks_[record.running.task].task.next_layer = layer_end;
  Step next;
  next.decision =
      scheduler.policy.decide(view(scheduler), {sched::EventKind::kBlockEnd, worker}, now_ns);
  begin_block(worker, next.decision, now_ns);
  dispatch(critical);
  return next;
}

void Board::complete(int32_t worker, std::string_view error, int64_t now_ns) {
  Critical critical(*this);
  WorkerRecord& record = workers_[worker];
  end_task(critical, record.running.task, error, now_ns);
  record.running.task = kNone;
  record.running.cores_wanted = 0;
  step();
  give_back(worker, 0);
  record.progress_ns.store(now_ns, std::memory_order_relaxed);
  put(record.state, WorkerState::kIdle);
  step();
  // It asks for work next, without being woken: let it have the first task.
  record.signalled = 1;
  dispatch(critical);
}

int32_t Board::held_cores(int32_t worker, std::span<int32_t> cores) {
  Critical critical(*this);
  int32_t count = 0;
  for (int32_t c = 0; c < header_.geometry.n_cores; ++c) {
    if (cores_[c].owner.load(std::memory_order_relaxed) == worker) cores[count++] = c;
  }
  return count;
}

void Board::requeue(Critical& critical, int32_t worker, int64_t now_ns) {
  WorkerRecord& record = workers_[worker];
  const int32_t task = record.running.task;
  record.running.task = kNone;
  if (task == kNone || !is(tasks_[task].state, TaskState::kRunning)) return;
  TaskRecord& lost = tasks_[task];
  bool wanted = false;
  for (int32_t q = task; q < task + lost.task.queries; ++q) wanted |= queries_[q].abandoned == 0;
  if (++lost.task.attempts >= kMaxAttempts || !wanted) {
    end_task(critical, task, "3 workers died while they ran this query", now_ns);
    return;
  }
  lost.task.next_layer = 0;  // what had been computed died with the worker's arena
  lost.worker = kNone;
  step();
  put(lost.state, TaskState::kQueued);
  step();
  link(task);
}

void Board::remove_worker(int32_t worker, int64_t now_ns) {
  Critical critical(*this);
  WorkerRecord& record = workers_[worker];
  if (is(record.state, WorkerState::kAbsent)) return;
  put(record.state, WorkerState::kAbsent);
  step();
  requeue(critical, worker, now_ns);
  step();
  give_back(worker, 0);
  record.running = {};
  record.pid = 0;
  record.signalled = 0;
  --header_.live_workers;
  dispatch(critical);
}

}  // namespace veltair::ipc
