#include "native/sim/shared_memory.h"

#include <algorithm>
#include <limits>

#include "native/sched/interference.h"
#include "native/sim/normal.h"

namespace veltair::sim {

int32_t SharedMemory::told_of(double slowdown, uint64_t draw) const {
  if (!told) return 0;
  if (error > 0) slowdown += error * normal(draw);
  const double most = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::clamp(slowdown * sched::kMillion, 0.0, most));
}

}  // namespace veltair::sim
