// Random numbers that depend on nothing but their number, so that a run can be repeated.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace veltair::sim {

// Of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a number's place in an even sequence, mixed.
inline double uniform(uint64_t number) {
  uint64_t mixed = (number + 1) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  mixed ^= mixed >> 31;
  return (static_cast<double>(mixed >> 11) + 0.5) * 0x1p-53;
}

// Standard normal, by Box and Muller.
inline double normal(uint64_t draw) {
  const double angle = 2 * std::numbers::pi * uniform(2 * draw + 1);
  return std::sqrt(-2 * std::log(uniform(2 * draw))) * std::cos(angle);
}

}  // namespace veltair::sim
