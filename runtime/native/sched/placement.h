// The placement decision: on which executor a task runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "native/sched/view.h"

namespace veltair::sched {

enum class ExecutorKind : uint8_t { kLocalCores };

// Somewhere that tasks can run.
struct Executor {
  ExecutorKind kind = ExecutorKind::kLocalCores;
  int32_t total_cores = 0;
  int32_t free_cores = 0;
  int32_t queue_length = 0;
};

// Pure, as `Policy` is. Thread-safety: immutable.
class PlacementPolicy {
 public:
  PlacementPolicy() = default;
  virtual ~PlacementPolicy() = default;
  PlacementPolicy(const PlacementPolicy&) = delete;
  PlacementPolicy& operator=(const PlacementPolicy&) = delete;

  virtual std::string_view name() const = 0;
  // Returns an index into `executors`, or kNone where none can take the task.
  virtual int32_t decide(std::span<const Executor> executors, const Task& task,
                         int64_t now_ns) const = 0;
};

// Makes the policy that the configuration calls `name`; throws std::invalid_argument otherwise.
// `local`: the node's own cores.
std::unique_ptr<PlacementPolicy> make_placement(std::string_view name);

}  // namespace veltair::sched
