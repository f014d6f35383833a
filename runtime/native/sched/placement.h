// The placement decision: on which executor a task runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "native/sched/id_set.h"
#include "native/sched/view.h"

namespace veltair::sched {

enum class ExecutorKind : uint8_t { kLocalCores, kDevice };

// Somewhere that tasks can run.
struct Executor {
  ExecutorKind kind = ExecutorKind::kLocalCores;
};

// What a placement is decided on; the caller owns it and keeps it still during the call.
struct PlacementView {
  std::span<const Executor> executors;
  const IdSet* free = nullptr;  // those that could begin a task now; null: the caller has no list
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
  virtual int32_t decide(const PlacementView& view, const Task& task, int64_t now_ns) const = 0;
};

// Makes the policy that the configuration calls `name`; throws std::invalid_argument otherwise.
//
// `local`: the node's own cores; a free one of several executors there, where the caller says
// which are.
// `first-fit`: the free executor with the smallest id, so that under little load those with large
// ids stay idle and can be given back (Symphony §3.2). Reads `free` alone: O(log executors).
std::unique_ptr<PlacementPolicy> make_placement(std::string_view name);

// The names that `make_placement` knows.
std::vector<std::string_view> placement_names();

}  // namespace veltair::sched
