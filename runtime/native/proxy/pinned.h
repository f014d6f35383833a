// Threads that stay on one cpu.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <stdexcept>
#include <string>

namespace veltair::proxy {

// Pins the calling thread. Throws std::invalid_argument for a cpu that the process can't use.
inline void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof set, &set) != 0) {
    throw std::invalid_argument("cpu " + std::to_string(cpu) + " can't be used by this process");
  }
}

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
