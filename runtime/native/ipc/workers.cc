// The board as workers use it.
#include <algorithm>

#include "native/ipc/board.h"
#include "native/sched/pace.h"

namespace veltair::ipc {

void Board::join(int32_t worker, int32_t pid, int64_t now_ns) {
  Critical critical(*this);
  WorkerRecord& record = workers_[worker];
  record.running = {};
  record.pid = pid;
  record.signalled = 0;
  record.assigned = 0;
  record.beat_ns.store(now_ns, std::memory_order_relaxed);
  record.progress_ns.store(now_ns, std::memory_order_relaxed);
  step();
  put(record.state, WorkerState::kIdle);
  step();
  ++header_.live_workers;
  wake_for_work(critical);
}

// The view is of now: it points at the records, and at one list of the busy workers for all views.
sched::View Board::view(const Scheduler& scheduler) {
  const sched::Table workers(&workers_.data()->running, sizeof(WorkerRecord),
                             static_cast<int32_t>(workers_.size()));
  sched::find_busy(workers, busy_);
  return {
      .models = scheduler.profiles,
      .tasks = {&tasks_.data()->task, sizeof(TaskRecord), static_cast<int32_t>(tasks_.size())},
      .queue_head = header_.queue_head,
      .queue_length = header_.queue_length,
      .workers = workers,
      .busy = &busy_,
      .total_cores = header_.geometry.n_cores,
      .free_cores = header_.free_cores,
      .pace = sched::present_pace(header_.pace.load(std::memory_order_relaxed), !busy_.empty())};
}

sched::Decision Board::ask(const Scheduler& scheduler, const sched::Event& event, int64_t now_ns) {
  sched::View seen = view(scheduler);
  if (scheduler.interference != nullptr) {
    const sched::Level found = level(scheduler, seen, event.worker, now_ns);
    seen.level = found.index;
    seen.slowdown = found.slowdown;
  }
  const sched::Decision decision = scheduler.policy.decide(seen, event, now_ns);
  const int64_t sequence = header_.decisions++;
  if (scheduler.recorder != nullptr) {
    scheduler.recorder->note(
        scheduler.policy, seen, event, now_ns, decision,
        {.sequence = sequence, .epoch = static_cast<int32_t>(scheduler.epoch)});
  }
  return decision;
}

// The worker may be another than the caller: it finds the block in its record.
void Board::begin_block(Critical& critical, int32_t worker, const sched::Decision& decision,
                        int64_t now_ns) {
  WorkerRecord& record = workers_[worker];
  sched::Running& running = record.running;
  running.layer_begin = decision.layer_begin;
  running.layer_end = decision.layer_end;
  running.level = decision.level;
  running.block_started_ns = now_ns;
  running.block_expected_ns = decision.expected_ns;
  record.assigned = 1;
  step();
  // From here on repair believes in the block, if it finds a core of it too.
  running.cores_wanted = std::clamp(decision.cores, 1, header_.geometry.n_cores);
  give_back(worker, running.cores_wanted);
  grant(worker, running.cores_wanted);
  if (decision.revoke_worker != kNone) revoke(critical, decision, worker, now_ns);
  if (running.cores_held == 0) {  // no policy should do this; the task waits at its boundary
    running.cores_wanted = 0;
    record.assigned = 0;
  }
  record.progress_ns.store(now_ns, std::memory_order_relaxed);
}

// Leaves the task at its first boundary; `begin_block` follows.
void Board::begin_task(int32_t worker, int32_t task, int64_t now_ns) {
  WorkerRecord& record = workers_[worker];
  TaskRecord& taken = tasks_[task];
  for (int32_t q = task; q != kNone; q = queries_[q].next) queries_[q].start_ns = now_ns;
  taken.worker = worker;
  record.running = {.task = task, .started_ns = now_ns};
  record.assigned = 0;
  step();
  put(record.state, WorkerState::kBusy);
  step();
  put(taken.state, TaskState::kRunning);  // the worker's from here on
  step();
  unlink(task);
}

void Board::wait_at_boundary(int32_t worker) {
  workers_[worker].running.cores_wanted = 0;
  step();
  give_back(worker, 0);
}

// Ends the task of a worker that is at a boundary.
void Board::leave_task(Critical& critical, int32_t worker, std::string_view error, Failure why,
                       int64_t now_ns) {
  end_task(critical, workers_[worker].running.task, error, why, now_ns);
  become_idle(worker, now_ns);
}

void Board::become_idle(int32_t worker, int64_t now_ns) {
  WorkerRecord& record = workers_[worker];
  record.running.task = kNone;
  record.running.cores_wanted = 0;
  record.assigned = 0;
  step();
  give_back(worker, 0);
  record.progress_ns.store(now_ns, std::memory_order_relaxed);
  put(record.state, WorkerState::kIdle);
  step();
}

// Puts the task of a worker that is at a boundary back into the queue.
void Board::return_task(int32_t worker, int64_t now_ns) {
  const int32_t task = workers_[worker].running.task;
  become_idle(worker, now_ns);
  queue_again(task);
  ++header_.returns;
}

void Board::continue_task(Critical& critical, int32_t worker, const Scheduler& scheduler,
                          int64_t now_ns) {
  const int32_t task = workers_[worker].running.task;
  if (!is_wanted(task)) {
    leave_task(critical, worker, "nobody waits for the query any more", Failure::kCancelled,
               now_ns);
    return;
  }
  const sched::Decision decision = ask(scheduler, {sched::EventKind::kBlockEnd, worker}, now_ns);
  if (decision.action == sched::Action::kRefuse) {
    leave_task(critical, worker, sched::reason_text(decision.reason), Failure::kDeadline, now_ns);
  } else if (decision.action == sched::Action::kReturn) {
    return_task(worker, now_ns);
  } else if (decision.action == sched::Action::kWait || decision.task != task) {
    wait_at_boundary(worker);
  } else {
    begin_block(critical, worker, decision, now_ns);
  }
}

void Board::resume_waiting(Critical& critical, const Scheduler& scheduler, int64_t now_ns) {
  for (int32_t w = 0; w < static_cast<int32_t>(workers_.size()) && header_.free_cores > 0; ++w) {
    if (!workers_[w].running.waits()) continue;
    continue_task(critical, w, scheduler, now_ns);
    if (workers_[w].assigned != 0) critical.wake(workers_[w].work);
  }
}

// Begins tasks on `worker`, if it is idle, and then on the other idle ones.
void Board::begin_queued(Critical& critical, int32_t worker, const Scheduler& scheduler,
                         int64_t now_ns) {
  int32_t next = 0;
  for (int32_t idle = worker; header_.queue_length > 0;) {
    if (header_.free_cores == 0 && header_.policies.asks_for_more == 0) return;
    while (!is(workers_[idle].state, WorkerState::kIdle)) {
      if (next == static_cast<int32_t>(workers_.size())) return;
      idle = next++;
    }
    const sched::Decision decision = ask(scheduler, {sched::EventKind::kWorkerIdle, idle}, now_ns);
    const int32_t task = decision.task;
    if (task == kNone || decision.action == sched::Action::kWait) return;
    if (decision.action == sched::Action::kRefuse) {
      refuse_queued(critical, task, sched::reason_text(decision.reason), now_ns);
      continue;
    }
    begin_task(idle, task, now_ns);
    begin_block(critical, idle, decision, now_ns);
    if (idle != worker) critical.wake(workers_[idle].work);
  }
}

void Board::advance(Critical& critical, int32_t worker, const Scheduler& scheduler,
                    int64_t now_ns) {
  top_up_blocks(critical);
  resume_waiting(critical, scheduler, now_ns);
  begin_queued(critical, worker, scheduler, now_ns);
  top_up_blocks(critical);
}

Step Board::step_of(Critical& critical, int32_t worker, const Scheduler& scheduler,
                    int64_t now_ns) {
  WorkerRecord& record = workers_[worker];
  Step next;
  next.stale = scheduler.epoch != header_.epoch;
  if (next.stale) {
    top_up_blocks(critical);
    wake_for_work(critical);
  } else {
    advance(critical, worker, scheduler, now_ns);
  }
  next.seen = record.work.load(std::memory_order_acquire);
  next.waits = record.running.waits();
  if (record.assigned == 0) return next;
  // A block that was given is run, whichever policy gave it.
  record.assigned = 0;
  next.stale = false;
  let_all_go(critical, worker, now_ns);  // what was revoked in this step, for the one that wants it
  const sched::Running& running = record.running;
  next.decision = {.task = running.task,
                   .layer_begin = running.layer_begin,
                   .layer_end = running.layer_end,
                   .level = running.level,
                   .cores = running.cores_wanted,
                   .expected_ns = running.block_expected_ns};
  return next;
}

Step Board::take(int32_t worker, const Scheduler& scheduler, int64_t now_ns) {
  Critical critical(*this);
  workers_[worker].signalled = 0;
  if (is(header_.state, ServerState::kStopped)) {
    Step last;
    last.stop = true;
    return last;
  }
  let_all_go(critical, worker, now_ns);  // of a block that it hasn't begun
  return step_of(critical, worker, scheduler, now_ns);
}

Step Board::next_block(int32_t worker, const Scheduler& scheduler, int32_t layer_end,
                       int64_t now_ns, const BlockSample* sample) {
  Critical critical(*this);
  note_end(critical, worker, sample, now_ns);
  WorkerRecord& record = workers_[worker];
  TaskRecord& own = tasks_[record.running.task];
  own.task.next_layer = layer_end;
  if (layer_end >= scheduler.profiles[own.task.model].layers() && own.task.passes > 1) {
    own.task.next_layer = 0;
    --own.task.passes;
    own.running = queries_[own.running].next;
  }
  let_all_go(critical, worker, now_ns);
  if (scheduler.epoch == header_.epoch) {
    continue_task(critical, worker, scheduler, now_ns);
  } else {
    wait_at_boundary(worker);
  }
  return step_of(critical, worker, scheduler, now_ns);
}

void Board::complete(int32_t worker, std::string_view error, int64_t now_ns,
                     const BlockSample* sample) {
  Critical critical(*this);
  note_end(critical, worker, sample, now_ns);
  let_all_go(critical, worker, now_ns);
  leave_task(critical, worker, error, Failure::kError, now_ns);
  top_up_blocks(critical);
}

// Queues a running task that no worker holds any more.
void Board::queue_again(int32_t task) {
  TaskRecord& again = tasks_[task];
  again.running = task;
  again.task.passes = again.task.queries;
  again.task.next_layer = 0;  // what had been computed lies in a worker's arena
  again.worker = kNone;
  step();
  put(again.state, TaskState::kQueued);
  step();
  link(task);
}

void Board::requeue(Critical& critical, int32_t worker, int64_t now_ns) {
  WorkerRecord& record = workers_[worker];
  const int32_t task = record.running.task;
  record.running.task = kNone;
  if (task == kNone || !is(tasks_[task].state, TaskState::kRunning)) return;
  TaskRecord& lost = tasks_[task];
  if (++lost.task.attempts >= kMaxAttempts || !is_wanted(task)) {
    end_task(critical, task, "3 workers died while they ran this query", Failure::kError, now_ns);
    return;
  }
  queue_again(task);
}

void Board::remove_worker(int32_t worker, int64_t now_ns) {
  Critical critical(*this);
  WorkerRecord& record = workers_[worker];
  if (is(record.state, WorkerState::kAbsent)) return;
  put(record.state, WorkerState::kAbsent);
  step();
  requeue(critical, worker, now_ns);
  step();
  let_all_go(critical, worker, now_ns);
  give_back(worker, 0);
  record.running = {};
  record.pid = 0;
  record.signalled = 0;
  record.assigned = 0;
  --header_.live_workers;
  top_up_blocks(critical);
  wake_for_work(critical);
}

}  // namespace veltair::ipc
