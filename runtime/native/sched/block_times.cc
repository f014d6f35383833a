#include "native/sched/block_times.h"

#include <algorithm>
#include <cmath>

#include "native/sched/plan.h"

namespace veltair::sched {
namespace {

constexpr double kMillion = 1e6;

}  // namespace

int64_t ExpectedBlock::at(int32_t slowdown_millionths) const {
  return alone_ns +
         static_cast<int64_t>(static_cast<double>(sensitivity_ns) * slowdown_millionths / kMillion);
}

BlockTimes::BlockTimes(const ModelProfile& profile, int32_t total_cores)
    : layers_(profile.layers()),
      levels_(profile.levels),
      total_cores_(total_cores),
      highest_(profile.slowdowns.empty() ? 0 : profile.slowdowns.back()) {
  for (int32_t level = 0; level < levels_; ++level) {
    const ModelPlan plan(profile, total_cores, level);
    for (int32_t cores = 1; cores <= total_cores; ++cores) {
      for (int32_t l = 0; l < layers_; ++l) variants_.push_back(plan.variant(l, cores, level));
      for (int32_t l = 0; l <= layers_; ++l) {
        alone_ns_.push_back(plan.time_ns(0, l, cores, 0));
        if (highest_ > 0) loaded_ns_.push_back(plan.time_ns(0, l, cores, levels_ - 1));
      }
    }
  }
}

std::optional<ExpectedBlock> BlockTimes::expected(int32_t begin, int32_t end, int32_t level,
                                                  int32_t wanted, int32_t running) const {
  const int32_t known = std::clamp(level, 0, levels_ - 1);
  const size_t row_running = row(known, running);
  if (wanted != running) {
    const auto* chosen = variants_.data() + row(known, wanted) * layers_;
    const auto* others = variants_.data() + row_running * layers_;
    if (!std::equal(chosen + begin, chosen + end, others + begin)) return std::nullopt;
  }
  const size_t first = row_running * (layers_ + 1);
  ExpectedBlock block{.alone_ns = alone_ns_[first + end] - alone_ns_[first + begin]};
  if (highest_ > 0) {
    const int64_t longer_ns = loaded_ns_[first + end] - loaded_ns_[first + begin] - block.alone_ns;
    // A profile's noise can make a block that nothing disturbs seem faster beside others.
    block.sensitivity_ns = std::llround(std::max(static_cast<double>(longer_ns), 0.0) / highest_);
  }
  return block;
}

}  // namespace veltair::sched
