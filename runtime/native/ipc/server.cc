// The board as rank 0 uses it.
#include <algorithm>
#include <cstring>

#include "native/ipc/board.h"

namespace veltair::ipc {

void Board::set_state(ServerState state) {
  Critical critical(*this);
  put(header_.state, state);
  for (WorkerRecord& worker : workers_) critical.wake(worker.work);
  for (ClientRecord& client : clients_) {
    if (is(client.state, ClientState::kLive)) critical.wake(client.done);
  }
}

void Board::set_policies(const Policies& policies) {
  const PolicyRecord record = make_record(policies, header_.geometry.n_cores);
  Critical critical(*this);
  header_.policies = record;
  ++header_.epoch;
  top_up_blocks(critical);
  // All, so that nobody has to make policies when a task waits for it.
  for (WorkerRecord& worker : workers_) critical.wake(worker.work);
  critical.wake(header_.batching);
}

PolicyRecord Board::policies(uint32_t* epoch) {
  Critical critical(*this);
  *epoch = header_.epoch;
  return header_.policies;
}

void Board::set_model_state(int32_t model, ModelState state, std::string_view reason) {
  Critical critical(*this);
  ModelRecord& record = models_[model];
  const size_t length = std::min(reason.size(), sizeof record.reason - 1);
  std::memcpy(record.reason, reason.data(), length);
  record.reason[length] = '\0';
  put(record.state, state);
}

int32_t Board::pending() {
  Critical critical(*this);
  int32_t pending = header_.queue_length;
  for (const QueryRecord& query : queries_) pending += is(query.state, QueryState::kWaits) ? 1 : 0;
  for (const WorkerRecord& worker : workers_) pending += worker.running.task != kNone ? 1 : 0;
  return pending;
}

int32_t Board::fail_queued(std::string_view error, int64_t now_ns) {
  Critical critical(*this);
  int32_t failed = 0;
  while (header_.queue_head != kNone) {
    const int32_t task = header_.queue_head;
    unlink(task);
    for (int32_t q = task; q != kNone; q = queries_[q].next) queries_[q].start_ns = now_ns;
    end_task(critical, task, error, Failure::kError, now_ns);
    ++failed;
  }
  for (int32_t q = 0; q < static_cast<int32_t>(queries_.size()); ++q) {
    if (!is(queries_[q].state, QueryState::kWaits)) continue;
    fail(queries_[q], error, Failure::kError, now_ns);
    end_query(critical, q);
    ++failed;
  }
  return failed;
}

}  // namespace veltair::ipc
