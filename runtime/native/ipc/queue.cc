// What the operations on the board share: the run queue, the ends of queries, wake-ups.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <system_error>

#include "native/ipc/board.h"
#include "native/ipc/futex.h"
#include "native/sched/lead.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace veltair::ipc {

Board::Board(std::shared_ptr<Segment> segment)
    : segment_(std::move(segment)),
      header_(segment_->header()),
      cores_(segment_->cores()),
      complexes_(segment_->complexes()),
      workers_(segment_->workers()),
      clients_(segment_->clients()),
      models_(segment_->models()),
      queries_(segment_->queries()),
      tasks_(segment_->tasks()),
      busy_(static_cast<int32_t>(workers_.size())) {}

namespace {

// How long a waiter sleeps before it looks at the mutex again.
constexpr int64_t kRetryNs = 5'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;

// Locks a robust mutex, and is not left asleep beside a free one. Where unlocking wakes a waiter,
// somebody else locks before it runs, and it is killed before it looks, then neither its death
// nor the next unlocking wakes anybody: the word says neither "free" to the kernel nor "waited
// for" to the owner. Whoever waited behind it would sleep until the next two who meet here.
int lock(pthread_mutex_t& mutex) {
  int error = pthread_mutex_trylock(&mutex);
  while (error == EBUSY || error == ETIMEDOUT) {
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    const int64_t ns = until.tv_nsec + kRetryNs;
    until.tv_sec += ns / kSecondNs;
    until.tv_nsec = ns % kSecondNs;
    error = pthread_mutex_timedlock(&mutex, &until);
#ifdef __SANITIZE_THREAD__
    if (error == EOWNERDEAD) {  // ThreadSanitizer doesn't know that this way to lock locks then
      __tsan_mutex_pre_lock(&mutex, __tsan_mutex_try_lock);
      __tsan_mutex_post_lock(&mutex, __tsan_mutex_try_lock, 0);
    }
#endif
  }
  return error;
}

}  // namespace

Board::Critical::Critical(Board& board) : board_(board) {
  const int error = lock(board.header_.mutex);
  if (error == 0) return;
  if (error != EOWNERDEAD) {
    throw std::system_error(error, std::generic_category(), "the segment's mutex");
  }
  board.repair(*this);
  pthread_mutex_consistent(&board.header_.mutex);
}

