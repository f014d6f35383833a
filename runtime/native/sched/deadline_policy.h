// `deadline` and `veltair-deadline`: cores go to the task with the earliest deadline that it can
// meet.
#pragma once

#include <limits>
#include <string_view>
#include <vector>

#include "native/sched/policy.h"

namespace veltair::sched {

// At each block boundary:
// - a task that can't make its deadline even on the cores that it would use well, its model's
//   `hoped_cores_`, or on all that are free, is late: it counts as one without a deadline as long
//   as that is so. With `refuse_late` one that can't make it on all cores of the machine is
//   refused, or ended amid its layers;
// - tasks with earlier deadlines that wait are granted first; the worker's task gets what they
//   leave. It waits at its boundary where they leave nothing, but only if it can afford to: if its
//   laxity, deadline - now - predicted time left on all cores, covers all that would go before it.
//   Otherwise it would be lost as well, with the work that was spent on it;
// - it takes the fewest cores on which it ends within `margin_percent` of the time that it has
//   left, less half of `max_block_ns`; where nobody waits but late ones, the fastest count of all
//   that are free;
// - blocks are cut so that, as predicted, a boundary comes at least every `max_block_ns`.
// A query that finds no free core takes half the cores of the running block with the latest
// deadline, if that is later than its own by at least `max_block_ns` and has several cores.
//
// Laxity decides who can be in time, and not who goes first. By least laxity all that run at the
// same time come to have equally little left, and a machine that is slower than predicted for a
// while makes all of them late; by the earliest deadline the one that goes first ends with most of
// its time left, and what is lost is lost by the last. Both keep all deadlines of one core that can
// be kept, where predictions are exact.
//
// `veltair-deadline` forms its blocks by VELTAIR's threshold (cut in the same way), in the versions
// for the level, and gives a block the fewest cores for its part of the time that is really left,
// instead of its part of the target; so a late query catches up, and an early one saves cores.
// Kernels use some counts better than others, so it may be other cores than those, which together
// take less of the machine: more, or fewer within half of the margin. Of the cores that are free a
// block gets more where it uses them nearly as well as one, and while nobody waits where it uses
// them well enough for a machine of which so much is idle.
//
// A running task that can't be in time on the cores that it holds gets more at its next boundary:
// if its block ends within half of `max_block_ns`, cores that come free are kept for it, idle,
// unless a more urgent task takes them. One without a deadline gets them only where it would end
// within the margin on those that it has.
//
// A task without a deadline gets what the others leave: nothing that one which is running lacks,
// however long its block still takes. Where it holds a worker that the queue needs, it is as urgent
// as the queue's most urgent, since that one can't begin before it has ended. A late task counts as
// one without a deadline, but holds no worker that one which can be in time needs: unless its rest
// is a short block it goes back into the queue, and begins again when there is room. What it had
// computed is lost, as it would be if it were refused.
//
// All that is predicted is taken at the pace that the last blocks had: where a machine is slower
// than when its profiles were measured, a task is late sooner, and gets more cores before it is.
//
// Where a machine can't keep all deadlines, the earliest one doesn't say who should lose. A network
// of which more than four fifths of `late_percent` were late lately has a lead (lead.h): the
// queries that come then are ordered as if they were due earlier by it, though the deadline itself
// still says what they need and when they are late. So networks that lose fewer than they may give
// way to one that loses more. A task keeps the lead that it came with: what went ahead of it then
// doesn't change.
//
// No paper has it. Ties go to the older task. A query is refused only when it is certain by the
// profile that it would be late, however long the queue is. To serve one first that is late unless
// it gets most of the machine is too dear: it computes little more there than on fewer cores, and
// what they cost makes others late.
class DeadlinePolicy final : public Policy {
 public:
  // Throws std::invalid_argument for a parameter out of range.
  DeadlinePolicy(std::string_view name, bool veltair_blocks, int32_t total_cores,
                 std::span<const ModelProfile> models, const PolicyOptions& options);

  std::string_view name() const override { return name_; }
  Needs needs() const override {
    return {.waiting = true,
            .refusing = options_.refuse_late,
            .returning = !options_.refuse_late,
            .revoking = true,
            .by_deadline = true,
            .late_percent = options_.late_percent,
            .queued = kWholeQueue};
  }
  Decision decide(const View& view, const Event& event, int64_t now_ns) const override;

 private:
  static constexpr int64_t kEndless = std::numeric_limits<int64_t>::max() / 4;

  // What a decision has to know of one task.
  struct Outlook {
    int32_t task = kNone;
    int64_t due_ns = 0;     // what orders: deadline less lead; kEndless: without one, or late
    int64_t laxity_ns = 0;  // of the deadline itself; kEndless likewise
    int64_t left_ns = 0;
    bool is_late = false;  // hopeless and to be served

    bool is_endless() const { return due_ns > kEndless / 2; }
    bool is_lost() const { return laxity_ns < 0; }
  };

  // `at_hand`: the cores that nobody holds but the worker that asks.
  Outlook outlook(const View& view, int32_t task, int32_t at_hand, int64_t now_ns) const;
  Outlook outlook(int32_t id, const Task& task, int32_t pace, int32_t at_hand,
                  int64_t now_ns) const;
  static bool before(const View& view, const Outlook& a, const Outlook& b);
  // The time left in which a task plans to have ended. Half of `max_block_ns` is for what comes
  // after its last block, the reply, and for what that block takes longer than predicted: who plans
  // anew at each boundary to use a part of the time left ends with hardly any.
  int64_t planned_ns(const Task& task, int64_t now_ns) const;
  // How well a block uses the cores that it gets while nobody waits, where others use so many.
  int32_t alone_percent(int32_t used_cores) const;
  int32_t wanted(const Task& task, const Outlook& outlook, int32_t pool, int32_t pace,
                 int64_t now_ns) const;
  // Cores that running tasks which go before `rank` will take at the ends of their blocks.
  int32_t kept_cores(const View& view, int32_t worker, const Outlook& rank, int64_t now_ns) const;
  // Whether a task of this rank, which runs, would be put back for one that waits.
  bool may_return(const Outlook& rank) const;
  bool some_may_return(const View& view, int32_t at_hand, int64_t now_ns) const;
  int64_t earliest_queued_ns(const View& view, int32_t at_hand, int64_t now_ns) const;
  Decision begin(const View& view, int32_t worker, int64_t now_ns) const;
  Decision next(const View& view, int32_t worker, int64_t now_ns) const;
  Decision block(const View& view, const Outlook& outlook, int32_t room, bool alone,
                 int64_t now_ns) const;
  Decision revoke(const View& view, const Outlook& urgent, int64_t now_ns) const;
  int64_t best_ns(const Task& task, int32_t cores) const {
    const int64_t* row = best_ns_[task.model].data() +
                         static_cast<size_t>(cores) * (plans_[task.model].layers() + 1);
    return row[task.next_layer] + (task.passes - 1) * row[0];
  }

  const std::string_view name_;  // one of the constants in policy.cc
  const bool veltair_blocks_;
  const int32_t total_cores_;
  const PolicyOptions options_;
  std::vector<ModelPlan> plans_;
  // [model][cores 0..total][layers + 1]: the time left from a layer on the best count of at most
  // that many cores.
  std::vector<std::vector<int64_t>> best_ns_;
  // [model]: the most cores that it uses well, or that it needs for its target; a few at least.
  std::vector<int32_t> hoped_cores_;
};

}  // namespace veltair::sched
