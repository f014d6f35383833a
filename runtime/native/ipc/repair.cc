// Makes the state whole after a process has died inside a critical section.
//
// The fields that commit (layout.h) are believed; all else is worked out from them again. What the
// dead process had begun and not committed is undone, what it had committed is carried to its end.
// It may run into a repair that died too: every step is safe to repeat.
#include <algorithm>
#include <vector>

#include "native/ipc/board.h"

namespace veltair::ipc {

void Board::repair(Critical& critical) {
  settle_tasks(critical);
  settle_workers();
  rebuild_queue();
  rebuild_slots();
  rebuild_rings();
  header_.repairs.fetch_add(1, std::memory_order_relaxed);
  for (ClientRecord& client : clients_) {
    if (is(client.state, ClientState::kLive)) critical.wake(client.done);
  }
  for (WorkerRecord& worker : workers_) worker.signalled = 0;
  dispatch(critical);
}

void Board::settle_tasks(Critical& critical) {
  const int32_t n_workers = header_.geometry.n_workers;
  for (int32_t t = 0; t < header_.geometry.n_slots; ++t) {
    TaskRecord& task = tasks_[t];
    if (is(task.state, TaskState::kNone)) continue;
    if (is(task.state, TaskState::kFinishing)) {
      finish(critical, t);
      continue;
    }
    for (int32_t q = t; q < t + task.task.queries; ++q) {
      put(queries_[q].state, QueryState::kInTask);
      queries_[q].task = t;
    }
    if (!is(task.state, TaskState::kRunning)) continue;
    const bool named = task.worker >= 0 && task.worker < n_workers &&
                       workers_[task.worker].running.task == t &&
                       !is(workers_[task.worker].state, WorkerState::kAbsent);
    if (named) continue;
    task.task.next_layer = 0;
    put(task.state, TaskState::kQueued);
  }
}

void Board::settle_workers() {
  header_.live_workers = 0;
  for (int32_t w = 0; w < header_.geometry.n_workers; ++w) {
    WorkerRecord& worker = workers_[w];
    sched::Running& running = worker.running;
    if (is(worker.state, WorkerState::kAbsent)) {
      running = {};
      continue;
    }
    ++header_.live_workers;
    const int32_t t = running.task;
    if (t == kNone || !is(tasks_[t].state, TaskState::kRunning) || tasks_[t].worker != w) {
      running = {};
      put(worker.state, WorkerState::kIdle);
    } else {
      put(worker.state, WorkerState::kBusy);
    }
    running.cores_held = 0;
  }
  header_.free_cores = 0;
  for (CoreRecord& core : cores_) {
    const int32_t owner = core.owner.load(std::memory_order_relaxed);
    if (owner != kNone && workers_[owner].running.task != kNone) {
      ++workers_[owner].running.cores_held;
    } else {
      core.owner.store(kNone, std::memory_order_release);
      ++header_.free_cores;
    }
  }
  // A worker that was to begin its block and got no core before the death: it must have one.
  for (int32_t w = 0; w < header_.geometry.n_workers; ++w) {
    sched::Running& running = workers_[w].running;
    if (running.task == kNone || running.cores_held > 0) continue;
    running.cores_wanted = std::max(running.cores_wanted, 1);
    grant(w, 1);
  }
}

void Board::rebuild_queue() {
  std::vector<int32_t> waiting;
  for (int32_t t = 0; t < header_.geometry.n_slots; ++t) {
    if (is(tasks_[t].state, TaskState::kQueued)) waiting.push_back(t);
    header_.next_order = std::max(header_.next_order, tasks_[t].task.order + 1);
  }
  std::ranges::sort(waiting, {}, [this](int32_t t) { return tasks_[t].task.order; });
  header_.queue_head = header_.queue_tail = kNone;
  header_.queue_length = 0;
  for (int32_t t : waiting) link(t);
}

void Board::rebuild_slots() {
  for (ModelRecord& model : models_) {
    const std::span<uint64_t> bitmap = segment_->free_slots(model);
    std::ranges::fill(bitmap, 0);
    model.free_slots = 0;
    for (int32_t slot = 0; slot < model.slots; ++slot) {
      QueryRecord& query = queries_[model.first_slot + slot];
      const bool left_behind = is(query.state, QueryState::kInTask) &&
                               is(tasks_[query.task].state, TaskState::kNone);  // a cancelled task
      if (left_behind) put(query.state, QueryState::kFree);
      if (!is(query.state, QueryState::kFree)) continue;
      bitmap[slot / 64] |= uint64_t{1} << (slot % 64);
      ++model.free_slots;
    }
  }
}

void Board::rebuild_rings() {
  std::vector<int32_t> ended;
  for (int32_t q = 0; q < header_.geometry.n_slots; ++q) {
    if (is(queries_[q].state, QueryState::kDone) && queries_[q].delivered == 0) ended.push_back(q);
  }
  std::ranges::sort(ended, {}, [this](int32_t q) { return queries_[q].end_ns; });
  for (ClientRecord& client : clients_) client.head = client.tail = 0;
  for (int32_t q : ended) {
    ClientRecord& client = clients_[queries_[q].client];
    segment_->ring(queries_[q].client)[client.tail++ % header_.geometry.ring_capacity] = q;
  }
}

}  // namespace veltair::ipc
