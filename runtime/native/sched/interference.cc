#include "native/sched/interference.h"

#include <algorithm>

namespace veltair::sched {
namespace {

constexpr int64_t kSoonParts = 10;

}  // namespace

bool soon_to_finish(const Running& running, int64_t now_ns) {
  if (running.block_expected_ns <= 0 || running.cores_held <= 0) return false;
  const int64_t wanted = std::max(running.cores_wanted, running.cores_held);
  const int64_t expected_ns = running.block_expected_ns * wanted / running.cores_held;
  const int64_t left_ns = running.block_started_ns + expected_ns - now_ns;
  return left_ns <= expected_ns / kSoonParts;
}

int32_t disturbing_cores(const View& view, int32_t worker, int64_t now_ns) {
  int32_t cores = 0;
  for (int32_t w = 0; w < view.workers.size(); ++w) {
    const Running& running = view.workers[w];
    if (w == worker || running.task == kNone || soon_to_finish(running, now_ns)) continue;
    cores += running.cores_held;
  }
  return cores;
}

int32_t OccupancyInterference::level(const View& view, int32_t worker, int64_t now_ns) const {
  return disturbing_cores(view, worker, now_ns) * (levels_ - 1) / std::max(view.total_cores, 1);
}

}  // namespace veltair::sched
