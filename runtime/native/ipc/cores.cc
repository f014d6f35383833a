// The core table: who has which core, and how one changes hands while kernels run.
#include <algorithm>

#include "native/ipc/board.h"

namespace veltair::ipc {

// The worker that a core counts for, or kNone.
int32_t Board::in_hand(int32_t core) const {
  const int32_t heir = cores_[core].heir.load(std::memory_order_relaxed);
  if (heir == kNobody) return kNone;
  return heir == kNone ? cores_[core].owner.load(std::memory_order_relaxed) : heir;
}

void Board::grant(int32_t worker, int32_t wanted) {
  sched::Running& running = workers_[worker].running;
  for (CoreRecord& core : cores_) {
    if (header_.free_cores == 0 || running.cores_held >= wanted) break;
    if (core.owner.load(std::memory_order_relaxed) != kNone) continue;
    core.owner.store(worker, std::memory_order_release);
    step();
    ++running.cores_held;
    --header_.free_cores;
  }
}

// Only at a boundary, where nothing of the worker runs: what it has in use is free at once. What
// others are still to let go for it goes first.
void Board::give_back(int32_t worker, int32_t keep) {
  sched::Running& running = workers_[worker].running;
  for (CoreRecord& core : cores_) {
    if (running.cores_held <= keep) return;
    if (core.heir.load(std::memory_order_relaxed) != worker) continue;
    core.heir.store(kNobody, std::memory_order_release);
    step();
    --running.cores_held;
  }
  for (size_t c = cores_.size(); c-- > 0;) {
    if (running.cores_held <= keep) return;
    if (cores_[c].owner.load(std::memory_order_relaxed) != worker ||
        cores_[c].heir.load(std::memory_order_relaxed) != kNone) {
      continue;
    }
    cores_[c].owner.store(kNone, std::memory_order_release);
    step();
    --running.cores_held;
    ++header_.free_cores;
  }
}

// Takes cores from the worker that the decision names, for `worker` as far as it wants them.
void Board::revoke(Critical& critical, const sched::Decision& decision, int32_t worker,
                   int64_t now_ns) {
  const int32_t victim = decision.revoke_worker;
  if (victim < 0 || victim >= static_cast<int32_t>(workers_.size()) || victim == worker) return;
  sched::Running& from = workers_[victim].running;
  sched::Running& to = workers_[worker].running;
  const int32_t keep = std::max(decision.revoke_keep, 1);
  for (int32_t c = static_cast<int32_t>(cores_.size()); c-- > 0 && from.cores_held > keep;) {
    if (in_hand(c) != victim) continue;
    const bool wanted = to.cores_held < to.cores_wanted;
    cores_[c].revoked_ns.store(now_ns, std::memory_order_relaxed);
    cores_[c].heir.store(wanted ? worker : kNobody, std::memory_order_release);
    step();
    --from.cores_held;
    ++header_.revocations;
    if (wanted) ++to.cores_held;
  }
  critical.wake(workers_[victim].cores);
}

// A core that its owner has let go becomes its heir's.
void Board::pass_on(Critical& critical, int32_t core, int64_t now_ns) {
  CoreRecord& record = cores_[core];
  const auto took_ns = static_cast<uint64_t>(std::max<int64_t>(now_ns - record.revoked_ns, 0));
  header_.let_go_ns += took_ns;
  if (took_ns > header_.longest_let_go_ns) header_.longest_let_go_ns = took_ns;
  const int32_t heir = record.heir.load(std::memory_order_relaxed);
  record.owner.store(heir == kNobody ? kNone : heir, std::memory_order_release);
  step();
  record.heir.store(kNone, std::memory_order_release);
  step();
  if (heir == kNobody) {
    ++header_.free_cores;
  } else {
    critical.wake(workers_[heir].cores);
  }
}

void Board::let_all_go(Critical& critical, int32_t worker, int64_t now_ns) {
  for (int32_t c = 0; c < static_cast<int32_t>(cores_.size()); ++c) {
    if (cores_[c].owner.load(std::memory_order_relaxed) != worker) continue;
    if (cores_[c].heir.load(std::memory_order_relaxed) != kNone) pass_on(critical, c, now_ns);
  }
}

void Board::let_go(int32_t worker, int32_t core, int64_t revoked_ns, int64_t now_ns) {
  Critical critical(*this);
  if (cores_[core].owner.load(std::memory_order_relaxed) != worker) return;
  if (cores_[core].heir.load(std::memory_order_relaxed) == kNone) return;
  if (cores_[core].revoked_ns.load(std::memory_order_relaxed) != revoked_ns) return;
  pass_on(critical, core, now_ns);
  top_up_blocks(critical);
  wake_for_work(critical);
}

void Board::top_up_blocks(Critical& critical) {
  if (header_.policies.tops_up == 0) return;
  while (header_.free_cores > 0) {
    int32_t oldest = kNone;
    for (int32_t w = 0; w < static_cast<int32_t>(workers_.size()); ++w) {
      const sched::Running& running = workers_[w].running;
      if (running.task == kNone || running.cores_held >= running.cores_wanted) continue;
      if (oldest == kNone ||
          tasks_[running.task].task.order < tasks_[workers_[oldest].running.task].task.order) {
        oldest = w;
      }
    }
    if (oldest == kNone) return;
    grant(oldest, workers_[oldest].running.cores_wanted);
    critical.wake(workers_[oldest].cores);
  }
}

void Board::read_cores(int32_t worker, OwnedCores* found) {
  Critical critical(*this);
  found->held.clear();
  found->leaving.clear();
  for (int32_t c = 0; c < header_.geometry.n_cores; ++c) {
    const CoreRecord& core = cores_[c];
    if (core.owner.load(std::memory_order_relaxed) != worker) continue;
    if (core.heir.load(std::memory_order_relaxed) == kNone) {
      found->held.push_back(c);
    } else {
      found->leaving.push_back({c, core.revoked_ns.load(std::memory_order_relaxed)});
    }
  }
}

}  // namespace veltair::ipc
