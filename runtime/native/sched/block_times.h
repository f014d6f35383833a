// How long blocks take alone, and how much longer for each slow-down of the reference kernel: what
// a block that has ended is compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "native/sched/profile.h"

namespace veltair::sched {

// A block by its profile.
struct ExpectedBlock {
  int64_t alone_ns = 0;
  // By how much it is longer at a slow-down of 1, as if it grew evenly up to the profile's highest
  // level. 0 where the profile has no other level.
  int64_t sensitivity_ns = 0;

  int64_t at(int32_t slowdown_millionths) const;
};

// One model on a machine of a given size. The times are those of `ModelPlan`.
//
// Ownership: owns its tables. Thread-safety: immutable.
class BlockTimes {
 public:
  BlockTimes(const ModelProfile& profile, int32_t total_cores);

  // Layers [begin, end) in the versions for `wanted` cores at `level`, on `running` cores. Nothing
  // where other versions would be chosen for so many cores: they have no times here.
  std::optional<ExpectedBlock> expected(int32_t begin, int32_t end, int32_t level, int32_t wanted,
                                        int32_t running) const;
  // The slow-down that the profile's highest level is; 0 where that isn't known.
  double highest_slowdown() const { return highest_; }

 private:
  size_t row(int32_t level, int32_t cores) const {
    return static_cast<size_t>(level) * total_cores_ + (cores - 1);
  }

  const int32_t layers_;
  const int32_t levels_;
  const int32_t total_cores_;
  const double highest_;
  std::vector<uint16_t> variants_;  // [levels][total_cores][layers]
  // Of these versions, [levels][total_cores][layers + 1], summed from the front.
  std::vector<int64_t> alone_ns_;
  std::vector<int64_t> loaded_ns_;  // at the highest level; empty where there is one
};

}  // namespace veltair::sched
