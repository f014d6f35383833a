// Makes the state whole after a process has died inside a critical section.
//
// The fields that commit (layout.h) are believed; all else is worked out from them again. What the
// dead process had begun and not committed is undone, what it had committed is carried to its end.
// It may run into a repair that died too: every step is safe to repeat.
#include <algorithm>
#include <utility>
#include <vector>

#include "native/ipc/board.h"

namespace veltair::ipc {

void Board::repair(Critical& critical) {
  settle_tasks(critical);
  settle_workers();
  rebuild_queue();
  rebuild_inbox();
  rebuild_slots();
  rebuild_rings();
  header_.repairs.fetch_add(1, std::memory_order_relaxed);
  for (ClientRecord& client : clients_) {
    if (is(client.state, ClientState::kLive)) critical.wake(client.done);
  }
  for (WorkerRecord& worker : workers_) worker.signalled = 0;
  top_up_blocks(critical);
  wake_for_work(critical);
  critical.wake(header_.batching);
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
    for (int32_t q = t; q != kNone; q = queries_[q].next) {
      put(queries_[q].state, QueryState::kInTask);
      queries_[q].task = t;
    }
    if (!is(task.state, TaskState::kRunning)) continue;
    const bool named = task.worker >= 0 && task.worker < n_workers &&
                       workers_[task.worker].running.task == t &&
                       !is(workers_[task.worker].state, WorkerState::kAbsent);
    if (named) continue;
    task.running = t;
    task.task.passes = task.task.queries;
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
      worker.assigned = 0;
      put(worker.state, WorkerState::kIdle);
    } else {
      put(worker.state, WorkerState::kBusy);
    }
    running.cores_held = 0;
  }
  settle_cores();
  for (int32_t w = 0; w < header_.geometry.n_workers; ++w) {
    sched::Running& running = workers_[w].running;
    if (running.task == kNone) continue;
    give_back(w, running.cores_wanted);  // too many: it died at its boundary
    if (running.cores_held > 0) continue;
    // A block without a core is one that the dead process was just giving: it was never begun.
    running.cores_wanted = 0;
    workers_[w].assigned = 0;
  }
}

void Board::settle_cores() {
  const auto has_block = [this](int32_t worker) {
    return worker >= 0 && workers_[worker].running.task != kNone &&
           workers_[worker].running.cores_wanted > 0;
  };
  header_.free_cores = 0;
  for (int32_t c = 0; c < header_.geometry.n_cores; ++c) {
    CoreRecord& core = cores_[c];
    int32_t owner = core.owner.load(std::memory_order_relaxed);
    int32_t heir = core.heir.load(std::memory_order_relaxed);
    if (heir != kNone && heir != kNobody && !has_block(heir)) heir = kNobody;
    if (!has_block(owner)) owner = heir == kNobody ? kNone : heir;
    if (owner == heir || owner == kNone) heir = kNone;
    core.owner.store(owner, std::memory_order_release);
    core.heir.store(heir, std::memory_order_release);
    const int32_t holder = in_hand(c);
    if (holder != kNone) {
      ++workers_[holder].running.cores_held;
    } else if (owner == kNone) {
      ++header_.free_cores;
    }
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

void Board::rebuild_inbox() {
  std::vector<int32_t> waiting;
  for (int32_t q = 0; q < header_.geometry.n_slots; ++q) {
    if (is(queries_[q].state, QueryState::kWaits) && queries_[q].noticed == 0) waiting.push_back(q);
  }
  std::ranges::sort(waiting, {}, [this](int32_t q) { return std::pair(queries_[q].submit_ns, q); });
  header_.inbox_head = header_.inbox_tail = kNone;
  for (const int32_t q : waiting) enter_inbox(q);
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
