// Waiting on a 32-bit atomic of this process without a mutex.
//
// std::atomic::wait would do the same through a table shared by the whole process and spins as it
// sees fit; here the caller decides how long to spin.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace veltair::engine {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Sleeps while `word` holds `expected`; may return early, so callers look again. Thread-safe.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

// Wakes at most `count` threads that sleep on `word`. Thread-safe.
inline void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace veltair::engine
