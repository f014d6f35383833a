// What the operations on the board share: the run queue, the ends of queries, the hand-out of
// cores.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <system_error>

#include "native/ipc/board.h"
#include "native/ipc/futex.h"

namespace veltair::ipc {

Board::Board(std::shared_ptr<Segment> segment)
    : segment_(std::move(segment)),
      header_(segment_->header()),
      cores_(segment_->cores()),
      workers_(segment_->workers()),
      clients_(segment_->clients()),
      models_(segment_->models()),
      queries_(segment_->queries()),
      tasks_(segment_->tasks()),
      batching_(sched::make_batching(header_.batching)),
      placement_(sched::make_placement(header_.placement)) {}

Board::Critical::Critical(Board& board) : board_(board) {
  const int error = pthread_mutex_lock(&board.header_.mutex);
  if (error == 0) return;
  if (error != EOWNERDEAD) {
    throw std::system_error(error, std::generic_category(), "the segment's mutex");
  }
  board.repair(*this);
  pthread_mutex_consistent(&board.header_.mutex);
}

Board::Critical::~Critical() {
  pthread_mutex_unlock(&board_.header_.mutex);
  for (int i = 0; i < count_; ++i) futex_wake_all(*words_[i]);
}

void Board::Critical::wake(std::atomic<uint32_t>& word) {
  word.fetch_add(1, std::memory_order_release);
  if (std::find(words_.begin(), words_.begin() + count_, &word) != words_.begin() + count_) return;
  if (count_ == static_cast<int>(words_.size())) {
    futex_wake_all(word);  // a crowd: rare enough to wake some of it from inside
    return;
  }
  words_[count_++] = &word;
}

void Board::step() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (die_at_step_ <= 0) return;
  --die_at_step_;
  if (die_at_step_ == 0) kill(getpid(), SIGKILL);
}

void Board::link(int32_t task) {
  TaskRecord& record = tasks_[task];
  // By `order`, from the back: a new task is the last one, a returned one was ahead of all.
  int32_t before = header_.queue_tail;
  while (before != kNone && tasks_[before].task.order > record.task.order) {
    before = tasks_[before].previous;
  }
  const int32_t after = before == kNone ? header_.queue_head : tasks_[before].task.next;
  record.previous = before;
  record.task.next = after;
  (before == kNone ? header_.queue_head : tasks_[before].task.next) = task;
  (after == kNone ? header_.queue_tail : tasks_[after].previous) = task;
  ++header_.queue_length;
}

void Board::unlink(int32_t task) {
  const int32_t before = tasks_[task].previous;
  const int32_t after = tasks_[task].task.next;
  (before == kNone ? header_.queue_head : tasks_[before].task.next) = after;
  (after == kNone ? header_.queue_tail : tasks_[after].previous) = before;
  tasks_[task].task.next = kNone;
  tasks_[task].previous = kNone;
  --header_.queue_length;
}

void Board::free_query(int32_t query) {
  QueryRecord& record = queries_[query];
  ModelRecord& model = models_[record.model];
  const int32_t slot = query - model.first_slot;
  put(record.state, QueryState::kFree);
  step();
  segment_->free_slots(model)[slot / 64] |= uint64_t{1} << (slot % 64);
  ++model.free_slots;
}

void Board::end_task(Critical& critical, int32_t task, std::string_view error, int64_t now_ns) {
  TaskRecord& record = tasks_[task];
  for (int32_t q = task; q < task + record.task.queries; ++q) {
    QueryRecord& query = queries_[q];
    query.end_ns = now_ns;
    query.failed = error.empty() ? 0 : 1;
    const size_t length = std::min(error.size(), sizeof query.error - 1);
    std::memcpy(query.error, error.data(), length);
    query.error[length] = '\0';
  }
  step();
  put(record.state, TaskState::kFinishing);  // from here on repair goes forward
  step();
  finish(critical, task);
}

