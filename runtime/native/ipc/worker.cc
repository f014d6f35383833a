#include "native/ipc/worker.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include "native/ipc/client.h"
#include "native/ipc/futex.h"

namespace veltair::ipc {
namespace {

// A worker looks for work, and for cores to let go, this often even if nobody wakes it: whoever
// should have may have died between the change and the wake-up.
constexpr int64_t kLookNs = 1'000'000'000;
// How often the second thread looks whether a core that is to be let go is idle by now. Whoever
// runs on one leaves it by itself; looking more often takes the processor from it, and it leaves
// later.
constexpr std::chrono::microseconds kLeavingLook(500);
// What is recorded of one event: a decision about each worker, and queries that are refused on the
// way, with the queue each time.
constexpr int32_t kRecordedRefusals = 64;
constexpr int32_t kRecordedQueue = 16'384;

std::unique_ptr<sched::Recorder> make_recorder(const Segment& segment, std::optional<int> record) {
  if (!record) return nullptr;
  const auto workers = static_cast<int32_t>(segment.workers().size());
  return std::make_unique<sched::Recorder>(
      *record,
      sched::RecordRoom{
          .workers = workers, .queue = kRecordedQueue, .decisions = workers + kRecordedRefusals});
}

}  // namespace

Worker::Worker(const std::shared_ptr<Segment>& segment, int32_t index,
               std::vector<sched::ModelProfile> profiles, std::unique_ptr<Executor> executor,
               std::optional<int> record)
    : board_(segment),
      index_(index),
      profiles_(std::move(profiles)),
      executor_(std::move(executor)),
      recorder_(make_recorder(*segment, record)) {
  cores_.held.reserve(segment->cores().size());
  cores_.leaving.reserve(segment->cores().size());
  if (profiles_.size() != segment->models().size()) {
    throw std::invalid_argument("a worker needs one profile for each of the segment's models");
  }
  if (index < 0 || index >= static_cast<int32_t>(segment->workers().size())) {
    throw std::invalid_argument("no such worker: " + std::to_string(index));
  }
  make_policies();
}

Worker::~Worker() {
  leave();
  if (core_watcher_.joinable()) core_watcher_.join();
}

void Worker::make_policies() {
  const PolicyRecord record = board_.policies(&epoch_);
  policy_ =
      sched::make_policy(record.scheduling, static_cast<int32_t>(board_.segment().cores().size()),
                         profiles_, record.options);
  executor_->expect_revocations(policy_->needs().revoking);
  make_interference(record);
  if (recorder_) {
    recorder_->tell_policy(record.scheduling, record.options, static_cast<int32_t>(epoch_));
  }
}

void Worker::make_interference(const PolicyRecord& record) {
  if (record.measured == 0) {
    interference_ = std::make_unique<sched::ConstantInterference>(record.level);
    times_.clear();
    return;
  }
  const Segment& segment = board_.segment();
  interference_ = measured_interference(segment, record.level);
  if (!times_.empty()) return;
  for (const sched::ModelProfile& profile : profiles_) {
    times_.emplace_back(profile, static_cast<int32_t>(segment.cores().size()));
  }
}

// Writes what was noted of a step's decisions, now that the mutex is left.
Step Worker::recorded(const Step& step) {
  if (recorder_) recorder_->flush();
  return step;
}

void Worker::leave() {
  leaving_ = true;
  WorkerRecord& record = board_.segment().workers()[index_];
  for (auto* word : {&record.work, &record.cores}) {
    word->fetch_add(1, std::memory_order_release);
    futex_wake_all(*word);
  }
}

void Worker::beat() {
  board_.segment().workers()[index_].beat_ns.store(monotonic_ns(), std::memory_order_relaxed);
}

void Worker::run() {
  WorkerRecord& record = board_.segment().workers()[index_];
  board_.join(index_, getpid(), monotonic_ns());
  core_watcher_ = std::thread([this] { watch_cores(); });
  Step step;
  while (!step.stop && !(leaving_ && !step.waits)) {
    step = recorded(board_.take(index_, scheduler(), monotonic_ns()));
    while (step.decision.task != kNone) step = run_block(step.decision);
    if (step.stale) {
      make_policies();
    } else if (!step.stop) {
      futex_wait(record.work, step.seen, kLookNs);
    }
  }
  leave();
  core_watcher_.join();
  board_.remove_worker(index_, monotonic_ns());
}

// Runs a block, and says what comes next.
Step Worker::run_block(const sched::Decision& block) {
  const TaskRecord& task = board_.segment().tasks()[block.task];
  const int32_t model = task.task.model;
  std::string error;
  std::optional<BlockSample> sample;
  try {
    if (block.layer_begin == 0) {
      executor_->begin(model, task.running - board_.segment().models()[model].first_slot);
    }
    sample = run_layers(block);
  } catch (const std::exception& exception) {
    error = exception.what();
    if (error.empty()) error = "the kernel failed";
  }
  const bool is_last = block.layer_end >= profiles_[model].layers() && task.task.passes == 1;
  const BlockSample* took = sample ? &*sample : nullptr;
  if (error.empty() && !is_last) {
    return recorded(board_.next_block(index_, scheduler(), block.layer_end, monotonic_ns(), took));
  }
  board_.complete(index_, error, monotonic_ns(), took);
  if (leaving_) return {};
  return recorded(board_.take(index_, scheduler(), monotonic_ns()));
}

std::optional<BlockSample> Worker::run_layers(const sched::Decision& block) {
  const Started started = await_core();
  const int32_t model = board_.segment().tasks()[block.task].task.model;
  const int64_t begun_ns = monotonic_ns();
  try {
    executor_->run(model, {block.layer_begin, block.layer_end}, block.cores, block.level);
  } catch (...) {
    const std::scoped_lock lock(cores_mutex_);
    in_block_ = false;
    throw;
  }
  const int64_t took_ns = monotonic_ns() - begun_ns;
  const std::scoped_lock lock(cores_mutex_);
  in_block_ = false;
  return sample(block, model, started, took_ns);
}

// What a block took says something of interference only where its cores stayed the same and its
// profile knows them.
std::optional<BlockSample> Worker::sample(const sched::Decision& block, int32_t model,
                                          const Started& started, int64_t took_ns) const {
  if (times_.empty()) return std::nullopt;
  const WorkerRecord& record = board_.segment().workers()[index_];
  if (record.cores.load(std::memory_order_acquire) != started.seen) return std::nullopt;
  const auto expected = times_[model].expected(block.layer_begin, block.layer_end, block.level,
                                               block.cores, started.cores);
  if (!expected || expected->alone_ns <= 0) return std::nullopt;
  return BlockSample{.core = started.first_core,
                     .took_ns = took_ns,
                     .expected = *expected,
                     .highest_slowdown = times_[model].highest_slowdown()};
}

// Begins the block on the cores that are there; another worker may still have to let them go.
Worker::Started Worker::await_core() {
  std::atomic<uint32_t>& word = board_.segment().workers()[index_].cores;
  while (true) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    {
      const std::scoped_lock lock(cores_mutex_);
      board_.read_cores(index_, &cores_);
      change_cores();
      if (!cores_.held.empty()) {
        in_block_ = true;
        return {.cores = static_cast<int32_t>(cores_.held.size()),
                .first_core = cores_.held.front(),
                .seen = seen};
      }
    }
    futex_wait(word, seen, kLookNs);
  }
}

