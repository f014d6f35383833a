#include "native/sched/pace.h"

#include <algorithm>
#include <cmath>

namespace veltair::sched {
namespace {

constexpr double kMemoryNs = 50e6;
// A block from which the operating system took its cores for a while says nothing of the rest.
constexpr double kLeastRatio = 0.5;
constexpr double kMostRatio = 4.0;

}  // namespace

int64_t at_pace(int64_t predicted_ns, int32_t pace) {
  if (pace == kAsPredicted) return predicted_ns;
  return std::llround(static_cast<double>(predicted_ns) * pace / kAsPredicted);
}

double per_pace(double time_ns, int32_t pace) { return time_ns * kAsPredicted / pace; }

int32_t next_pace(int32_t pace, const Running& ended, int64_t now_ns) {
  if (ended.block_expected_ns < 1 || ended.cores_held != ended.cores_wanted) return pace;
  const auto predicted_ns = static_cast<double>(ended.block_expected_ns);
  const auto took_ns = static_cast<double>(now_ns - ended.block_started_ns);
  const double ratio = std::clamp(took_ns / predicted_ns, kLeastRatio, kMostRatio);
  const double weight = std::min(predicted_ns / kMemoryNs, 1.0);
  return static_cast<int32_t>(std::lround(pace + (ratio * kAsPredicted - pace) * weight));
}

}  // namespace veltair::sched
