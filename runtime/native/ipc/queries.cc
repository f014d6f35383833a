// The board as clients use it.
#include <algorithm>
#include <bit>

#include "native/ipc/board.h"

namespace veltair::ipc {
namespace {

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
  if (!is(record.state, QueryState::kInTask)) return false;
  record.abandoned = 1;
  const TaskRecord& task = tasks_[record.task];
  if (!is(task.state, TaskState::kQueued)) return false;
  for (int32_t q = record.task; q < record.task + task.task.queries; ++q) {
    if (queries_[q].abandoned == 0) return false;  // others still want the task
  }
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
  dispatch(critical);
}

Verdict Board::allocate(int32_t client, int32_t model, int32_t* query) {
  Critical critical(*this);
  ModelRecord& record = models_[model];
  if (!is(record.state, ModelState::kReady)) return refused(record, Failure::kUnavailable);
  if (!is(header_.state, ServerState::kServing)) return refused(record, Failure::kDraining);
  if (record.free_slots == 0) return refused(record, Failure::kQueueFull);
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

sched::Admission Board::admission(const ModelRecord& model, int64_t deadline_ns, int64_t now_ns) {
  sched::Backlog backlog{.cores = header_.geometry.n_cores, .workers = header_.live_workers};
  for (const WorkerRecord& worker : workers_) {
    if (worker.running.task == kNone) continue;
    const ModelRecord& other = models_[tasks_[worker.running.task].task.model];
    const int64_t left_ns = other.expected_ns - (now_ns - worker.running.started_ns);
    backlog.add(std::max<int64_t>(left_ns, 0), other.needed_cores);
  }
  for (int32_t t = header_.queue_head; t != kNone; t = tasks_[t].task.next) {
    const ModelRecord& other = models_[tasks_[t].task.model];
    backlog.add(other.expected_ns, other.needed_cores);
  }
  return sched::admit(backlog, model.expected_ns, deadline_ns, now_ns);
}

void Board::enqueue(int32_t query) {
  QueryRecord& record = queries_[query];
  TaskRecord& task = tasks_[query];
  task.task = {.model = record.model,
               .queries = 1,
               .arrival_ns = record.arrival_ns,
               .deadline_ns = record.deadline_ns,
               .order = header_.next_order++};
  task.worker = kNone;
  const sched::Executor local{.total_cores = header_.geometry.n_cores,
                              .free_cores = header_.free_cores,
                              .queue_length = header_.queue_length};
  task.task.executor = placement_->decide({.executors = {&local, 1}}, task.task, record.submit_ns);
  record.task = query;
  step();
  put(task.state, TaskState::kQueued);  // accepted from here on
  step();
  put(record.state, QueryState::kInTask);
  step();
  link(query);
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
  } else if (header_.admission != 0) {
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
  const sched::BatchDecision batch = batching_->decide(
      {.waiting = 1, .oldest_arrival_ns = arrival_ns, .earliest_deadline_ns = deadline_ns}, now_ns);
  if (batch.queries == 1) enqueue(query);
  dispatch(critical);
  return verdict;
}

bool Board::release(int32_t client, int32_t query) {
  Critical critical(*this);
  QueryRecord& record = queries_[query];
  if (is(record.state, QueryState::kFree) || record.client != client) return false;
  if (drop_query(query)) dispatch(critical);
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
                      .tag = query.tag,
                      .queue_ns = query.start_ns - query.submit_ns,
                      .compute_ns = query.end_ns - query.start_ns,
                      .end_ns = query.end_ns};
  }
  return count;
}

}  // namespace veltair::ipc
