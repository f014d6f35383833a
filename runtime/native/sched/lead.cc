#include "native/sched/lead.h"

#include <algorithm>

#include "native/sched/view.h"

namespace veltair::sched {
namespace {

// Of those that may be late, the thousandths of all for each percent that it settles at: four
// fifths. Lateness that holds the share at the limit itself would have it beyond the limit half of
// the time.
constexpr int32_t kAim = 8;
// For each thousandth of a query beyond those. Where 5 of 100 may be late, five late ones in a row
// raise it by nearly a whole target, and 125 in time lower it by one.
constexpr int32_t kGain = 200;
// The mean is of about as many queries.
constexpr int32_t kQueries = 64;

}  // namespace

void count_query(int32_t& lateness, int32_t& mean, bool is_late, int32_t late_percent) {
  if (late_percent == kNone || late_percent >= 100) {
    lateness = mean = 0;
    return;
  }
  const int32_t beyond = (is_late ? 1000 : 0) - kAim * late_percent;
  lateness = std::clamp(lateness + kGain * beyond, 0, kWholeTarget);
  mean += (lateness - mean) / kQueries;
}

int64_t lead_ns(int32_t lateness, int32_t mean, int64_t target_ns) {
  const int32_t lead = std::max(lateness - mean, 0);
  return target_ns / kWholeTarget * lead + target_ns % kWholeTarget * lead / kWholeTarget;
}

}  // namespace veltair::sched
