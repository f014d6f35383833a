#include "native/sched/batcher.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>
#include <utility>

namespace veltair::sched {
namespace {

int32_t checked(int32_t value, int32_t most, const char* what) {
  if (value >= 1 && value <= most) return value;
  throw std::invalid_argument(std::string(what) + " = " + std::to_string(value) +
                              ": must be from 1 to " + std::to_string(most));
}

}  // namespace

std::string_view match_text(Match match) {
  switch (match) {
    case Match::kModelReady:
      return "its moment came while an executor was free";
    case Match::kExecutorFree:
      return "an executor came free while it was ready";
  }
  return "";
}

std::string_view drop_text(DropReason reason) {
  switch (reason) {
    case DropReason::kDeadline:
      return "it can't end by its deadline any more";
    case DropReason::kQueueFull:
      return "its model's queue is full";
    case DropReason::kGivenUp:
      return "its deadline keeps the batch small, and those behind it can make a large one";
  }
  return "";
}

Batcher::Batcher(std::unique_ptr<const BatchingPolicy> batching,
                 std::unique_ptr<const PlacementPolicy> placement,
                 std::span<const BatchCost> models, std::span<const Executor> executors,
                 int32_t queue_limit)
    : batching_(std::move(batching)),
      placement_(std::move(placement)),
      queue_limit_(checked(queue_limit, kLargestQueue, "queue_limit")),
      ring_mask_(static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(queue_limit))) - 1),
      executors_(executors.begin(), executors.end()),
      timers_(checked(static_cast<int32_t>(models.size()), 1 << 16, "models")),
      ready_(static_cast<int32_t>(models.size())),
      free_(checked(static_cast<int32_t>(executors.size()), 1 << 16, "executors")) {
  for (const BatchCost& cost : models) {
    cost.check();
    models_.push_back({.cost = cost, .candidate = {}});
  }
  for (int32_t e = 0; e < this->executors(); ++e) free_.insert(e);
  if (placement_->decide({executors_, &free_}, {}, 0) == kNone) {
    throw std::invalid_argument("placement `" + std::string(placement_->name()) +
                                "` can use none of the executors");
  }
  const size_t places = models.size() * (static_cast<size_t>(ring_mask_) + 1);
  slots_.resize(places);
  // The most that one event can decide: a batch on each executor, and the end of every query.
  const size_t queries = models.size() * static_cast<size_t>(queue_limit);
  decisions_.dispatches.reserve(executors.size());
  decisions_.queries.reserve(queries);
  decisions_.drops.reserve(queries + 1);
}

const Decisions& Batcher::on_arrival(int32_t model, int64_t query, int64_t arrival_ns,
                                     int64_t deadline_ns, int64_t now_ns) {
  begin(now_ns);
  if (models_[model].waiting == queue_limit_) {
    decisions_.drops.push_back({query, model, DropReason::kQueueFull});
  } else {
    note_gap(models_[model], now_ns);
    enter(model, {query, arrival_ns, deadline_ns == 0 ? kNever : deadline_ns});
    update(model, now_ns);
  }
  match(now_ns, Match::kModelReady);
  return decisions_;
}

const Decisions& Batcher::on_executor_free(int32_t executor, int64_t now_ns) {
  if (is_free(executor)) {
    throw std::invalid_argument("executor " + std::to_string(executor) + " has no batch to end");
  }
  begin(now_ns);
  free_.insert(executor);
  match(now_ns, Match::kExecutorFree);
  return decisions_;
}

const Decisions& Batcher::on_timer(int64_t now_ns) {
  begin(now_ns);
  match(now_ns, Match::kModelReady);
  return decisions_;
}

void Batcher::begin(int64_t now_ns) {
  if (now_ns < now_ns_) {
    throw std::invalid_argument("now_ns = " + std::to_string(now_ns) +
                                ": before the last event's, " + std::to_string(now_ns_));
  }
  now_ns_ = now_ns;
  is_scarce_ = free_.empty();
  decisions_.dispatches.clear();
  decisions_.queries.clear();
  decisions_.drops.clear();
}

Batcher::Waiting& Batcher::slot(int32_t model, int32_t place) {
  const int32_t at = (models_[model].head + place) & ring_mask_;
  return slots_[static_cast<size_t>(model) * (static_cast<size_t>(ring_mask_) + 1) + at];
}

void Batcher::enter(int32_t model, const Waiting& query) {
  int32_t place = models_[model].waiting++;
  for (; place > 0 && slot(model, place - 1).deadline_ns > query.deadline_ns; --place) {
    slot(model, place) = slot(model, place - 1);
  }
  slot(model, place) = query;
}

void Batcher::pop(int32_t model, int32_t count) {
  models_[model].head = (models_[model].head + count) & ring_mask_;
  models_[model].waiting -= count;
}

