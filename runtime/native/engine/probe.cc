#include "native/engine/probe.h"

#include <immintrin.h>

#include <atomic>

#include "native/engine/clock.h"

namespace veltair::engine {
namespace {

int do_nothing(int, ParallelEnv*, void*) { return 0; }

// Ends only when every task has begun, so each must be on a core of its own.
int meet(int, ParallelEnv* env, void* data) {
  auto& begun = *static_cast<std::atomic<int>*>(data);
  begun.fetch_add(1);
  while (begun.load() < env->num_task) _mm_pause();
  return 0;
}

}  // namespace

void time_empty_launches(Gang& gang, int num_task, std::span<int64_t> launch_ns) {
  const Gang::Leader leader(gang);
  for (int warm = 0; warm < 100; ++warm) gang.launch(do_nothing, nullptr, num_task);
  for (int64_t& ns : launch_ns) {
    const int64_t begin_ns = now_ns();
    gang.launch(do_nothing, nullptr, num_task);
    ns = now_ns() - begin_ns;
  }
}

void time_wake_ups(Gang& gang, int64_t sleep_ns, std::span<int64_t> wake_ns) {
  const Gang::Leader leader(gang);
  for (int64_t& ns : wake_ns) {
    const int64_t ready_ns = now_ns() + sleep_ns;
    while (now_ns() < ready_ns) _mm_pause();
    std::atomic<int> begun{0};
    const int64_t begin_ns = now_ns();
    gang.launch(meet, &begun, gang.granted());
    ns = now_ns() - begin_ns;
  }
}

}  // namespace veltair::engine
