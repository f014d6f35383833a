// How a caller ends a simulation that is under way.
#pragma once

#include <cstdint>
#include <functional>

namespace veltair::sim {

// Called now and then by a simulation's loop, on its thread; what it throws ends the run.
using Look = std::function<void()>;

// Events between two looks: some milliseconds, even where decisions are slow.
inline constexpr int64_t kLookEvery = 4096;

}  // namespace veltair::sim
