#include "native/sched/plan.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace veltair::sched {
namespace {

// Variants this near to the fastest are as fast. Among them the shortest tasks decide, down to a
// length: a core leaves, or joins, at the end of a task. (The compiler's selection has the same
// rule.)
constexpr double kAsFast = 1.03;
constexpr int64_t kShortTaskNs = 100'000;
// What a slower choice of cores has to take of the time of cores, to be worth it.
constexpr double kWorthSlower = 0.95;

uint16_t best_variant(const ModelProfile& profile, int32_t layer, int32_t cores, int32_t level) {
  const auto time_on = [&](int32_t variant, int32_t count) {
    return interpolated(profile.cores, count, [&](size_t i) {
      return profile.layer_time(layer, variant, static_cast<int32_t>(i), level);
    });
  };
  const int32_t variants = profile.variants[layer];
  int64_t fastest_ns = time_on(0, cores);
  for (int32_t v = 1; v < variants; ++v) fastest_ns = std::min(fastest_ns, time_on(v, cores));
  const auto limit_ns = static_cast<int64_t>(kAsFast * static_cast<double>(fastest_ns));
  std::pair<int64_t, int64_t> best{INT64_MAX, INT64_MAX};  // of its task, of its layer
  int32_t found = 0;
  for (int32_t v = 0; v < variants; ++v) {
    const int64_t time_ns = time_on(v, cores);
    // Where tasks aren't known all are alike, and the fastest is found.
    const int64_t task_ns = std::max(profile.task_time(layer, v, time_on(v, 1)), kShortTaskNs);
    if (time_ns > limit_ns || std::pair(task_ns, time_ns) >= best) continue;
    best = {task_ns, time_ns};
    found = v;
  }
  return static_cast<uint16_t>(found);
}

Place known_place(const ModelProfile& profile, double slowdown) {
  if (!(slowdown >= 0)) throw std::invalid_argument("a slow-down is from 0");
  if (profile.levels > 1 && profile.slowdowns.empty()) {
    throw std::invalid_argument("the profile has several levels and no slow-downs of them");
  }
  return place_of(profile.slowdowns, slowdown);
}

// `time_at(i, level)` is the time on the i-th measured count.
template <typename TimeAt>
int64_t latency_at(const ModelProfile& profile, int32_t cores, const Place& place, TimeAt time_at) {
  const auto at_level = [&](int32_t level) {
    return interpolated(profile.cores, cores,
                        [&](size_t i) { return time_at(static_cast<int32_t>(i), level); });
  };
  const int64_t below_ns = at_level(place.level);
  if (place.part == 0) return below_ns;
  const int64_t above_ns = at_level(place.level + 1);
  return below_ns + std::llround(place.part * static_cast<double>(above_ns - below_ns));
}

}  // namespace

Place place_of(const std::vector<double>& levels, double slowdown) {
  const auto after = std::upper_bound(levels.begin(), levels.end(), slowdown);
  const auto level = std::max<int32_t>(static_cast<int32_t>(after - levels.begin()) - 1, 0);
  if (after == levels.begin() || after == levels.end()) return {.level = level, .part = 0};
  return {.level = level, .part = (slowdown - *(after - 1)) / (*after - *(after - 1))};
}

ModelPlan::ModelPlan(const ModelProfile& profile, int32_t total_cores, int32_t versions)
    : layers_(profile.layers()),
      levels_(profile.levels),
      total_cores_(total_cores),
      priority_(profile.priority),
      slowdowns_(profile.slowdowns) {
  for (int32_t count : profile.cores) {
    if (count <= total_cores) counts_.push_back(count);
  }
  if (counts_.empty()) counts_.push_back(total_cores);
  const NeededCores needed = needed_cores(profile, total_cores);
  need_ = needed.need;
  choose_variants(profile, versions);
  fill_times(profile);
  if (!profile.layer_bytes.empty()) fill_bytes(profile);
  fill_shares(profile, profile.qos_ns > 0 ? profile.qos_ns : needed.expected_ns);
  average_cores_.push_back(needed.cores);
  for (int32_t level = 1; level < levels_; ++level) {
    average_cores_.push_back(cores_for(0, layers_, target_ns(), level));
  }
  for (int32_t level = 0; level < levels_; ++level) {
    for (int32_t l = 0; l < layers_; ++l) {
      demand_.push_back(cores_for(l, l + 1, share_ns(l, l + 1), level));
    }
  }
}

int32_t ModelPlan::level(int32_t index, int32_t slowdown) const {
  if (slowdown < 0 || slowdowns_.empty()) return clamped(index);
  const double measured = slowdown / 1e6;
  int32_t nearest = 0;
  for (int32_t l = 1; l < levels_; ++l) {
    if (std::abs(slowdowns_[l] - measured) < std::abs(slowdowns_[nearest] - measured)) nearest = l;
  }
  return nearest;
}

