// The scheduling decision: which task, which layers, which versions of them, on how many cores.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "native/sched/plan.h"
#include "native/sched/profile.h"
#include "native/sched/view.h"

namespace veltair::sched {

enum class Reason : uint8_t {
  kQueueEmpty,
  kMeetsTarget,
  kOutOfReach,
  kNoTarget,
  kMeetsShare,
  kShareOutOfReach,
  kPivot,
  kNoPivot,
  kPartition,
  kPartitionsBusy,
  kHighestToken,
  kOtherRuns,
  kEarliestDeadline,
  kSpareCores,
  kLessUrgent,
  kHopeless,
  kReturned,
  kNoCores,
};

// One sentence for a log or a person.
std::string_view reason_text(Reason reason);

enum class Action : uint8_t {
  kRun,     // run the block
  kWait,    // nothing now; a worker amid a task gives its cores back and waits at its boundary
  kRefuse,  // end the task unserved: it can't meet its deadline any more
  kReturn,  // at a boundary: back into the queue, with what it has computed forgotten
};

// The next block. `task == kNone` says: nothing to do now.
struct Decision {
  int32_t task = kNone;
  int32_t layer_begin = 0;  // [begin, end)
  int32_t layer_end = 0;
  int32_t level = 0;  // each layer runs the variant that is chosen for this interference level
  int32_t cores = 0;  // wanted; the block begins with fewer where fewer are free
  Reason reason = Reason::kQueueEmpty;
  Action action = Action::kRun;
  int64_t expected_ns = 0;  // the block's predicted time on `cores`; 0: not predicted
  // Before the block begins, this other worker's running block goes down to `revoke_keep` cores (at
  // least 1), at the next end of one of its kernel's tasks.
  int32_t revoke_worker = kNone;
  int32_t revoke_keep = 0;
};

// The policies' parameters.
struct PolicyOptions {
  int64_t max_block_ns = 500'000;  // `deadline`: longest predicted time between two boundaries
  int32_t margin_percent = 75;     // `deadline`: how much of the time left a task plans to use
  // `deadline` and `veltair-deadline`: how many of a network's queries may be late; where more
  // than four fifths of that are, its queries go ahead of others. 100: all may, and deadlines alone
  // say who goes first.
  int32_t late_percent = 5;
  // `deadline` and `veltair-deadline`: end a task unserved once it can't be in time any more; else
  // it gets the cores that no other needs.
  bool refuse_late = false;
  int32_t partition_cores = 0;  // `partition`: cores of each instance; 0: chosen by profile
  // `veltair-as`, `veltair`, `veltair-deadline`: cores of a block beyond its model's average,
  // always; kNone: by the load
  int32_t threshold_cores = kNone;
};

inline constexpr int32_t kWholeQueue = std::numeric_limits<int32_t>::max();

// What a driver must be able to do for a policy.
struct Needs {
  bool waiting = false;    // Action::kWait amid a task
  bool refusing = false;   // Action::kRefuse
  bool returning = false;  // Action::kReturn
  bool revoking = false;   // revoke_worker; kWorkerIdle is asked without a free core too
  // The earliest deadline goes first: who is due later, or can't be in time, is ahead of nobody.
  bool by_deadline = false;
  // Which part of a network's queries may be late before they get a lead (lead.h); kNone: none has.
  int32_t late_percent = kNone;
  bool topping_up = true;  // a block that has fewer cores than wanted gains those that come free
  int32_t queued = 1;      // tasks of the queue that it reads, from the head on; kWholeQueue: all
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
  virtual Needs needs() const { return {}; }
  // On kWorkerIdle `task` is one of the queue's (or kNone: wait); on kBlockEnd it is the worker's.
  virtual Decision decide(const View& view, const Event& event, int64_t now_ns) const = 0;
};

// Makes the policy that the configuration calls `name`; throws std::invalid_argument for an unknown
// one, with the known ones, and for a parameter out of range. `models` are read now and not kept.
std::unique_ptr<Policy> make_policy(std::string_view name, int32_t total_cores,
                                    std::span<const ModelProfile> models,
                                    const PolicyOptions& options = {});

// Names that `make_policy` knows. Of the family `block-N` (any N from 1) it lists the paper's two.
std::vector<std::string_view> policy_names();

// Times, shares and demands of each model, as the policies work them out.
std::vector<ModelPlan> make_plans(std::span<const ModelProfile> models, int32_t total_cores);

// The task that an event is about: the worker's own, or the queue's first.
inline int32_t task_of(const View& view, const Event& event) {
  return event.kind == EventKind::kWorkerIdle ? view.queue_head : view.workers[event.worker].task;
}

}  // namespace veltair::sched
