// The batching decision: which waiting queries of a model become a task, and when.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

namespace veltair::sched {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// What a batch of one model costs, and the bounds of its batches. Plain data.
struct BatchCost {
  int64_t alpha_ns = 0;  // a batch of b takes alpha * b + beta
  int64_t beta_ns = 0;
  int32_t max_batch = std::numeric_limits<int32_t>::max();
  int64_t timeout_ns = 0;  // `timeout` alone reads it
  // Under overload the first queries are given up for batches of at least this share of what
  // staggered execution reaches, or of what arrives in time where that is less; 0: never.
  int32_t least_percent = 0;

  int64_t time(int64_t queries) const { return alpha_ns * queries + beta_ns; }
  // The largest batch that takes at most `budget_ns`, 0 where not even one query does; at most
  // `limit` and `max_batch`.
  int32_t largest(int64_t budget_ns, int32_t limit) const;
  // Throws std::invalid_argument, naming the field, where a value can't be.
  void check() const;
};

// The batch size of staggered execution: the largest whose time, and a wait of that time divided by
// the number of executors, are within `slo_ns`; 0 where not even one query is.
//
// Reference: Symphony §3.3, equation 1; Table 2 (with one executor it is "no coordination").
int32_t staggered_batch(const BatchCost& cost, int64_t slo_ns, int32_t executors);

// One model's queries that are in no task yet, earliest deadline first.
struct BatchView {
  const BatchCost* cost = nullptr;   // null where the caller has none: every batch then fits
  int32_t waiting = 0;               // in neighbouring slots
  int64_t oldest_arrival_ns = 0;     // of the first
  int64_t earliest_deadline_ns = 0;  // of the first; 0: none
};

// Why a candidate runs when it does.
enum class Moment : uint8_t {
  kAtOnce,      // the policy never waits
  kFull,        // it can't grow
  kNoDeadline,  // there is nothing to wait towards
  kTimeout,     // its first query has waited for the timeout
  kFrontrun,    // one query more would not end in time
};

// One sentence for a log or a person.
std::string_view moment_text(Moment moment);

// The batch that the first queries make, were it to run from now on.
struct Candidate {
  int32_t queries = 0;    // 0: not even the first would end in time
  int64_t exec_ns = 0;    // when it wants to run; not before `now`
  int64_t latest_ns = 0;  // the last moment at which it would end in time; kNever: no deadline
  Moment moment = Moment::kAtOnce;
  bool is_cut = false;  // its deadline alone keeps it from being larger
};

// Pure, as `Policy` is. Thread-safety: immutable.
class BatchingPolicy {
 public:
  BatchingPolicy() = default;
  virtual ~BatchingPolicy() = default;
  BatchingPolicy(const BatchingPolicy&) = delete;
  BatchingPolicy& operator=(const BatchingPolicy&) = delete;

  virtual std::string_view name() const = 0;
  // `view.waiting` is at least 1. O(1).
  virtual Candidate candidate(const BatchView& view, int64_t now_ns) const = 0;
};

// Makes the policy that the configuration calls `name`; throws std::invalid_argument otherwise.
//
// `none`: each query is a task of its own, at once.
// `eager`: all that wait and would end in time together, at once.
// `timeout`: the same, once `max_batch` wait or the first has waited for `timeout_ns`.
// `deferred`: the same, at the frontrun moment: when one query more would not end in time.
//
// Reference: Symphony §3.1, §3.2 (Algorithm 1, UpdateCandidate), and §3.4 for `timeout` and
// `eager`, which differ from `deferred` in line 5 alone.
// Differs: a batch of `max_batch` runs at once, for it can't grow; queries without a deadline run
// at once, for there is nothing to defer them to (the paper has neither).
std::unique_ptr<BatchingPolicy> make_batching(std::string_view name);

// The names that `make_batching` knows.
std::vector<std::string_view> batching_names();

}  // namespace veltair::sched
