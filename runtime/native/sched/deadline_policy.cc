#include "native/sched/deadline_policy.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "native/sched/pace.h"
#include "native/sched/veltair_policy.h"

namespace veltair::sched {
namespace {

// Cores that a block uses as well as this cost nothing: they end it sooner, and come free sooner.
constexpr int32_t kFreePercent = 95;
// While nobody else waits they may cost more, the more the more of the machine is idle; but not
// anything, since the next one may come soon.
constexpr int32_t kAlonePercent = 80;  // where three fifths of the machine or more are in use
constexpr int32_t kIdlePercent = 60;   // where two fifths or less are
// Cores that a whole model uses as well as this are worth it to be in time.
constexpr int32_t kHopedPercent = 75;
// And so many always are: one core more or less is a large part of a small machine.
constexpr int32_t kHopedAtLeast = 4;

// Whether a worker other than this one has no task.
bool has_idle_worker(const View& view, int32_t except) {
  const int32_t idle = view.workers.size() - view.busy->size();
  return idle > (view.busy->contains(except) ? 0 : 1);
}

}  // namespace

DeadlinePolicy::DeadlinePolicy(std::string_view name, bool veltair_blocks, int32_t total_cores,
                               std::span<const ModelProfile> models, const PolicyOptions& options)
    : name_(name),
      veltair_blocks_(veltair_blocks),
      total_cores_(total_cores),
      options_(options),
      plans_(make_plans(models, total_cores)) {
  if (options.max_block_ns < 1) {
    throw std::invalid_argument("max_block_ns = " + std::to_string(options.max_block_ns) +
                                ": a block's longest time is at least 1 ns");
  }
  if (options.margin_percent < 1 || options.margin_percent > 100) {
    throw std::invalid_argument("margin_percent = " + std::to_string(options.margin_percent) +
                                ": a task plans to use from 1 to 100 % of the time left");
  }
  if (options.late_percent < 1 || options.late_percent > 100) {
    throw std::invalid_argument("late_percent = " + std::to_string(options.late_percent) +
                                ": from 1 to 100 % of a network's queries may be late");
  }
  check_threshold(options, total_cores);
  for (const ModelPlan& plan : plans_) {
    const int32_t layers = plan.layers();
    std::vector<int64_t> best(static_cast<size_t>(layers) + 1, kEndless);
    for (int32_t cores = 1; cores <= total_cores; ++cores) {
      for (int32_t l = 0; l <= layers; ++l) {
        best.push_back(std::min(best[static_cast<size_t>(cores - 1) * (layers + 1) + l],
                                plan.time_ns(l, layers, cores, 0)));
      }
    }
    best_ns_.push_back(std::move(best));
    hoped_cores_.push_back(std::max({plan.efficient_cores(0, layers, total_cores, 0, kHopedPercent),
                                     plan.average_cores(0), std::min(kHopedAtLeast, total_cores)}));
  }
}

DeadlinePolicy::Outlook DeadlinePolicy::outlook(const View& view, int32_t task, int32_t at_hand,
                                                int64_t now_ns) const {
  return outlook(task, view.tasks[task], view.pace, at_hand, now_ns);
}

DeadlinePolicy::Outlook DeadlinePolicy::outlook(int32_t id, const Task& task, int32_t pace,
                                                int32_t at_hand, int64_t now_ns) const {
  const int32_t cores =
      options_.refuse_late ? total_cores_ : std::max(hoped_cores_[task.model], at_hand);
  const int64_t left_ns = at_pace(best_ns(task, cores), pace);
  const int64_t laxity_ns = task.deadline_ns - now_ns - left_ns;
  const bool is_late = task.deadline_ns != 0 && laxity_ns < 0 && !options_.refuse_late;
  if (task.deadline_ns == 0 || is_late) return {id, kEndless, kEndless, left_ns, is_late};
  return {id, task.deadline_ns - task.lead_ns, laxity_ns, left_ns};
}

bool DeadlinePolicy::before(const View& view, const Outlook& a, const Outlook& b) {
  if (a.due_ns != b.due_ns) return a.due_ns < b.due_ns;
  return view.tasks[a.task].order < view.tasks[b.task].order;
}

int64_t DeadlinePolicy::planned_ns(const Task& task, int64_t now_ns) const {
  const int64_t left_ns = task.deadline_ns - now_ns;
  return std::max(left_ns / 2, left_ns - options_.max_block_ns / 2);
}

int32_t DeadlinePolicy::alone_percent(int32_t used_cores) const {
  const int32_t used_percent = 100 * used_cores / total_cores_;
  return std::clamp(used_percent + kAlonePercent - kIdlePercent, kIdlePercent, kAlonePercent);
}

int32_t DeadlinePolicy::wanted(const Task& task, const Outlook& outlook, int32_t pool, int32_t pace,
                               int64_t now_ns) const {
  if (outlook.is_endless()) return 1;
  const ModelPlan& plan = plans_[task.model];
  const auto left_ns = static_cast<double>(planned_ns(task, now_ns));
  const auto budget_ns =
      static_cast<int64_t>(per_pace(left_ns, pace) * options_.margin_percent / 100);
  // The tables are descending in the core count, so the fewest are found by halving.
  int32_t low = 1;
  int32_t high = pool;
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (best_ns(task, middle) <= budget_ns) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return std::min(low, plan.fastest_cores(task.next_layer, plan.layers(), pool, 0));
}

Decision DeadlinePolicy::block(const View& view, const Outlook& outlook, int32_t room, bool alone,
                               int64_t now_ns) const {
  const Task& task = view.tasks[outlook.task];
  const ModelPlan& plan = plans_[task.model];
  const int32_t begin = task.next_layer;
  const int32_t level = veltair_blocks_ ? plan.level(view.level, view.slowdown) : 0;
  int32_t end = plan.layers();
  int32_t cores = 0;
  if (veltair_blocks_) {
    end = block_end(plan, begin, spare_cores(view, plans_, outlook.task, level, options_), level);
    const int64_t share_left_ns = std::max<int64_t>(plan.share_ns(begin, plan.layers()), 1);
    const double part =
        static_cast<double>(plan.share_ns(begin, end)) / static_cast<double>(share_left_ns);
    const int64_t left_ns = outlook.is_endless() ? plan.share_ns(begin, plan.layers())
                                                 : planned_ns(task, now_ns) / task.passes;
    const auto budget_ns = static_cast<int64_t>(
        part * per_pace(static_cast<double>(left_ns), view.pace) * options_.margin_percent / 100);
    cores = plan.cores_for(begin, end, budget_ns, level);
    const int32_t longest_percent = (options_.margin_percent + 100) / 2;
    cores = plan.cheapest_cores(begin, end, cores,
                                budget_ns * longest_percent / options_.margin_percent, room, level);
    const int32_t percent = alone ? alone_percent(total_cores_ - room) : kFreePercent;
    cores = std::max(cores, plan.efficient_cores(begin, end, room, level, percent));
  } else if (alone) {
    cores = plan.fastest_cores(begin, end, room, level);
  } else {
    cores = wanted(task, outlook, room, view.pace, now_ns);
  }
  cores = std::clamp(cores, 1, room);
  end = plan.cut(begin, end, cores, level, options_.max_block_ns);
  return {.task = outlook.task,
          .layer_begin = begin,
          .layer_end = end,
          .level = level,
          .cores = cores,
          .reason = alone ? Reason::kSpareCores : Reason::kEarliestDeadline,
          .action = Action::kRun,
          .expected_ns = plan.time_ns(begin, end, cores, level)};
}

int32_t DeadlinePolicy::kept_cores(const View& view, int32_t worker, const Outlook& rank,
                                   int64_t now_ns) const {
  int32_t kept = 0;
  for (int32_t w : *view.busy) {
    const Running& running = view.workers[w];
    if (w == worker || running.waits()) continue;
    const int64_t end_ns =
        std::max(now_ns, running.block_started_ns + at_pace(running.block_expected_ns, view.pace));
    if (end_ns - now_ns > options_.max_block_ns / 2 && !rank.is_endless()) continue;
    Task rest = view.tasks[running.task];
    rest.next_layer = running.layer_end;
    if (rest.next_layer >= plans_[rest.model].layers()) {
      rest.next_layer = 0;
      --rest.passes;
    }
    if (rest.passes < 1) continue;
    const Outlook other = outlook(running.task, rest, view.pace, view.free_cores, end_ns);
    if (other.is_endless() || other.is_lost() || !before(view, other, rank)) continue;
    const int64_t rest_ns = at_pace(best_ns(rest, running.cores_held), view.pace);
    // To one without a deadline it leaves only what it doesn't need within the margin either.
    const int64_t percent = rank.is_endless() ? options_.margin_percent : 100;
    if (rest_ns <= (rest.deadline_ns - end_ns) * percent / 100) continue;
    kept += std::max(0, wanted(rest, other, total_cores_, view.pace, end_ns) - running.cores_held);
  }
  return kept;
}

bool DeadlinePolicy::may_return(const Outlook& rank) const {
  return rank.is_late && rank.left_ns > options_.max_block_ns;
}

bool DeadlinePolicy::some_may_return(const View& view, int32_t at_hand, int64_t now_ns) const {
  for (int32_t w : *view.busy) {
    const Running& running = view.workers[w];
    if (running.waits() && may_return(outlook(view, running.task, at_hand, now_ns))) {
      return true;
    }
  }
  return false;
}

int64_t DeadlinePolicy::earliest_queued_ns(const View& view, int32_t at_hand,
                                           int64_t now_ns) const {
  int64_t earliest_ns = kEndless;
  for (int32_t t = view.queue_head; t != kNone; t = view.tasks[t].next) {
    earliest_ns = std::min(earliest_ns, outlook(view, t, at_hand, now_ns).due_ns);
  }
  return earliest_ns;
}

Decision DeadlinePolicy::revoke(const View& view, const Outlook& urgent, int64_t now_ns) const {
  Outlook latest;
  int32_t victim = kNone;
  for (int32_t w : *view.busy) {
    const Running& running = view.workers[w];
    if (running.cores_held < 2) continue;
    const Outlook other = outlook(view, running.task, 0, now_ns);
    if (victim == kNone || other.due_ns > latest.due_ns) {
      latest = other;
      victim = w;
    }
  }
  if (victim == kNone || latest.due_ns - options_.max_block_ns < urgent.due_ns) {
    return {.reason = Reason::kNoCores, .action = Action::kWait};
  }
  const int32_t held = view.workers[victim].cores_held;
  Decision decision = block(view, urgent, held / 2, false, now_ns);
  decision.revoke_worker = victim;
  decision.revoke_keep = held - decision.cores;
  return decision;
}

Decision DeadlinePolicy::begin(const View& view, int32_t worker, int64_t now_ns) const {
  Outlook urgent;
  int32_t late = 0;  // of the queue
  for (int32_t t = view.queue_head; t != kNone; t = view.tasks[t].next) {
    const Outlook each = outlook(view, t, view.free_cores, now_ns);
    if (each.is_lost()) {
      return {.task = t, .reason = Reason::kHopeless, .action = Action::kRefuse};
    }
    if (each.is_late) ++late;
    if (urgent.task == kNone || before(view, each, urgent)) urgent = each;
  }
  if (urgent.task == kNone) return {};
  int32_t room = view.free_cores;
  room -= kept_cores(view, worker, urgent, now_ns);
  for (int32_t w : *view.busy) {
    if (room < 1) break;
    if (!view.workers[w].waits()) continue;
    const Outlook other = outlook(view, view.workers[w].task, view.free_cores, now_ns);
    if (before(view, other, urgent))
      room -= wanted(view.tasks[other.task], other, room, view.pace, now_ns);
  }
  if (room < 1 && view.free_cores > 0) {
    return {.reason = Reason::kLessUrgent, .action = Action::kWait};
  }
  if (room < 1) return revoke(view, urgent, now_ns);
  // What is late already doesn't make one that can be in time save cores.
  const int32_t rivals = view.queue_length - (urgent.is_late ? 0 : late);
  const bool alone = rivals == 1 || !has_idle_worker(view, worker);
  return block(view, urgent, room, alone, now_ns);
}

Decision DeadlinePolicy::next(const View& view, int32_t worker, int64_t now_ns) const {
  const Running& running = view.workers[worker];
  const int32_t pool = view.free_cores + running.cores_held;
  const Outlook own = outlook(view, running.task, pool, now_ns);
  if (own.is_lost()) {
    return {.task = own.task, .reason = Reason::kHopeless, .action = Action::kRefuse};
  }
  if (pool < 1) return {.task = own.task, .reason = Reason::kNoCores, .action = Action::kWait};
  // One that holds cores gives them up only to a task that is more urgent by a whole block.
  Outlook rank = own;
  if (running.cores_held > 0) rank.due_ns -= options_.max_block_ns;
  bool queue_may_begin = has_idle_worker(view, worker);
  int32_t room = pool;
  if (!own.is_endless()) {
    queue_may_begin =
        queue_may_begin || (view.queue_length > 0 && some_may_return(view, pool, now_ns));
  } else if (!queue_may_begin) {
    const int64_t queued_ns = earliest_queued_ns(view, pool, now_ns);
    if (queued_ns < kEndless && may_return(own)) {
      return {.task = own.task, .reason = Reason::kReturned, .action = Action::kReturn};
    }
    rank.due_ns = std::min(rank.due_ns, queued_ns);
  }
  room -= kept_cores(view, worker, rank, now_ns);
  int64_t ahead_ns = 0;
  bool alone = true;
  const auto yield_to = [&](int32_t task) {
    const Outlook other = outlook(view, task, pool, now_ns);
    if (other.is_lost()) return;
    if (own.is_late || !other.is_late) alone = false;
    if (room < 1 || !before(view, other, rank)) return;
    room -= wanted(view.tasks[other.task], other, room, view.pace, now_ns);
    ahead_ns += other.left_ns;
  };
  for (int32_t w : *view.busy) {
    if (w != worker && view.workers[w].waits()) yield_to(view.workers[w].task);
  }
  if (queue_may_begin) {
    for (int32_t t = view.queue_head; t != kNone; t = view.tasks[t].next) yield_to(t);
  }
  if (room < 1 && running.cores_held > 0 && own.laxity_ns < ahead_ns) room = running.cores_held;
  if (room < 1) return {.task = own.task, .reason = Reason::kLessUrgent, .action = Action::kWait};
  return block(view, own, room, alone, now_ns);
}

Decision DeadlinePolicy::decide(const View& view, const Event& event, int64_t now_ns) const {
  if (event.kind == EventKind::kWorkerIdle) return begin(view, event.worker, now_ns);
  return next(view, event.worker, now_ns);
}

}  // namespace veltair::sched
