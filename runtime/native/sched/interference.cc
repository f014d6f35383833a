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

OthersCores others_cores(const View& view, int32_t worker, int64_t now_ns) {
  OthersCores cores;
  for (int32_t w : *view.busy) {
    if (w == worker) continue;
    const Running& running = view.workers[w];
    cores.held += running.cores_held;
    if (!soon_to_finish(running, now_ns)) cores.disturbing += running.cores_held;
  }
  return cores;
}

Level OccupancyInterference::level(const View& view, const Asker& asker, int64_t now_ns) const {
  const int32_t cores = others_cores(view, asker.worker, now_ns).disturbing;
  return {.index = cores * (levels_ - 1) / std::max(view.total_cores, 1)};
}

Level MeasuredInterference::level(const View& view, const Asker& asker, int64_t now_ns) const {
  Measured measured = complexes_[asker.complex].load();
  if (!measured.is_known(now_ns)) measured = node_.load();
  if (!measured.is_known(now_ns)) return {.index = otherwise_};
  const OthersCores cores = others_cores(view, asker.worker, now_ns);
  if (cores.held == 0) return {.index = otherwise_, .slowdown = measured.slowdown};
  const int64_t left = int64_t{measured.slowdown} * cores.disturbing / cores.held;
  return {.index = otherwise_, .slowdown = static_cast<int32_t>(left)};
}

}  // namespace veltair::sched
