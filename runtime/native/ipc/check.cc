// The integrity check: what must hold whenever nobody is inside a critical section.
#include <bit>
#include <string>
#include <vector>

#include "native/ipc/board.h"

namespace veltair::ipc {
namespace {

std::string text(const char* what, int64_t number) { return what + std::to_string(number); }

}  // namespace

std::string Board::check() {
  Critical critical(*this);
  return find_wrong();
}

std::string Board::find_wrong() const {
  for (auto part : {&Board::check_cores, &Board::check_levels, &Board::check_queue,
                    &Board::check_inbox, &Board::check_tasks, &Board::check_slots}) {
    if (std::string wrong = (this->*part)(); !wrong.empty()) return wrong;
  }
  return {};
}

std::string Board::check_cores() const {
  std::vector<int32_t> held(workers_.size());
  int32_t free = 0;
  const auto n_workers = static_cast<int32_t>(workers_.size());
  for (int32_t c = 0; c < static_cast<int32_t>(cores_.size()); ++c) {
    const int32_t owner = cores_[c].owner.load(std::memory_order_relaxed);
    const int32_t heir = cores_[c].heir.load(std::memory_order_relaxed);
    if (owner < kNone || owner >= n_workers || heir < kNobody || heir >= n_workers) {
      return text("a core is owned by no worker that exists: core ", c);
    }
    if (owner == kNone) {
      ++free;
      if (heir != kNone) return text("free, and has an heir: core ", c);
    } else if (!is(workers_[owner].state, WorkerState::kBusy)) {
      return text("owned by a worker without a task: core ", c);
    } else if (heir == owner) {
      return text("its own heir: core ", c);
    }
    if (const int32_t holder = in_hand(c); holder != kNone) ++held[holder];
  }
  if (free != header_.free_cores) return text("the count of free cores is not ", free);
  int32_t live = 0;
  bool short_of_cores = false;
  for (size_t w = 0; w < workers_.size(); ++w) {
    const WorkerRecord& worker = workers_[w];
    const sched::Running& running = worker.running;
    const auto number = static_cast<int64_t>(w);
    const bool busy = running.task != kNone;
    live += is(worker.state, WorkerState::kAbsent) ? 0 : 1;
    if (busy != is(worker.state, WorkerState::kBusy))
      return text("task and state of worker ", number);
    if (held[w] != running.cores_held) return text("the cores held by worker ", number);
    const bool in_block = busy && !running.waits();
    if (in_block != (held[w] > 0))
      return text("a worker has cores if it has a block: not ", number);
    if (busy && held[w] > running.cores_wanted) return text("too many cores: worker ", number);
    if (worker.assigned != 0 && !in_block) return text("a block was given and is not: ", number);
    short_of_cores |= held[w] < running.cores_wanted;
  }
  if (short_of_cores && free > 0 && header_.policies.tops_up != 0) {
    return "a core is free and a block waits for one";
  }
  if (live != header_.live_workers) return text("the count of live workers is not ", live);
  return {};
}

std::string Board::check_levels() const {
  const auto is_level = [](const sched::MeasuredRecord& record) {
    const sched::Measured level = record.load();
    return level.slowdown >= 0 && level.confidence >= 0 && level.confidence <= sched::kMillion;
  };
  if (!is_level(header_.level)) return "the node's interference level is none";
  for (size_t c = 0; c < complexes_.size(); ++c) {
    const ComplexRecord& record = complexes_[c];
    const auto number = static_cast<int64_t>(c);
    if (!is_level(record.level)) return text("its level is none: core complex ", number);
    const BlockSums& sums = record.sums;
    if (sums.blocks == 0 && (sums.took_ns | sums.alone_ns | sums.excess | sums.weight) != 0) {
      return text("sums of no block: core complex ", number);
    }
  }
  for (size_t c = 0; c < cores_.size(); ++c) {
    if (cores_[c].complex < 0 || cores_[c].complex >= header_.geometry.n_complexes) {
      return text("of no core complex: core ", static_cast<int64_t>(c));
    }
  }
  return {};
}

std::string Board::check_queue() const {
  int32_t length = 0;
  int32_t previous = kNone;
  for (int32_t t = header_.queue_head; t != kNone; previous = t, t = tasks_[t].task.next) {
    if (++length > header_.geometry.n_slots) return "the run queue is a ring";
    if (!is(tasks_[t].state, TaskState::kQueued)) return text("in the queue, not queued: task ", t);
    if (tasks_[t].previous != previous) return text("the queue's back link of task ", t);
    if (previous != kNone && tasks_[previous].task.order >= tasks_[t].task.order) {
      return text("the queue is out of order at task ", t);
    }
  }
  if (previous != header_.queue_tail) return "the queue's tail is not its last task";
  if (length != header_.queue_length) return text("the queue's length is not ", length);
  return {};
}

std::string Board::check_inbox() const {
  int32_t waiting = 0;
  for (const QueryRecord& query : queries_) {
    waiting += is(query.state, QueryState::kWaits) && query.noticed == 0 ? 1 : 0;
  }
  int32_t last = kNone;
  for (int32_t q = header_.inbox_head; q != kNone; last = q, q = queries_[q].next) {
    if (--waiting < 0) return "the inbox holds a query twice";
    if (!is(queries_[q].state, QueryState::kWaits) || queries_[q].noticed != 0) {
      return text("in the inbox, and not new: query ", q);
    }
  }
  if (waiting != 0) return text("queries that wait are not in the inbox: ", waiting);
  return last == header_.inbox_tail ? "" : "the inbox's tail is not its last query";
}

std::string Board::check_tasks() const {
  int32_t queued = 0;
  for (int32_t t = 0; t < header_.geometry.n_slots; ++t) {
    const TaskRecord& task = tasks_[t];
    if (is(task.state, TaskState::kNone)) continue;
    if (is(task.state, TaskState::kFinishing)) return text("half finished: task ", t);
    queued += is(task.state, TaskState::kQueued) ? 1 : 0;
    if (is(task.state, TaskState::kRunning) && workers_[task.worker].running.task != t) {
      return text("running, but on no worker: task ", t);
    }
    int32_t length = 0;
    for (int32_t q = t; q != kNone; q = queries_[q].next) {
      if (++length > task.task.queries) return text("a task's queries are too many: task ", t);
      if (!is(queries_[q].state, QueryState::kInTask) || queries_[q].task != t) {
        return text("a task's query is elsewhere: query ", q);
      }
    }
    if (length != task.task.queries) return text("a task's queries are too few: task ", t);
  }
  if (queued != header_.queue_length)
    return text("queued tasks are not all in the queue: ", queued);
  for (size_t w = 0; w < workers_.size(); ++w) {
    const int32_t t = workers_[w].running.task;
    if (t == kNone) continue;
    if (!is(tasks_[t].state, TaskState::kRunning) || tasks_[t].worker != static_cast<int32_t>(w)) {
      return text("runs a task that is elsewhere: worker ", static_cast<int64_t>(w));
    }
  }
  return {};
}

std::string Board::check_slots() const {
  std::vector<int32_t> waiting(kMaxClients);
  for (const ModelRecord& model : models_) {
    const std::span<const uint64_t> bitmap = segment_->free_slots(model);
    int32_t free = 0;
    for (int32_t slot = 0; slot < model.slots; ++slot) {
      const int32_t q = model.first_slot + slot;
      const QueryRecord& query = queries_[q];
      const bool is_free = is(query.state, QueryState::kFree);
      free += is_free ? 1 : 0;
      if (is_free != (((bitmap[slot / 64] >> (slot % 64)) & 1) != 0)) {
        return text("state and free map disagree: query ", q);
      }
      if (is(query.state, QueryState::kInTask) && is(tasks_[query.task].state, TaskState::kNone)) {
        return text("in a task that is none: query ", q);
      }
      if (is_free) continue;
      if (!is(query.state, QueryState::kInTask) && query.abandoned == 0 &&
          !is(clients_[query.client].state, ClientState::kLive)) {
        return text("held by a client that is gone: query ", q);
      }
      if (is(query.state, QueryState::kDone) && query.delivered == 0) ++waiting[query.client];
    }
    if (free != model.free_slots) return text("the count of free slots is not ", free);
  }
  for (int32_t c = 0; c < kMaxClients; ++c) {
    const ClientRecord& client = clients_[c];
    if (static_cast<int32_t>(client.tail - client.head) != waiting[c]) {
      return text("ring and completions disagree: client ", c);
    }
    for (uint32_t i = client.head; i != client.tail; ++i) {
      const uint32_t q = segment_->ring(c)[i % header_.geometry.ring_capacity];
      if (queries_[q].client != c || !is(queries_[q].state, QueryState::kDone)) {
        return text("in a ring, not done: query ", q);
      }
    }
  }
  return {};
}

}  // namespace veltair::ipc
