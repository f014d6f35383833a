#include "native/sched/admission.h"

#include <algorithm>

namespace veltair::sched {

void Backlog::add(int64_t task_ns, int64_t task_cores) {
  time_ns += task_ns;
  longest_ns = std::max(longest_ns, task_ns);
  core_ns += task_ns * task_cores;
  longest_core_ns = std::max(longest_core_ns, task_ns * task_cores);
}

Admission admit(const Backlog& backlog, int64_t service_ns, int64_t deadline_ns, int64_t now_ns) {
  const int64_t workers = std::max<int64_t>(backlog.workers, 1);
  const int64_t cores = std::max<int64_t>(backlog.cores, 1);
  const int64_t others = std::min(workers, cores) - 1;
  const int64_t by_workers = (backlog.time_ns - others * backlog.longest_ns) / workers;
  const int64_t by_cores = (backlog.core_ns - others * backlog.longest_core_ns) / cores;
  const int64_t wait_ns = std::max<int64_t>({by_workers, by_cores, 0});
  const int64_t end_ns = now_ns + wait_ns + service_ns;
  return {deadline_ns == 0 || end_ns <= deadline_ns, end_ns};
}

}  // namespace veltair::sched
