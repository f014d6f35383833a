// The engine's clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace veltair::engine {

// Monotonic time in nanoseconds. Thread-safe.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace veltair::engine
