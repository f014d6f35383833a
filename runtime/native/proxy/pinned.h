// Threads that stay on one cpu, or on some.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <span>
#include <stdexcept>
#include <string>

namespace veltair::proxy {

// Keeps the calling thread on some cpus. Throws std::invalid_argument for one that the process
// can't use.
inline void pin_to(std::span<const int> cpus) {
  cpu_set_t set;
  for (const int cpu : cpus) {  // each by itself: of several, Linux leaves out what can't be used
    CPU_ZERO(&set);
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
      throw std::invalid_argument("cpu " + std::to_string(cpu) + " can't be used by this process");
    }
  }
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

inline void pin_to(int cpu) { pin_to(std::span<const int>(&cpu, 1)); }

// Pins the calling thread until its destruction, by the same thread.
class Pinned {
 public:
  explicit Pinned(int cpu) {
    pthread_getaffinity_np(pthread_self(), sizeof before_, &before_);
    pin_to(cpu);
  }
  ~Pinned() { pthread_setaffinity_np(pthread_self(), sizeof before_, &before_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_{};
};

}  // namespace veltair::proxy
