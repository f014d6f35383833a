#include "native/ipc/batch_loop.h"

#include <sys/prctl.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "native/ipc/client.h"
#include "native/ipc/futex.h"
#include "native/sched/batching.h"
#include "native/sched/placement.h"

namespace veltair::ipc {
namespace {

constexpr int64_t kLookNs = 1'000'000'000;  // even if nobody wakes it: see worker.cc

}  // namespace

BatchLoop::BatchLoop(const std::shared_ptr<Segment>& segment,
                     std::vector<sched::ModelProfile> profiles, std::optional<int> record)
    : board_(segment), profiles_(std::move(profiles)) {
  if (record) recorder_ = std::make_unique<sched::Recorder>(*record, sched::RecordRoom{});
  if (profiles_.size() != segment->models().size()) {
    throw std::invalid_argument("batching needs one profile for each of the segment's models");
  }
  news_.arrivals.reserve(segment->queries().size());
  make_batcher();
}

BatchLoop::~BatchLoop() { stop(); }

void BatchLoop::start() {
  thread_ = std::thread([this] { run(); });
}

void BatchLoop::stop() {
  stopping_ = true;
  std::atomic<uint32_t>& word = board_.segment().header().batching;
  word.fetch_add(1, std::memory_order_release);
  futex_wake_all(word);
  if (thread_.joinable()) thread_.join();
}

int32_t BatchLoop::executors(const PolicyRecord& record) const {
  if (record.batch.executors > 0) return record.batch.executors;
  const auto cores = static_cast<int32_t>(board_.segment().cores().size());
  int32_t needed = 1;
  for (const sched::ModelProfile& profile : profiles_) {
    needed = std::max(needed, sched::needed_cores(profile, cores).cores);
  }
  const auto workers = static_cast<int32_t>(board_.segment().workers().size());
  return std::clamp(cores / needed, 1, workers);
}

void BatchLoop::make_batcher() {
  const PolicyRecord record = board_.policies(&epoch_);
  batcher_.reset();
  under_way_.clear();  // what the old one released goes on, and counts no more
  unused_.clear();
  if (record.batches == 0 || profiles_.empty()) return;
  const auto cores = static_cast<int32_t>(board_.segment().cores().size());
  std::vector<sched::BatchCost> costs;
  int32_t most_slots = 1;
  for (size_t m = 0; m < profiles_.size(); ++m) {
    costs.push_back({.alpha_ns = sched::needed_cores(profiles_[m], cores).expected_ns,
                     .beta_ns = 0,
                     .max_batch = record.batch.max_batch,
                     .timeout_ns = record.batch.timeout_ns,
                     .least_percent = record.batch.least_percent});
    most_slots = std::max(most_slots, board_.segment().models()[m].slots);
  }
  const std::vector<sched::Executor> places(executors(record));
  batcher_ = std::make_unique<sched::Batcher>(sched::make_batching(record.batching),
                                              sched::make_placement(record.placement), costs,
                                              places, most_slots);
  under_way_.reserve(places.size());
  if (recorder_) {
    recorder_->tell_batcher(record.batching, record.placement, most_slots, costs,
                            static_cast<int32_t>(places.size()), static_cast<int32_t>(epoch_));
  }
}

void BatchLoop::run() {
  prctl(PR_SET_TIMERSLACK, 1UL);
  std::atomic<uint32_t>& word = board_.segment().header().batching;
  bool all = true;
  while (!stopping_) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    board_.news(news_, under_way_, all);
    all = news_.epoch != epoch_;
    if (all) {
      make_batcher();
      continue;
    }
    int64_t sleep_ns = kLookNs;
    if (batcher_ == nullptr) {
      pass_through();
    } else {
      tell(monotonic_ns());
      const int64_t next_ns = batcher_->next_timer_ns();
      sleep_ns = std::clamp<int64_t>(next_ns - monotonic_ns(), 0, kLookNs);
      if (!unused_.empty()) sleep_ns = 0;
    }
    if (sleep_ns > 0) futex_wait(word, seen, sleep_ns);
  }
}

void BatchLoop::tell(int64_t now_ns) {
  std::swap(news_.executors, unused_);
  news_.executors.insert(news_.executors.end(), unused_.begin(), unused_.end());
  unused_.clear();
  for (const int32_t executor : news_.executors) {
    std::erase_if(under_way_, [&](const Released& each) { return each.executor == executor; });
    act({.kind = sched::BatchEventKind::kExecutorFree, .executor = executor},
        batcher_->on_executor_free(executor, now_ns), now_ns);
  }
  for (const Arrival& each : news_.arrivals) {
    act({.kind = sched::BatchEventKind::kArrival,
         .model = each.model,
         .query = each.query,
         .arrival_ns = each.arrival_ns,
         .deadline_ns = each.deadline_ns},
        batcher_->on_arrival(each.model, each.query, each.arrival_ns, each.deadline_ns, now_ns),
        now_ns);
  }
  if (batcher_->next_timer_ns() <= now_ns) {
    act({.kind = sched::BatchEventKind::kTimer}, batcher_->on_timer(now_ns), now_ns);
  }
  if (recorder_) recorder_->write_out();
}

void BatchLoop::act(const sched::BatchEvent& event, const sched::Decisions& decisions,
                    int64_t now_ns) {
  if (recorder_) {
    recorder_->note_batch(event, now_ns, decisions,
                          {.sequence = events_++, .epoch = static_cast<int32_t>(epoch_)});
  }
  for (const sched::Dispatch& batch : decisions.dispatches) {
    const std::span<const int64_t> queries(decisions.queries.data() + batch.first,
                                           static_cast<size_t>(batch.size));
    const Released released = board_.release_task(queries, batch.executor);
    if (released.task == kNone) {
      unused_.push_back(batch.executor);
    } else {
      under_way_.push_back(released);
    }
  }
  for (const sched::Drop& drop : decisions.drops) {
    board_.drop_waiting(static_cast<int32_t>(drop.query), sched::drop_text(drop.reason), now_ns);
  }
}

// Queries that waited when the policy became `none`.
void BatchLoop::pass_through() {
  for (const Arrival& each : news_.arrivals) {
    const int64_t query = each.query;
    board_.release_task({&query, 1}, 0);
  }
}

}  // namespace veltair::ipc
