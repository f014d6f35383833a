#include "native/sched/batching.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace veltair::sched {
namespace {

// Half an hour. Longer times could overflow in the time of a batch of a million, the most that a
// queue holds.
constexpr int64_t kLongestNs = 1'800'000'000'000;

int64_t deadline_of(const BatchView& view) {
  return view.earliest_deadline_ns == 0 ? kNever : view.earliest_deadline_ns;
}

int64_t latest_of(const BatchView& view, int32_t queries) {
  const int64_t deadline_ns = deadline_of(view);
  if (view.cost == nullptr || deadline_ns == kNever) return kNever;
  return deadline_ns - view.cost->time(queries);
}

// The longest prefix of the queue, of at most `limit`, that would end by its earliest deadline; it
// is to run at once.
Candidate gather(const BatchView& view, int32_t limit, int64_t now_ns) {
  limit = std::min(limit, view.waiting);
  if (view.cost == nullptr) return {.queries = limit, .exec_ns = now_ns, .latest_ns = kNever};
  limit = std::min(limit, view.cost->max_batch);
  const int64_t deadline_ns = deadline_of(view);
  const int64_t budget_ns = deadline_ns == kNever ? kNever : deadline_ns - now_ns;
  const int32_t queries = view.cost->largest(budget_ns, limit);
  if (queries == 0) return {};
  return {.queries = queries,
          .exec_ns = now_ns,
          .latest_ns = latest_of(view, queries),
          .is_cut = queries < limit};
}

// Defers a candidate that isn't empty.
Candidate defer(Candidate candidate, int64_t until_ns, Moment moment) {
  candidate.exec_ns = std::max(candidate.exec_ns, until_ns);
  candidate.moment = moment;
  return candidate;
}

bool is_full(const BatchView& view, int32_t queries) {
  return view.cost != nullptr && queries == view.cost->max_batch;
}

class NoBatching final : public BatchingPolicy {
 public:
  static constexpr std::string_view kName = "none";
  std::string_view name() const override { return kName; }
  Candidate candidate(const BatchView& view, int64_t now_ns) const override {
    return gather(view, 1, now_ns);
  }
};

class EagerBatching final : public BatchingPolicy {
 public:
  static constexpr std::string_view kName = "eager";
  std::string_view name() const override { return kName; }
  Candidate candidate(const BatchView& view, int64_t now_ns) const override {
    return gather(view, view.waiting, now_ns);
  }
};

class TimeoutBatching final : public BatchingPolicy {
 public:
  static constexpr std::string_view kName = "timeout";
  std::string_view name() const override { return kName; }
  Candidate candidate(const BatchView& view, int64_t now_ns) const override {
    const Candidate found = gather(view, view.waiting, now_ns);
    if (found.queries == 0 || view.cost == nullptr) return found;
    if (is_full(view, found.queries)) return defer(found, now_ns, Moment::kFull);
    return defer(found, view.oldest_arrival_ns + view.cost->timeout_ns, Moment::kTimeout);
  }
};

class DeferredBatching final : public BatchingPolicy {
 public:
  static constexpr std::string_view kName = "deferred";
  std::string_view name() const override { return kName; }
  Candidate candidate(const BatchView& view, int64_t now_ns) const override {
    const Candidate found = gather(view, view.waiting, now_ns);
    if (found.queries == 0) return found;
    if (is_full(view, found.queries)) return defer(found, now_ns, Moment::kFull);
    if (found.latest_ns == kNever) return defer(found, now_ns, Moment::kNoDeadline);
    return defer(found, latest_of(view, found.queries + 1), Moment::kFrontrun);
  }
};

}  // namespace

int32_t BatchCost::largest(int64_t budget_ns, int32_t limit) const {
  limit = std::min(limit, max_batch);
  if (budget_ns == kNever || alpha_ns == 0) return time(1) <= budget_ns ? limit : 0;
  if (budget_ns < time(1)) return 0;
  return static_cast<int32_t>(std::min<int64_t>((budget_ns - beta_ns) / alpha_ns, limit));
}

void BatchCost::check() const {
  const auto refuse = [](const char* field, int64_t value, const char* rule) {
    throw std::invalid_argument(std::string(field) + " = " + std::to_string(value) + ": " + rule);
  };
  if (alpha_ns < 0 || alpha_ns > kLongestNs) {
    refuse("alpha_ns", alpha_ns, "must be from 0 to half an hour");
  }
  if (beta_ns < 0 || beta_ns > kLongestNs) {
    refuse("beta_ns", beta_ns, "must be from 0 to half an hour");
  }
  if (time(1) == 0) refuse("alpha_ns", 0, "a batch must take some time: raise it or beta_ns");
  if (max_batch < 1) refuse("max_batch", max_batch, "must be at least 1");
  if (least_percent < 0 || least_percent > 100) {
    refuse("least_percent", least_percent, "must be from 0 to 100");
  }
  if (timeout_ns < 0 || timeout_ns > kLongestNs) {
    refuse("timeout_ns", timeout_ns, "must be from 0 to half an hour");
  }
}

int32_t staggered_batch(const BatchCost& cost, int64_t slo_ns, int32_t executors) {
  return cost.largest(slo_ns - slo_ns / (executors + 1), cost.max_batch);
}

std::string_view moment_text(Moment moment) {
  switch (moment) {
    case Moment::kAtOnce:
      return "the policy does not wait";
    case Moment::kFull:
      return "the batch has its largest size";
    case Moment::kNoDeadline:
      return "the queries have no deadline to wait towards";
    case Moment::kTimeout:
      return "the first query has waited for the timeout";
    case Moment::kFrontrun:
      return "one query more would not end in time";
  }
  return "";
}

std::vector<std::string_view> batching_names() {
  return {NoBatching::kName, TimeoutBatching::kName, EagerBatching::kName, DeferredBatching::kName};
}

std::unique_ptr<BatchingPolicy> make_batching(std::string_view name) {
  if (name == NoBatching::kName) return std::make_unique<NoBatching>();
  if (name == TimeoutBatching::kName) return std::make_unique<TimeoutBatching>();
  if (name == EagerBatching::kName) return std::make_unique<EagerBatching>();
  if (name == DeferredBatching::kName) return std::make_unique<DeferredBatching>();
  std::string known;
  for (std::string_view each : batching_names()) {
    known.append(known.empty() ? "" : ", ").append(each);
  }
  throw std::invalid_argument("no batching policy `" + std::string(name) + "`; known: " + known);
}

}  // namespace veltair::sched