void ModelPlan::choose_variants(const ModelProfile& profile, int32_t versions) {
  const int32_t chosen = versions == kOwnVersions ? levels_ : 1;
  for (int32_t each = 0; each < chosen; ++each) {
    const int32_t level = versions == kOwnVersions ? each : clamped(versions);
    for (int32_t cores = 1; cores <= total_cores_; ++cores) {
      for (int32_t l = 0; l < layers_; ++l) {
        variants_.push_back(best_variant(profile, l, cores, level));
      }
    }
  }
  const auto same = static_cast<ptrdiff_t>(variants_.size());
  variants_.reserve(static_cast<size_t>(levels_) * total_cores_ * layers_);
  for (int32_t level = chosen; level < levels_; ++level) {
    variants_.insert(variants_.end(), variants_.begin(), variants_.begin() + same);
  }
}

void ModelPlan::fill_times(const ModelProfile& profile) {
  for (int32_t level = 0; level < levels_; ++level) {
    for (int32_t cores = 1; cores <= total_cores_; ++cores) {
      const auto layer_ns = [&](int32_t layer, int32_t variant) {
        return interpolated(profile.cores, cores, [&](size_t i) {
          return profile.layer_time(layer, variant, static_cast<int32_t>(i), level);
        });
      };
      int64_t sum_ns = 0;
      for (int32_t l = 0; l < layers_; ++l) sum_ns += layer_ns(l, 0);
      const int64_t whole_ns = interpolated(profile.cores, cores, [&](size_t i) {
        return profile.model_time(static_cast<int32_t>(i), level);
      });
      double scale = 1.0;
      if (sum_ns > 0 && whole_ns > 0) {
        scale = static_cast<double>(whole_ns) / static_cast<double>(sum_ns);
      }
      double end_ns = 0;
      times_ns_.push_back(0);
      for (int32_t l = 0; l < layers_; ++l) {
        end_ns += scale * static_cast<double>(layer_ns(l, variant(l, cores, level)));
        times_ns_.push_back(std::llround(end_ns));
      }
    }
  }
}

void ModelPlan::fill_bytes(const ModelProfile& profile) {
  for (int32_t level = 0; level < levels_; ++level) {
    for (int32_t cores = 1; cores <= total_cores_; ++cores) {
      int64_t sum = 0;
      bytes_.push_back(0);
      for (int32_t l = 0; l < layers_; ++l) {
        const int32_t read_by = variant(l, cores, level);
        const auto nearest = std::lower_bound(counts_.begin(), counts_.end(), cores);
        const auto i = std::min<ptrdiff_t>(nearest - counts_.begin(),
                                           static_cast<ptrdiff_t>(counts_.size()) - 1);
        sum += profile.bytes_read(l, read_by, static_cast<int32_t>(i), level);
        bytes_.push_back(sum);
      }
    }
  }
}

double ModelPlan::time_at(int32_t begin, int32_t end, int32_t cores, const Place& place) const {
  const auto below = static_cast<double>(time_ns(begin, end, cores, place.level));
  if (place.part == 0) return below;
  const auto above = static_cast<double>(time_ns(begin, end, cores, place.level + 1));
  return below + place.part * (above - below);
}

double ModelPlan::bytes_at(int32_t begin, int32_t end, int32_t cores, const Place& place) const {
  const auto below = static_cast<double>(bytes(begin, end, cores, place.level));
  if (place.part == 0) return below;
  const auto above = static_cast<double>(bytes(begin, end, cores, place.level + 1));
  return below + place.part * (above - below);
}

void ModelPlan::fill_shares(const ModelProfile& profile, int64_t target_ns) {
  std::vector<double> weights;
  double sum = 0;
  const int32_t reference = counts_.front();
  for (int32_t l = 0; l < layers_; ++l) {
    const bool known = !profile.layer_flops.empty();
    weights.push_back(
        static_cast<double>(known ? profile.layer_flops[l] : time_ns(l, l + 1, reference, 0)));
    sum += weights.back();
  }
  double end = 0;
  share_ns_.push_back(0);
  for (int32_t l = 0; l < layers_; ++l) {
    end += sum > 0 ? weights[l] / sum : 1.0 / layers_;
    share_ns_.push_back(std::llround(end * static_cast<double>(target_ns)));
  }
  share_ns_.back() = target_ns;  // the last sum may be a nanosecond off
}

int32_t ModelPlan::first_within(int32_t begin, int32_t end, int64_t budget_ns,
                                int32_t level) const {
  for (int32_t count : counts_) {
    if (time_ns(begin, end, count, level) <= budget_ns) return count;
  }
  return 0;
}

