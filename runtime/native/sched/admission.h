// Admission by deadline: what can't be served in time is refused at once, not served late.
#pragma once

#include <cstdint>

namespace veltair::sched {

// The work ahead of a new query: of tasks that wait, and what is left of those that run, those that
// the policy serves before it. Times are predicted ones at the present pace.
struct Backlog {
  int32_t cores = 0;       // that the server has
  int32_t workers = 0;     // that are alive; each runs one task at a time
  int64_t time_ns = 0;     // sum of the tasks' times
  int64_t longest_ns = 0;  // the longest of them
  int64_t core_ns = 0;     // sum of cores x time
  int64_t longest_core_ns = 0;

  // A task's time, or what is left of it.
  void add(int64_t task_ns, int64_t task_cores);
};

struct Admission {
  bool admitted = true;
  int64_t expected_end_ns = 0;
};

// Whether a query that takes `service_ns` can end by `deadline_ns` (0: none, always admitted).
//
// The expected start is the earliest that serving the backlog first allows: when it begins, at most
// one task on each other worker has still to end, all other work is done, and no more was done than
// all workers and all cores could. So, if the profiles are right and the backlog is what goes
// first, no query is refused that could have been served in time.
Admission admit(const Backlog& backlog, int64_t service_ns, int64_t deadline_ns, int64_t now_ns);

}  // namespace veltair::sched
