// The board as the batching loop uses it.
#include <algorithm>
#include <utility>

#include "native/ipc/board.h"

namespace veltair::ipc {

void Board::news(News& news, std::span<const Released> under_way, bool all) {
  Critical critical(*this);
  news.arrivals.clear();
  news.executors.clear();
  news.epoch = header_.epoch;
  const auto tell = [&](int32_t q) {
    QueryRecord& query = queries_[q];
    query.noticed = 1;
    news.arrivals.push_back({q, query.model, query.arrival_ns, query.deadline_ns});
  };
  if (all) {
    for (int32_t q = 0; q < static_cast<int32_t>(queries_.size()); ++q) {
      if (is(queries_[q].state, QueryState::kWaits)) tell(q);
    }
    std::ranges::sort(news.arrivals, {}, [this](const Arrival& arrival) {
      return std::pair(queries_[arrival.query].submit_ns, arrival.query);
    });
  } else {
    for (int32_t q = header_.inbox_head; q != kNone; q = queries_[q].next) tell(q);
  }
  header_.inbox_head = header_.inbox_tail = kNone;
  for (const Released& each : under_way) {
    const TaskRecord& task = tasks_[each.task];
    const bool ended = is(task.state, TaskState::kNone) || task.task.order != each.order;
    if (ended) news.executors.push_back(each.executor);
  }
}

Released Board::release_task(std::span<const int64_t> queries, int32_t executor) {
  Critical critical(*this);
  Released released{.executor = executor};
  int32_t last = kNone;
  for (const int64_t each : queries) {
    const auto q = static_cast<int32_t>(each);
    QueryRecord& query = queries_[q];
    if (!is(query.state, QueryState::kWaits)) continue;
    if (query.abandoned != 0) {
      ++models_[query.model].counters.failed[static_cast<int>(Failure::kCancelled)];
      free_query(q);
      continue;
    }
    query.next = kNone;
    (last == kNone ? released.task : queries_[last].next) = q;
    last = q;
  }
  if (released.task == kNone) return released;
  enqueue(released.task, executor);
  released.order = tasks_[released.task].task.order;
  wake_for_work(critical);
  return released;
}

void Board::drop_waiting(int32_t query, std::string_view error, int64_t now_ns) {
  Critical critical(*this);
  QueryRecord& record = queries_[query];
  if (!is(record.state, QueryState::kWaits)) return;
  record.start_ns = now_ns;
  fail(record, error, Failure::kDeadline, now_ns);
  end_query(critical, query);
}

}  // namespace veltair::ipc
