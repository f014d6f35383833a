#include "native/engine/probe.h"

#include <immintrin.h>

#include <atomic>
#include <thread>

#include "native/engine/clock.h"
#include "native/engine/error.h"
#include "native/engine/futex.h"

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

void stay_awake(int64_t ns) {
  const int64_t end_ns = now_ns() + ns;
  while (now_ns() < end_ns) _mm_pause();
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
    stay_awake(sleep_ns);
    std::atomic<int> begun{0};
    const int64_t begin_ns = now_ns();
    gang.launch(meet, &begun, gang.granted());
    ns = now_ns() - begin_ns;
  }
}

void time_system_wake_ups(Gang& gang, int64_t sleep_ns, std::span<int64_t> wake_ns) {
  if (gang.cpus().size() < 2) throw UsageError("wake-ups: the gang needs two cores");
  // Gangs of one core, for their pinning only: each thread leads its own and sleeps by itself.
  Gang here({gang.cpus()[0]}, {.restore_affinity = true});
  Gang there({gang.cpus()[1]});
  const auto rounds = static_cast<uint32_t>(wake_ns.size());
  std::atomic<uint32_t> sent{0};
  std::atomic<uint32_t> seen{0};
  std::thread sleeper([&] {
    const Gang::Leader pinned(there);
    for (uint32_t round = 0; round < rounds; ++round) {
      while (sent.load() == round) futex_wait(sent, round);
      seen.store(round + 1);
    }
  });
  {
    const Gang::Leader pinned(here);
    for (uint32_t round = 0; round < rounds; ++round) {
      stay_awake(sleep_ns);
      const int64_t begin_ns = now_ns();
      sent.store(round + 1);
      futex_wake(sent, 1);
      while (seen.load() != round + 1) _mm_pause();
      wake_ns[round] = now_ns() - begin_ns;
    }
  }
  sleeper.join();
}

}  // namespace veltair::engine
