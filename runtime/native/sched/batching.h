// The batching decision: which waiting queries of a model become a task, and when.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "native/sched/profile.h"

namespace veltair::sched {

// One model's queries that are in no task yet.
struct BatchView {
  const ModelProfile* model = nullptr;  // null where the caller has no profile at hand
  int32_t waiting = 0;                  // in neighbouring slots
  int64_t oldest_arrival_ns = 0;
  int64_t earliest_deadline_ns = 0;  // 0: none
};

struct BatchDecision {
  int32_t queries = 0;       // how many of the oldest become a task now; 0: none
  int64_t ask_again_ns = 0;  // when to ask again if no event comes before; 0: at the next event
};

// Pure, as `Policy` is. Thread-safety: immutable.
class BatchingPolicy {
 public:
  BatchingPolicy() = default;
  virtual ~BatchingPolicy() = default;
  BatchingPolicy(const BatchingPolicy&) = delete;
  BatchingPolicy& operator=(const BatchingPolicy&) = delete;

  virtual std::string_view name() const = 0;
  virtual BatchDecision decide(const BatchView& view, int64_t now_ns) const = 0;
};

// Makes the policy that the configuration calls `name`; throws std::invalid_argument otherwise.
// `none`: each query is a task of its own, at once.
std::unique_ptr<BatchingPolicy> make_batching(std::string_view name);

}  // namespace veltair::sched