void Board::finish(Critical& critical, int32_t task) {
  TaskRecord& record = tasks_[task];
  Counters& counters = models_[record.task.model].counters;
  bool failed = false;
  for (int32_t q = task; q < task + record.task.queries; ++q) {
    QueryRecord& query = queries_[q];
    if (!is(query.state, QueryState::kInTask)) continue;  // done before a repair
    failed = query.failed != 0;
    counters.queue_ns += query.start_ns - query.submit_ns;
    counters.compute_ns += query.end_ns - query.start_ns;
    counters.request_ns += query.end_ns - query.arrival_ns;
    if (query.abandoned != 0) {
      ++counters.failed[static_cast<int>(Failure::kCancelled)];
      free_query(q);
      continue;
    }
    if (failed) {
      ++counters.failed[static_cast<int>(Failure::kError)];
    } else {
      ++counters.succeeded;
      ++counters.latency[latency_bucket(query.end_ns - query.arrival_ns)];
      if (query.deadline_ns == 0 || query.end_ns <= query.deadline_ns) ++counters.within_qos;
    }
    ClientRecord& client = clients_[query.client];
    segment_->ring(query.client)[client.tail % header_.geometry.ring_capacity] = q;
    step();
    put(query.state, QueryState::kDone);
    step();
    ++client.tail;
    critical.wake(client.done);
  }
  if (!failed) ++counters.executions;
  step();
  put(record.state, TaskState::kNone);
  step();
}

void Board::cancel(int32_t task) {
  TaskRecord& record = tasks_[task];
  put(record.state, TaskState::kNone);
  step();
  unlink(task);
  for (int32_t q = task; q < task + record.task.queries; ++q) {
    ++models_[record.task.model].counters.failed[static_cast<int>(Failure::kCancelled)];
    free_query(q);
  }
}

void Board::grant(int32_t worker, int32_t wanted) {
  sched::Running& running = workers_[worker].running;
  for (CoreRecord& core : cores_) {
    if (header_.free_cores == 0 || running.cores_held >= wanted) break;
    if (core.owner.load(std::memory_order_relaxed) != kNone) continue;
    core.owner.store(worker, std::memory_order_release);
    step();
    ++running.cores_held;
    --header_.free_cores;
  }
}

void Board::give_back(int32_t worker, int32_t keep) {
  sched::Running& running = workers_[worker].running;
  for (size_t c = cores_.size(); c-- > 0;) {
    if (running.cores_held <= keep) break;
    if (cores_[c].owner.load(std::memory_order_relaxed) != worker) continue;
    cores_[c].owner.store(kNone, std::memory_order_release);
    step();
    --running.cores_held;
    ++header_.free_cores;
  }
}

void Board::top_up_blocks(Critical& critical) {
  while (header_.free_cores > 0) {
    int32_t oldest = kNone;
    for (int32_t w = 0; w < static_cast<int32_t>(workers_.size()); ++w) {
      const sched::Running& running = workers_[w].running;
      if (running.task == kNone || running.cores_held >= running.cores_wanted) continue;
      if (oldest == kNone ||
          tasks_[running.task].task.order < tasks_[workers_[oldest].running.task].task.order) {
        oldest = w;
      }
    }
    if (oldest == kNone) return;
    grant(oldest, workers_[oldest].running.cores_wanted);
    critical.wake(workers_[oldest].cores);
  }
}

void Board::dispatch(Critical& critical) {
  top_up_blocks(critical);
  int32_t startable = std::min(header_.queue_length, header_.free_cores);
  for (WorkerRecord& worker : workers_) {
    if (startable == 0) return;
    if (!is(worker.state, WorkerState::kIdle)) continue;
    --startable;
    if (worker.signalled != 0) continue;
    worker.signalled = 1;
    critical.wake(worker.work);
  }
}

int latency_bucket(int64_t latency_ns) {
  if (latency_ns < int64_t{1} << kFirstOctave) return 0;
  if (latency_ns >= int64_t{1} << kLastOctave) return kBuckets - 1;
  const int octave = static_cast<int>(std::bit_width(static_cast<uint64_t>(latency_ns))) - 1;
  const int eighth = static_cast<int>(latency_ns >> (octave - 3)) & 7;
  return 1 + (octave - kFirstOctave) * 8 + eighth;
}

int64_t bucket_bound_ns(int bucket) {
  if (bucket == 0) return (int64_t{1} << kFirstOctave) - 1;
  if (bucket >= kBuckets - 1) return std::numeric_limits<int64_t>::max();
  const int octave = kFirstOctave + (bucket - 1) / 8;
  const int64_t eighth = (bucket - 1) % 8;
  return ((9 + eighth) << (octave - 3)) - 1;
}

}  // namespace veltair::ipc