int32_t ModelPlan::cores_for(int32_t begin, int32_t end, int64_t budget_ns, int32_t level) const {
  const int32_t found = first_within(begin, end, budget_ns, level);
  return found > 0 ? found : total_cores_;
}

bool ModelPlan::reaches(int32_t begin, int32_t end, int64_t budget_ns, int32_t level) const {
  return first_within(begin, end, budget_ns, level) > 0;
}

int32_t ModelPlan::fastest_cores(int32_t begin, int32_t end, int32_t limit, int32_t level) const {
  if (counts_.front() > limit) return limit;
  int32_t best = counts_.front();
  for (int32_t count : counts_) {
    if (count > limit) break;
    if (time_ns(begin, end, count, level) < time_ns(begin, end, best, level)) best = count;
  }
  return best;
}

int32_t ModelPlan::efficient_cores(int32_t begin, int32_t end, int32_t limit, int32_t level,
                                   int32_t percent) const {
  const int32_t fewest = counts_.front();
  if (fewest > limit) return limit;
  const double most_ns = core_ns(begin, end, fewest, level) * 100 / percent;
  int32_t most = fewest;
  for (int32_t count : counts_) {
    if (count > limit) break;
    if (core_ns(begin, end, count, level) <= most_ns) most = count;
  }
  return most;
}

int32_t ModelPlan::cheapest_cores(int32_t begin, int32_t end, int32_t wanted, int64_t longest_ns,
                                  int32_t limit, int32_t level) const {
  if (wanted > limit) return wanted;
  int32_t cheapest = wanted;
  double least_ns = core_ns(begin, end, wanted, level);
  double fewer_ns = least_ns * kWorthSlower;
  for (int32_t count : counts_) {
    if (count > limit) break;
    const double taken_ns = core_ns(begin, end, count, level);
    if (count < wanted) {
      if (taken_ns > fewer_ns || time_ns(begin, end, count, level) > longest_ns) continue;
      fewer_ns = taken_ns;
    } else if (taken_ns > least_ns) {
      continue;
    }
    cheapest = count;
    least_ns = taken_ns;
  }
  return cheapest;
}

int32_t ModelPlan::cut(int32_t begin, int32_t end, int32_t cores, int32_t level,
                       int64_t limit_ns) const {
  const int64_t* row = row_of(cores, level);
  const int64_t* after = std::upper_bound(row + begin + 1, row + end + 1, row[begin] + limit_ns);
  return std::clamp(static_cast<int32_t>(after - row) - 1, begin + 1, end);
}

int64_t latency_ns(const ModelProfile& profile, int32_t layer, int32_t variant, int32_t cores,
                   double slowdown) {
  if (layer < 0 || layer >= profile.layers() || variant < 0 || variant >= profile.variants[layer]) {
    throw std::invalid_argument("the model has no such layer or variant");
  }
  if (cores < 1) throw std::invalid_argument("a layer runs on at least one core");
  return latency_at(profile, cores, known_place(profile, slowdown), [&](int32_t i, int32_t level) {
    return profile.layer_time(layer, variant, i, level);
  });
}

ModelProfile resampled(const ModelProfile& profile, const std::vector<int32_t>& cores,
                       const std::vector<double>& slowdowns) {
  if (cores.empty() || *std::min_element(cores.begin(), cores.end()) < 1) {
    throw std::invalid_argument("a profile has core counts from 1");
  }
  std::vector<Place> places;
  places.reserve(std::max(slowdowns.size(), static_cast<size_t>(profile.levels)));
  for (double slowdown : slowdowns) places.push_back(known_place(profile, slowdown));
  for (int32_t level = 0; slowdowns.empty() && level < profile.levels; ++level) {
    places.push_back({.level = level, .part = 0});
  }
  ModelProfile made = profile;
  made.cores = cores;
  made.levels = static_cast<int32_t>(places.size());
  if (!slowdowns.empty()) made.slowdowns = slowdowns;
  made.model_ns.clear();
  made.layer_ns.clear();
  made.layer_bytes.clear();  // between core counts they don't follow the times' rule
  for (int32_t count : cores) {
    for (const Place& place : places) {
      made.model_ns.push_back(latency_at(profile, count, place, [&](int32_t i, int32_t level) {
        return profile.model_time(i, level);
      }));
    }
  }
  for (int32_t l = 0; l < profile.layers(); ++l) {
    for (int32_t v = 0; v < profile.variants[l]; ++v) {
      for (int32_t count : cores) {
        for (const Place& place : places) {
          made.layer_ns.push_back(latency_at(profile, count, place, [&](int32_t i, int32_t level) {
            return profile.layer_time(l, v, i, level);
          }));
        }
      }
    }
  }
  made.finish();
  return made;
}

}  // namespace veltair::sched
