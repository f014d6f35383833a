// The scheduling decision: which task, which layers, which versions of them, on how many cores.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "native/sched/profile.h"
#include "native/sched/view.h"

namespace veltair::sched {

enum class Reason : uint8_t {
  kQueueEmpty,
  kMeetsTarget,
  kOutOfReach,
  kNoTarget,
};

// One sentence for a log or a person.
std::string_view reason_text(Reason reason);

// The next block. `task == kNone` says: nothing to do now.
struct Decision {
  int32_t task = kNone;
  int32_t layer_begin = 0;  // [begin, end)
  int32_t layer_end = 0;
  int32_t level = 0;  // each layer runs the variant that is chosen for this interference level
  int32_t cores = 0;  // wanted; the block begins with fewer where fewer are free
  Reason reason = Reason::kQueueEmpty;
};

// A scheduling policy: a pure function of state, event and time.
//
// It reads no clock, takes no lock, does no I/O and allocates nothing in `decide`; the same object
// serves the server and the simulator. Thread-safety: immutable after construction.
class Policy {
 public:
  Policy() = default;
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  virtual std::string_view name() const = 0;
  // On kWorkerIdle `task` is one of the queue's (or kNone: wait); on kBlockEnd it is the worker's.
  virtual Decision decide(const View& view, const Event& event, int64_t now_ns) const = 0;
};

// Makes the policy that the configuration calls `name`; throws std::invalid_argument for an unknown
// one, with the known ones. `models` are read now and not kept.
std::unique_ptr<Policy> make_policy(std::string_view name, int32_t total_cores,
                                    std::span<const ModelProfile> models);

// The names that `make_policy` knows.
std::vector<std::string_view> policy_names();

}  // namespace veltair::sched
