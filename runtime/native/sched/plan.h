// What block policies work out beforehand from a profile, so that deciding only looks up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/sched/profile.h"

namespace veltair::sched {

// Between which levels something lies: `part` of the way from `level` to the next.
struct Place {
  int32_t level = 0;
  double part = 0;
};

// Where a slow-down lies among those of the levels, which ascend from 0; at the last where it is
// above it. Without levels: at level 0.
Place place_of(const std::vector<double>& levels, double slowdown);

// One model on a machine of a given size: shares of the target, core demands, times of any run of
// consecutive layers on any number of cores.
//
// A layer's share of the target is in proportion to its floating-point operations where the profile
// has them, and to its profiled time otherwise. On each number of cores and at each interference
// level a layer runs the variant that is fastest there, or one as fast of shorter tasks.
//
// Differs from the profile's tables: layer times are scaled by one factor per core count and level,
// so that they add up to the measured time of a whole run; counts between the measured ones are
// interpolated (see `interpolated`).
//
// Ownership: owns its tables. Thread-safety: immutable.
class ModelPlan {
 public:
  // `versions`: the level whose variants run at every level; kOwnVersions: each level's own.
  static constexpr int32_t kOwnVersions = -1;
  ModelPlan(const ModelProfile& profile, int32_t total_cores, int32_t versions = kOwnVersions);

  int32_t layers() const { return layers_; }
  int32_t levels() const { return levels_; }
  int32_t total_cores() const { return total_cores_; }
  int32_t priority() const { return priority_; }
  // The target; where the model has none, its shortest profiled time.
  int64_t target_ns() const { return share_ns_.back(); }
  bool has_target() const { return need_ != CoreNeed::kNoTarget; }
  // What layers [begin, end) may take.
  int64_t share_ns(int32_t begin, int32_t end) const { return share_ns_[end] - share_ns_[begin]; }
  // What layers [begin, end) take on `cores`, from 1 to total_cores.
  int64_t time_ns(int32_t begin, int32_t end, int32_t cores, int32_t level) const {
    const int64_t* row = row_of(cores, level);
    return row[end] - row[begin];
  }
  // The time of all these cores.
  double core_ns(int32_t begin, int32_t end, int32_t cores, int32_t level) const {
    return static_cast<double>(cores) * static_cast<double>(time_ns(begin, end, cores, level));
  }
  // What they read from memory; 0 where the profile doesn't say.
  int64_t bytes(int32_t begin, int32_t end, int32_t cores, int32_t level) const {
    if (bytes_.empty()) return 0;
    const int64_t* row = bytes_.data() + row_index(cores, level);
    return row[end] - row[begin];
  }
  // Cores of the whole model: the paper's Avg_C (`needed_cores` at level 0).
  int32_t average_cores(int32_t level) const { return average_cores_[clamped(level)]; }
  // Cores of one layer for its share.
  int32_t demand(int32_t layer, int32_t level) const {
    return demand_[static_cast<size_t>(clamped(level)) * layers_ + layer];
  }
  // The fewest measured cores on which layers [begin, end) take at most `budget_ns`; all where none
  // does.
  int32_t cores_for(int32_t begin, int32_t end, int64_t budget_ns, int32_t level) const;
  // Whether there is such a count.
  bool reaches(int32_t begin, int32_t end, int64_t budget_ns, int32_t level) const;
  // The measured count of at most `limit` on which layers [begin, end) are fastest; `limit` where
  // even the smallest measured count is above it.
  int32_t fastest_cores(int32_t begin, int32_t end, int32_t limit, int32_t level) const;
  // The largest measured count of at most `limit` that uses the cores' time for layers [begin, end)
  // at least `percent` as well as the smallest one does; `limit` where that is above it.
  int32_t efficient_cores(int32_t begin, int32_t end, int32_t limit, int32_t level,
                          int32_t percent) const;
  // The measured count with the least time of cores for layers [begin, end) among those on which
  // they take at most `longest_ns` and that are `limit` at most; more than `wanted` cores if they
  // cost no more, fewer only if they save at least 5 %. `wanted` where that is above `limit`.
  int32_t cheapest_cores(int32_t begin, int32_t end, int32_t wanted, int64_t longest_ns,
                         int32_t limit, int32_t level) const;
  // The end of the longest run of layers from `begin` that takes at most `limit_ns`, one layer at
  // least.
  int32_t cut(int32_t begin, int32_t end, int32_t cores, int32_t level, int64_t limit_ns) const;
  // On `cores`, from 1 to total_cores.
  uint16_t variant(int32_t layer, int32_t cores, int32_t level) const {
    const size_t row = static_cast<size_t>(clamped(level)) * total_cores_ + (cores - 1);
    return variants_[row * layers_ + layer];
  }
  // The level of a view (`View::level`, `View::slowdown`) as one of the profile's: the nearest to
  // what was measured, the lower of two. The slow-down is in millionths.
  int32_t level(int32_t index, int32_t slowdown) const;
  // Where a slow-down lies between the profile's levels.
  Place place(double slowdown) const { return place_of(slowdowns_, slowdown); }
  // `time_ns` and `bytes` there, linear between levels.
  double time_at(int32_t begin, int32_t end, int32_t cores, const Place& place) const;
  double bytes_at(int32_t begin, int32_t end, int32_t cores, const Place& place) const;
  // A level that the profile doesn't have is its highest.
  int32_t clamped(int32_t level) const { return level < levels_ ? level : levels_ - 1; }

