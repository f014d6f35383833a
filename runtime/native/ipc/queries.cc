// The board as clients use it.
#include <algorithm>
#include <bit>

#include "native/ipc/board.h"
#include "native/sched/lead.h"
#include "native/sched/pace.h"

namespace veltair::ipc {
namespace {

// How many late queries end at most when one finds no slot.
constexpr int32_t kRoomMade = 8;

Verdict refused(ModelRecord& model, Failure why, int64_t late_ns = 0) {
  ++model.counters.failed[static_cast<int>(why)];
  return {.ok = false, .why = why, .late_ns = late_ns};
}

}  // namespace

int32_t Board::add_client(int32_t pid) {
  Critical critical(*this);
  for (int32_t c = 0; c < kMaxClients; ++c) {
    ClientRecord& client = clients_[c];
    if (!is(client.state, ClientState::kFree)) continue;
    client.pid = pid;
    client.head = client.tail = 0;
    step();
    put(client.state, ClientState::kLive);
    return c;
  }
  return kNone;
}

bool Board::drop_query(int32_t query) {
  QueryRecord& record = queries_[query];
  if (is(record.state, QueryState::kHeld)) {
    free_query(query);
    return false;
  }
  if (is(record.state, QueryState::kDone)) {
    record.abandoned = 1;
    if (record.delivered != 0) free_query(query);
    return false;
  }
  if (is(record.state, QueryState::kWaits)) {
    record.abandoned = 1;  // freed when the batching loop comes to it
    return false;
  }
  if (!is(record.state, QueryState::kInTask)) return false;
  record.abandoned = 1;
  const TaskRecord& task = tasks_[record.task];
  if (!is(task.state, TaskState::kQueued)) return false;
  if (is_wanted(record.task)) return false;
  cancel(record.task);
  return true;
}

void Board::remove_client(int32_t client, int64_t /*now_ns*/) {
  Critical critical(*this);
  ClientRecord& record = clients_[client];
  if (is(record.state, ClientState::kFree)) return;
  for (int32_t q = 0; q < header_.geometry.n_slots; ++q) {
    QueryRecord& query = queries_[q];
    if (is(query.state, QueryState::kFree) || query.client != client) continue;
    query.delivered = 1;  // its ring goes too
    drop_query(q);
  }
  record.head = record.tail = 0;
  record.pid = 0;
  step();
  put(record.state, ClientState::kFree);
  wake_for_work(critical);
}

// Where a model has no slot left, ends those of its queries that wait and can't be in time any
// more, the oldest first. Their clients still have to collect them: the slots are for those that
// come next.
void Board::make_room(Critical& critical, int32_t model, int64_t now_ns) {
  const int64_t fastest_ns = models_[model].fastest_ns;
  const auto is_lost = [&](int32_t task) {
    for (int32_t q = task; q != kNone; q = queries_[q].next) {
      const int64_t deadline_ns = queries_[q].deadline_ns;
      if (deadline_ns == 0 || now_ns + fastest_ns <= deadline_ns) return false;
    }
    return true;
  };
  int32_t left = kRoomMade;
  for (int32_t t = header_.queue_head, next = kNone; t != kNone && left > 0; t = next) {
    next = tasks_[t].task.next;
    if (tasks_[t].task.model != model || !is_lost(t)) continue;
    refuse_queued(critical, t, "it was too late already when others needed its place", now_ns);
    --left;
  }
}

Verdict Board::allocate(int32_t client, int32_t model, int32_t* query, int64_t now_ns) {
  Critical critical(*this);
  ModelRecord& record = models_[model];
  if (!is(record.state, ModelState::kReady)) return refused(record, Failure::kUnavailable);
  if (!is(header_.state, ServerState::kServing)) return refused(record, Failure::kDraining);
  if (record.free_slots == 0) {
    make_room(critical, model, now_ns);
    return refused(record, Failure::kQueueFull);
  }
  const std::span<uint64_t> bitmap = segment_->free_slots(record);
  size_t word = 0;
  while (bitmap[word] == 0) ++word;
  const int bit = std::countr_zero(bitmap[word]);
  const int32_t slot = static_cast<int32_t>(word) * 64 + bit;
  *query = record.first_slot + slot;
  QueryRecord& taken = queries_[*query];
  taken.client = client;
  taken.task = kNone;
  taken.abandoned = taken.delivered = taken.failed = 0;
  step();
  put(taken.state, QueryState::kHeld);
  step();
  bitmap[word] &= ~(uint64_t{1} << bit);
  --record.free_slots;
  return {};
}

// Counts what is ahead of a query. By deadlines that is what is due before it and can be in time:
// it goes ahead of all others, and has more cores than usual where it needs them.
sched::Admission Board::admission(const ModelRecord& model, int64_t deadline_ns, int64_t now_ns) {
  const bool by_deadline = header_.policies.by_deadline != 0;
  const bool runs = std::ranges::any_of(
      workers_, [](const WorkerRecord& worker) { return worker.running.task != kNone; });
  const int32_t pace = sched::present_pace(header_.pace.load(std::memory_order_relaxed), runs);
  sched::Backlog backlog{.cores = header_.geometry.n_cores, .workers = header_.live_workers};
  const auto left_ns = [&](int64_t predicted_ns, int64_t done_ns) {
    return std::max<int64_t>(sched::at_pace(predicted_ns, pace) - done_ns, 0);
  };
  const auto add = [&](const sched::Task& task, int64_t done_ns) {
    const ModelRecord& other = models_[task.model];
    if (by_deadline) {
      if (task.deadline_ns == 0 || task.deadline_ns > deadline_ns) return;
      if (now_ns + left_ns(other.fastest_ns, done_ns) > task.deadline_ns) return;
    }
    backlog.add(left_ns(other.expected_ns, done_ns), other.needed_cores);
  };
  for (const WorkerRecord& worker : workers_) {
    if (worker.running.task == kNone) continue;
    add(tasks_[worker.running.task].task, now_ns - worker.running.started_ns);
  }
  for (int32_t t = header_.queue_head; t != kNone; t = tasks_[t].task.next) add(tasks_[t].task, 0);
  const int64_t service_ns = left_ns(by_deadline ? model.fastest_ns : model.expected_ns, 0);
  return sched::admit(backlog, service_ns, deadline_ns, now_ns);
}

void Board::enter_inbox(int32_t query) {
  const int32_t last = header_.inbox_tail;
  queries_[query].next = kNone;
  (last == kNone ? header_.inbox_head : queries_[last].next) = query;
  header_.inbox_tail = query;
}

// Makes a task of the chain of queries that begins with `first`.
void Board::enqueue(int32_t first, int32_t executor) {
  TaskRecord& task = tasks_[first];
  task.task = {.model = queries_[first].model,
               .queries = 0,
               .executor = executor,
               .arrival_ns = queries_[first].arrival_ns,
               .order = header_.next_order++};
  for (int32_t q = first; q != kNone; q = queries_[q].next) {
    const QueryRecord& query = queries_[q];
    ++task.task.queries;
    task.task.arrival_ns = std::min(task.task.arrival_ns, query.arrival_ns);
    if (query.deadline_ns == 0) continue;
    const int64_t earliest_ns = task.task.deadline_ns;
    task.task.deadline_ns =
        earliest_ns == 0 ? query.deadline_ns : std::min(earliest_ns, query.deadline_ns);
  }
  task.task.passes = task.task.queries;
  if (task.task.deadline_ns != 0) {
    const int64_t target_ns = std::max<int64_t>(0, task.task.deadline_ns - task.task.arrival_ns);
    task.task.lead_ns =
        sched::lead_ns(models_[task.task.model].lateness, header_.mean_lateness, target_ns);
  }
  task.worker = kNone;
  task.running = first;
  step();
  put(task.state, TaskState::kQueued);  // accepted from here on
  step();
  for (int32_t q = first; q != kNone; q = queries_[q].next) {
    queries_[q].task = first;
    put(queries_[q].state, QueryState::kInTask);
    step();
  }
  link(first);
}

Verdict Board::submit(int32_t client, int32_t query, int64_t arrival_ns, int64_t deadline_ns,
                      int64_t tag, int64_t now_ns) {
  Critical critical(*this);
  QueryRecord& record = queries_[query];
  ModelRecord& model = models_[record.model];
  if (!is(record.state, QueryState::kHeld) || record.client != client) {
    return {.ok = false, .why = Failure::kError};
  }
  if (deadline_ns == 0 && model.qos_ns > 0) deadline_ns = arrival_ns + model.qos_ns;
  Verdict verdict;
  if (!is(model.state, ModelState::kReady)) {
    verdict = refused(model, Failure::kUnavailable);
  } else if (!is(header_.state, ServerState::kServing)) {
    verdict = refused(model, Failure::kDraining);
  } else if (header_.policies.admission != 0) {
    const sched::Admission answer = admission(model, deadline_ns, now_ns);
    if (!answer.admitted) {
      verdict = refused(model, Failure::kDeadline, answer.expected_end_ns - deadline_ns);
    }
  }
  if (!verdict.ok) {
    free_query(query);
    return verdict;
  }
  record.arrival_ns = arrival_ns;
  record.deadline_ns = deadline_ns;
  record.submit_ns = now_ns;
  record.start_ns = now_ns;
  record.tag = tag;
  ++model.counters.accepted;
  record.next = kNone;
  if (header_.policies.batches == 0) {
    enqueue(query, 0);
    wake_for_work(critical);
  } else {
    record.noticed = 0;
    step();
    put(record.state, QueryState::kWaits);
    step();
    enter_inbox(query);
    critical.wake(header_.batching);
  }
  return verdict;
}

bool Board::release(int32_t client, int32_t query) {
  Critical critical(*this);
  QueryRecord& record = queries_[query];
  if (is(record.state, QueryState::kFree) || record.client != client) return false;
  if (drop_query(query)) wake_for_work(critical);
  return true;
}

int32_t Board::collect(int32_t client, std::span<Ended> ended) {
  Critical critical(*this);
  ClientRecord& record = clients_[client];
  const std::span<uint32_t> ring = segment_->ring(client);
  int32_t count = 0;
  while (record.head != record.tail && count < static_cast<int32_t>(ended.size())) {
    const auto q = static_cast<int32_t>(ring[record.head % ring.size()]);
    QueryRecord& query = queries_[q];
    query.delivered = 1;
    step();
    ++record.head;
    if (query.abandoned != 0) {  // released after it had ended, before it was collected
      free_query(q);
      continue;
    }
    ended[count++] = {.query = q,
                      .ok = query.failed == 0,
                      .why = static_cast<Failure>(std::max<uint32_t>(query.failed, 1) - 1),
                      .tag = query.tag,
                      .queue_ns = query.start_ns - query.submit_ns,
                      .compute_ns = query.end_ns - query.start_ns,
                      .end_ns = query.end_ns};
  }
  return count;
}

}  // namespace veltair::ipc