Board::Critical::~Critical() {
#ifdef VELTAIR_CHECK_STATE
  if (const std::string wrong = board_.find_wrong(); !wrong.empty()) {
    std::fprintf(stderr, "the shared segment contradicts itself: %s\n", wrong.c_str());
    std::abort();
  }
#endif
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

void Board::fail(QueryRecord& query, std::string_view error, Failure why, int64_t now_ns) {
  query.end_ns = now_ns;
  query.failed = error.empty() ? 0 : 1 + static_cast<uint32_t>(why);
  const size_t length = std::min(error.size(), sizeof query.error - 1);
  std::memcpy(query.error, error.data(), length);
  query.error[length] = '\0';
}

void Board::end_task(Critical& critical, int32_t task, std::string_view error, Failure why,
                     int64_t now_ns) {
  for (int32_t q = task; q != kNone; q = queries_[q].next) fail(queries_[q], error, why, now_ns);
  step();
  put(tasks_[task].state, TaskState::kFinishing);  // from here on repair goes forward
  step();
  finish(critical, task);
}

// Ends a task that waits in the queue: it would be late.
void Board::refuse_queued(Critical& critical, int32_t task, std::string_view why, int64_t now_ns) {
  unlink(task);
  for (int32_t q = task; q != kNone; q = queries_[q].next) queries_[q].start_ns = now_ns;
  end_task(critical, task, why, Failure::kDeadline, now_ns);
}

// Counts a query whose end is written, and hands it to its client, or frees it where nobody waits.
void Board::end_query(Critical& critical, int32_t q) {
  QueryRecord& query = queries_[q];
  ModelRecord& model = models_[query.model];
  Counters& counters = model.counters;
  counters.queue_ns += query.start_ns - query.submit_ns;
  counters.compute_ns += query.end_ns - query.start_ns;
  counters.request_ns += query.end_ns - query.arrival_ns;
  if (query.abandoned != 0) {
    ++counters.failed[static_cast<int>(Failure::kCancelled)];
    free_query(q);
    return;
  }
  const bool in_time = query.deadline_ns == 0 || query.end_ns <= query.deadline_ns;
  // What failed otherwise says nothing of the time.
  const bool was_dropped = query.failed == 1 + static_cast<uint32_t>(Failure::kDeadline);
  if (query.deadline_ns != 0 && (query.failed == 0 || was_dropped)) {
    int32_t lateness = model.lateness.load(std::memory_order_relaxed);
    sched::count_query(lateness, header_.mean_lateness, was_dropped || !in_time,
                       header_.policies.late_percent);
    model.lateness.store(lateness, std::memory_order_relaxed);
  }
  if (query.failed != 0) {
    ++counters.failed[query.failed - 1];
  } else {
    ++counters.succeeded;
    ++counters.latency[latency_bucket(query.end_ns - query.arrival_ns)];
    if (in_time) ++counters.within_qos;
  }
  ClientRecord& client = clients_[query.client];
  segment_->ring(query.client)[client.tail % header_.geometry.ring_capacity] =
      static_cast<uint32_t>(q);
  step();
  put(query.state, QueryState::kDone);
  step();
  ++client.tail;
  critical.wake(client.done);
}

void Board::finish(Critical& critical, int32_t task) {
  TaskRecord& record = tasks_[task];
  bool failed = false;
  // The next one first: a query that is free may be another client's at once.
  for (int32_t q = task, next = kNone; q != kNone; q = next) {
    next = queries_[q].next;
    if (!is(queries_[q].state, QueryState::kInTask)) continue;  // done before a repair
    failed = queries_[q].failed != 0;
    end_query(critical, q);
  }
  if (!failed) ++models_[record.task.model].counters.executions;
  step();
  put(record.state, TaskState::kNone);
  step();
  if (header_.policies.batches != 0) critical.wake(header_.batching);
}

void Board::cancel(int32_t task) {
  TaskRecord& record = tasks_[task];
  put(record.state, TaskState::kNone);
  step();
  unlink(task);
  for (int32_t q = task, next = kNone; q != kNone; q = next) {
    next = queries_[q].next;
    ++models_[record.task.model].counters.failed[static_cast<int>(Failure::kCancelled)];
    free_query(q);
  }
}

bool Board::is_wanted(int32_t task) const {
  for (int32_t q = task; q != kNone; q = queries_[q].next) {
    if (queries_[q].abandoned == 0) return true;
  }
  return false;
}

// Wakes workers to ask the policy, for a caller that can't: an idle one for each task that could
// begin, or else one that waits at a boundary.
void Board::wake_for_work(Critical& critical) {
  const bool asks_always = header_.policies.asks_for_more != 0;
  int32_t startable =
      asks_always ? header_.queue_length : std::min(header_.queue_length, header_.free_cores);
  int32_t waiting = kNone;
  for (int32_t w = 0; w < static_cast<int32_t>(workers_.size()); ++w) {
    WorkerRecord& worker = workers_[w];
    if (waiting == kNone && worker.running.waits() && header_.free_cores > 0) waiting = w;
    if (startable == 0 || !is(worker.state, WorkerState::kIdle)) continue;
    --startable;
    waiting = w;  // it will ask about all
    if (worker.signalled != 0) continue;
    worker.signalled = 1;
    critical.wake(worker.work);
  }
  if (waiting == kNone || workers_[waiting].signalled != 0) return;
  workers_[waiting].signalled = 1;
  critical.wake(workers_[waiting].work);
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