// The executor uses those of `cores_` that are held; what it has left of the others is let go.
// Returns whether some are still in use.
bool Worker::change_cores() {
  if (!cores_.held.empty()) executor_->set_cores(cores_.held);
  bool some_left = false;
  for (const auto [core, revoked_ns] : cores_.leaving) {
    if (executor_->in_use(core)) {
      some_left = true;
    } else {
      board_.let_go(index_, core, revoked_ns, monotonic_ns());
    }
  }
  return some_left;
}

void Worker::watch_cores() {
  prctl(PR_SET_TIMERSLACK, 1UL);  // else a look takes some 50 us longer
  std::atomic<uint32_t>& word = board_.segment().workers()[index_].cores;
  uint32_t seen = word.load(std::memory_order_acquire);
  bool leaving = false;
  while (!leaving_) {
    if (leaving) {
      std::this_thread::sleep_for(kLeavingLook);
    } else {
      futex_wait(word, seen, kLookNs);
    }
    seen = word.load(std::memory_order_acquire);
    const std::scoped_lock lock(cores_mutex_);
    board_.read_cores(index_, &cores_);
    // A block keeps the core that it runs on until another is there.
    const bool changes = in_block_ && !cores_.held.empty();
    leaving = changes ? change_cores() : !in_block_ && !cores_.leaving.empty();
  }
}

}  // namespace veltair::ipc
