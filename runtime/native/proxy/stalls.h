// The time that the host of a virtual machine takes without saying so.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace veltair::proxy {

// Adds up the time in which a thread ran, as the kernel has it, and got nothing done: the processor
// itself stood still. What the kernel knows of isn't in it: other threads, and the steal that a host
// reports.
class StallCount {
 public:
  // Gaps from here on count; an interrupt is shorter.
  static constexpr int64_t kLeastNs = 300'000;

  // Takes the clock, and the kernel's account of the thread's own time, at one look of many.
  void look(int64_t now_ns, int64_t ran_ns);
  int64_t stalled_ns() const { return stalled_ns_; }

 private:
  struct Look {
    int64_t now_ns;
    int64_t ran_ns;
  };

  std::optional<Look> last_;
  int64_t stalled_ns_ = 0;
};

// The share of `duration_ns` in which each of `cpus` stood still, while a thread on each looked
// without a pause. Throws std::invalid_argument for a cpu that can't be used and for a duration
// below 1 ns.
std::vector<double> stalled_shares(std::span<const int> cpus, int64_t duration_ns);

}  // namespace veltair::proxy
