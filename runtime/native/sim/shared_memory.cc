#include "native/sim/shared_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "native/sched/interference.h"

namespace veltair::sim {
namespace {

// Of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a number's place in an even sequence, mixed.
double uniform(uint64_t number) {
  uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  mixed ^= mixed >> 31;
  return (static_cast<double>(mixed >> 11) + 0.5) * 0x1p-53;
}

// Standard normal, by Box and Muller.
double normal(uint64_t draw) {
  const double angle = 2 * std::numbers::pi * uniform(2 * draw + 1);
  return std::sqrt(-2 * std::log(uniform(2 * draw))) * std::cos(angle);
}

}  // namespace

int32_t SharedMemory::told_of(double slowdown, uint64_t draw) const {
  if (!told) return 0;
  if (error > 0) slowdown += error * normal(draw);
  const double most = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::clamp(slowdown * sched::kMillion, 0.0, most));
}

}  // namespace veltair::sim
