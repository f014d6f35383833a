// How far a network's queries go ahead of their deadlines, because too many of them were late.
#pragma once

#include <cstdint>

namespace veltair::sched {

// The most that a network's lateness can be: a whole target, in millionths of it.
inline constexpr int32_t kWholeTarget = 1'000'000;

// Counts a query of a network that has ended. Both latenesses are in millionths of a target.
//
// A late query raises its network's and one in time lowers it, so that it stays where four fifths
// of `late_percent` of 100 are late: it is 0 for a network that keeps its target anyway, where all
// may be late, and while nothing is counted (kNone). `mean` follows those of the networks, each as
// often as it is asked for.
void count_query(int32_t& lateness, int32_t& mean, bool is_late, int32_t late_percent);

// What a query with this target goes ahead by: its network's lateness beyond the mean. Where all
// are late none has fewer late queries than it may, and so none gives way.
int64_t lead_ns(int32_t lateness, int32_t mean, int64_t target_ns);

}  // namespace veltair::sched