 private:
  size_t row_index(int32_t cores, int32_t level) const {
    return (static_cast<size_t>(clamped(level)) * total_cores_ + (cores - 1)) * (layers_ + 1);
  }
  const int64_t* row_of(int32_t cores, int32_t level) const {
    return times_ns_.data() + row_index(cores, level);
  }
  // The first measured count that keeps the budget, or 0.
  int32_t first_within(int32_t begin, int32_t end, int64_t budget_ns, int32_t level) const;
  void choose_variants(const ModelProfile& profile, int32_t versions);
  void fill_times(const ModelProfile& profile);
  void fill_bytes(const ModelProfile& profile);
  void fill_shares(const ModelProfile& profile, int64_t target_ns);

  int32_t layers_;
  int32_t levels_;
  int32_t total_cores_;
  int32_t priority_;
  CoreNeed need_ = CoreNeed::kNoTarget;
  std::vector<double> slowdowns_;       // [levels], or empty
  std::vector<int32_t> counts_;         // measured, at most total_cores; never empty
  std::vector<int64_t> share_ns_;       // [layers + 1], summed from the front
  std::vector<int64_t> times_ns_;       // [levels][total_cores][layers + 1], summed from the front
  std::vector<int64_t> bytes_;          // as times_ns_, or empty
  std::vector<uint16_t> variants_;      // [levels][total_cores][layers]
  std::vector<int32_t> demand_;         // [levels][layers]
  std::vector<int32_t> average_cores_;  // [levels]
};

// One row of times by core count, read at any count: linear between measured counts, constant
// beyond the largest, and below the smallest as if the speed-up up to it were perfect (time x cores
// is constant), which is the most favourable that a few cores can be.
//
// `time_at(i)` is the time on the i-th measured count.
template <typename TimeAt>
int64_t interpolated(const std::vector<int32_t>& counts, int32_t cores, TimeAt time_at) {
  if (cores <= counts.front()) {
    return static_cast<int64_t>(static_cast<double>(time_at(0)) * counts.front() / cores);
  }
  const auto i =
      static_cast<size_t>(std::lower_bound(counts.begin(), counts.end(), cores) - counts.begin());
  if (i == counts.size()) return time_at(i - 1);
  const double part = static_cast<double>(cores - counts[i - 1]) / (counts[i] - counts[i - 1]);
  return static_cast<int64_t>(static_cast<double>(time_at(i - 1)) * (1 - part) +
                              static_cast<double>(time_at(i)) * part);
}

// The latency model: what one layer takes by one of its variants on any number of cores, beside
// what slows the reference kernel by `slowdown`. Core counts are read as `interpolated` has them.
// Levels are linear in between; a slow-down above the highest that was measured is taken for that
// one, since nothing says how a layer goes on. Throws std::invalid_argument where the profile has
// several levels and doesn't say which slow-downs they are, or what is asked isn't in the model.
int64_t latency_ns(const ModelProfile& profile, int32_t layer, int32_t variant, int32_t cores,
                   double slowdown);

// The same profile with other core counts and, unless `slowdowns` is empty, other levels, by the
// latency model.
ModelProfile resampled(const ModelProfile& profile, const std::vector<int32_t>& cores,
                       const std::vector<double>& slowdowns = {});

}  // namespace veltair::sched
