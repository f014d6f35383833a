// How long blocks take now for what their profiles predict.
#pragma once

#include <cstdint>

#include "native/sched/view.h"

namespace veltair::sched {

// What a predicted time is at this pace.
int64_t at_pace(int64_t predicted_ns, int32_t pace);

// The part of a time that is left for predicted ones at this pace: the inverse.
double per_pace(double time_ns, int32_t pace);

// The pace after a block that ends now, as its worker's record has it.
//
// It follows the blocks of the last 50 ms of predicted time, whoever ran them, so that it tells of
// the machine: of clocks, of neighbours on the same host, of a profile that was measured in other
// circumstances. Blocks without a prediction, and those whose cores changed amid them, say nothing.
int32_t next_pace(int32_t pace, const Running& ended, int64_t now_ns);

// The pace to decide by. While nothing runs nothing tells of it, and what was slow need not be any
// more: then it is as predicted. Otherwise a pace at which all queries are late would stay for
// ever, since none would run that could tell of another.
inline int32_t present_pace(int32_t pace, bool runs) { return runs ? pace : kAsPredicted; }

}  // namespace veltair::sched
