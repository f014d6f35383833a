#include "native/sched/lead.h"

#include <algorithm>

#include "native/sched/view.h"

namespace veltair::sched {
namespace {

// For each hundredth of a query beyond those that may be late. Where 5 of 100 may be, five late
// ones in a row raise it by nearly a whole target, and a hundred in time lower it by one.
constexpr int32_t kGain = 2'000;
// The mean is of about as many queries.
constexpr int32_t kQueries = 64;

}  // namespace

void count_query(int32_t& lateness, int32_t& mean, bool is_late, int32_t late_percent) {
  if (late_percent == kNone) {
    lateness = mean = 0;
    return;
  }
  const int32_t beyond_percent = (is_late ? 100 : 0) - late_percent;
  lateness = std::clamp(lateness + kGain * beyond_percent, 0, kWholeTarget);
  mean += (lateness - mean) / kQueries;
}

int64_t lead_ns(int32_t lateness, int32_t mean, int64_t target_ns) {
  const int32_t lead = std::max(lateness - mean, 0);
  return target_ns / kWholeTarget * lead + target_ns % kWholeTarget * lead / kWholeTarget;
}

}  // namespace veltair::sched