// A moving mean over some thirty arrivals: short enough to follow the load, long enough to be a
// mean.
void Batcher::note_gap(ModelState& state, int64_t now_ns) {
  if (state.last_arrival_ns != kNever) {
    state.gap_ns += (now_ns - state.last_arrival_ns - state.gap_ns) / 32;
  }
  state.last_arrival_ns = now_ns;
}

// The least size that batches of a model are worth: a share of what staggered execution reaches, or
// of what comes together in the first query's time where that is less.
int32_t Batcher::least_batch(const ModelState& state, const Waiting& first) const {
  const BatchCost& cost = state.cost;
  if (cost.least_percent == 0 || first.deadline_ns == kNever) return 0;
  const int64_t slo_ns = first.deadline_ns - first.arrival_ns;
  const int64_t gathered =
      (slo_ns - cost.time(1)) / std::max<int64_t>(cost.alpha_ns + state.gap_ns, 1);
  const int64_t most = std::min<int64_t>(staggered_batch(cost, slo_ns, executors()), gathered);
  return static_cast<int32_t>(most * cost.least_percent / 100);
}

// Whether the first query goes because its deadline keeps the batch below the least size, while one
// of those behind it can begin a batch of at least that. Only where every executor is busy: a free
// one runs the small batch at once.
bool Batcher::gives_up(int32_t model, int64_t now_ns) {
  const ModelState& state = models_[model];
  const Candidate& found = state.candidate;
  if (!found.is_cut || !is_scarce_ || found.exec_ns > now_ns) return false;
  const int32_t least = least_batch(state, slot(model, 0));
  if (found.queries >= least || state.waiting <= least) return false;
  return now_ns + state.cost.time(least) <= slot(model, state.waiting - least).deadline_ns;
}

// Makes a model's candidate again, and drops the queries that it shows to be lost.
void Batcher::update(int32_t model, int64_t now_ns) {
  ModelState& state = models_[model];
  state.candidate = {};
  while (state.waiting > 0) {
    const Waiting& first = slot(model, 0);
    state.candidate = batching_->candidate(
        {.cost = &state.cost,
         .waiting = state.waiting,
         .oldest_arrival_ns = first.arrival_ns,
         .earliest_deadline_ns = first.deadline_ns == kNever ? 0 : first.deadline_ns},
        now_ns);
    const bool lost = state.candidate.queries == 0;
    if (!lost && !gives_up(model, now_ns)) break;
    decisions_.drops.push_back(
        {first.query, model, lost ? DropReason::kDeadline : DropReason::kGivenUp});
    pop(model, 1);
  }
  if (state.waiting == 0) {
    timers_.remove(model);
    ready_.remove(model);
    return;
  }
  const Candidate& found = state.candidate;
  const int64_t invalid_ns = found.latest_ns == kNever ? kNever : found.latest_ns + 1;
  if (found.exec_ns <= now_ns) {
    ready_.set(model, found.latest_ns);
    timers_.set(model, invalid_ns);
  } else {
    ready_.remove(model);
    timers_.set(model, std::min(found.exec_ns, invalid_ns));
  }
}

// Brings every candidate up to date, then pairs ready ones with free executors while there are
// both. An update moves a timer beyond `now_ns`, so each loop ends.
void Batcher::match(int64_t now_ns, Match event) {
  while (next_timer_ns() <= now_ns) update(timers_.top(), now_ns);
  while (!ready_.empty() && !free_.empty()) {
    const int32_t model = ready_.top();
    const ModelState& state = models_[model];
    const Task task{.model = model,
                    .queries = state.candidate.queries,
                    .arrival_ns = slot(model, 0).arrival_ns,
                    .deadline_ns = slot(model, 0).deadline_ns};
    const int32_t executor = placement_->decide({executors_, &free_}, task, now_ns);
    if (executor == kNone || !is_free(executor)) return;
    dispatch(model, executor, now_ns, event);
  }
}

void Batcher::dispatch(int32_t model, int32_t executor, int64_t now_ns, Match event) {
  const Candidate candidate = models_[model].candidate;
  decisions_.dispatches.push_back(
      {.model = model,
       .executor = executor,
       .first = static_cast<int32_t>(decisions_.queries.size()),
       .size = candidate.queries,
       .expected_ns = now_ns + models_[model].cost.time(candidate.queries),
       .deadline_ns = slot(model, 0).deadline_ns,
       .moment = candidate.moment,
       .match = event});
  for (int32_t i = 0; i < candidate.queries; ++i) {
    decisions_.queries.push_back(slot(model, i).query);
  }
  free_.erase(executor);
  pop(model, candidate.queries);
  update(model, now_ns);
}

}  // namespace veltair::sched
