#include "native/ipc/null_executor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "native/ipc/client.h"

namespace veltair::ipc {
namespace {

std::vector<std::vector<sched::ModelPlan>> make_plans(
    const std::vector<sched::ModelProfile>& profiles, int32_t total_cores) {
  std::vector<std::vector<sched::ModelPlan>> plans;
  for (const sched::ModelProfile& profile : profiles) {
    std::vector<sched::ModelPlan>& rows = plans.emplace_back();
    for (int32_t level = 0; level < profile.levels; ++level) {
      rows.emplace_back(profile, total_cores, level);
    }
  }
  return plans;
}

std::vector<sched::BlockTimes> make_times(const std::vector<sched::ModelProfile>& profiles,
                                          int32_t total_cores) {
  std::vector<sched::BlockTimes> times;
  times.reserve(profiles.size());
  for (const sched::ModelProfile& profile : profiles) times.emplace_back(profile, total_cores);
  return times;
}

}  // namespace

NullExecutor::NullExecutor(std::shared_ptr<Segment> segment,
                           const std::vector<sched::ModelProfile>& profiles)
    : segment_(std::move(segment)),
      plans_(make_plans(profiles, segment_->header().geometry.n_cores)),
      times_(make_times(profiles, segment_->header().geometry.n_cores)) {}

void NullExecutor::begin(int32_t model, int32_t /*slot*/) {
  const std::scoped_lock lock(mutex_);
  model_ = model;
}

void NullExecutor::set_cores(std::span<const int32_t> cores) {
  const std::scoped_lock lock(mutex_);
  settle(monotonic_ns());
  cores_ = static_cast<int32_t>(cores.size());
  changed_.notify_all();
}

// A sleeping block lets its cores go at once.
bool NullExecutor::in_use(int32_t /*core*/) const { return false; }

int64_t NullExecutor::whole_ns() const {
  const auto& plans = plans_[model_];
  const int32_t level = plans.front().clamped(level_);
  if (slowdown_ != kNone) {
    // In the versions for as many cores, which it always has.
    const sched::ExpectedBlock block =
        times_[model_]
            .expected(layers_.begin, layers_.end, level, cores_, cores_)
            .value_or(sched::ExpectedBlock{});
    return std::max<int64_t>(block.at(slowdown_), 1);
  }
  return std::max<int64_t>(plans[level].time_ns(layers_.begin, layers_.end, cores_, level), 1);
}

void NullExecutor::settle(int64_t now_ns) {
  if (left_ > 0) {
    left_ -= static_cast<double>(now_ns - settled_ns_) / static_cast<double>(whole_ns());
  }
  settled_ns_ = now_ns;
}

void NullExecutor::run(int32_t model, engine::LayerRange layers, int32_t /*cores*/, int32_t level) {
  std::unique_lock lock(mutex_);
  model_ = model;
  layers_ = layers;
  level_ = level;
  slowdown_ = segment_->header().emulated_slowdown.load(std::memory_order_relaxed);
  left_ = 1;
  settled_ns_ = monotonic_ns();
  while (left_ > 0) {
    const auto left_ns = static_cast<int64_t>(left_ * static_cast<double>(whole_ns()));
    changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
    settle(monotonic_ns());
  }
}

}  // namespace veltair::ipc
