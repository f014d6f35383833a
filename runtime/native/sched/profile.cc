#include "native/sched/profile.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace veltair::sched {
namespace {

// Sums of a few thousand such times, times a few hundred cores, stay within int64.
constexpr int64_t kLongestNs = 1'000'000'000'000;
constexpr int64_t kMostBytes = int64_t{1} << 40;

void check_times(const std::vector<int64_t>& times_ns) {
  for (int64_t time_ns : times_ns) {
    if (time_ns < 0 || time_ns > kLongestNs) {
      throw std::invalid_argument("a profiled time is from 0 to 1000 s");
    }
  }
}

void check_slowdowns(const std::vector<double>& slowdowns, int32_t levels) {
  if (slowdowns.empty()) return;
  bool ascending = slowdowns.size() == static_cast<size_t>(levels) && slowdowns.front() == 0;
  for (size_t i = 1; ascending && i < slowdowns.size(); ++i) {
    ascending = slowdowns[i] > slowdowns[i - 1] && std::isfinite(slowdowns[i]);
  }
  if (!ascending) throw std::invalid_argument("slowdowns ascend from 0, one a level");
}

}  // namespace

void ModelProfile::finish() {
  if (cores.empty() || cores.front() < 1 || levels < 1) {
    throw std::invalid_argument("a profile has core counts from 1 and at least one level");
  }
  for (size_t i = 1; i < cores.size(); ++i) {
    if (cores[i] <= cores[i - 1]) throw std::invalid_argument("a profile's cores ascend");
  }
  const size_t table = cores.size() * static_cast<size_t>(levels);
  if (model_ns.size() != table) throw std::invalid_argument("model_ns is not [cores][levels]");
  first_row.clear();
  int32_t rows = 0;
  for (int32_t count : variants) {
    if (count < 1) throw std::invalid_argument("a layer has at least one variant");
    first_row.push_back(rows);
    rows += count;
  }
  if (layer_ns.size() != static_cast<size_t>(rows) * table) {
    throw std::invalid_argument("layer_ns is not [layers][variants][cores][levels]");
  }
  if (!layer_flops.empty() && layer_flops.size() != variants.size()) {
    throw std::invalid_argument("layer_flops is not [layers]");
  }
  for (const int64_t flops : layer_flops) {
    if (flops < 0) throw std::invalid_argument("a layer's flops are from 0");
  }
  if (!parallel_extents.empty() && parallel_extents.size() != static_cast<size_t>(rows)) {
    throw std::invalid_argument("parallel_extents is not [layers][variants]");
  }
  for (const int32_t extent : parallel_extents) {
    if (extent < 1) throw std::invalid_argument("a parallel extent is at least 1");
  }
  if (!layer_bytes.empty() && layer_bytes.size() != layer_ns.size()) {
    throw std::invalid_argument("layer_bytes is not [layers][variants][cores][levels]");
  }
  for (const int64_t bytes : layer_bytes) {
    if (bytes < 0 || bytes > kMostBytes) {
      throw std::invalid_argument("a layer reads from 0 to 1 TiB");
    }
  }
  check_slowdowns(slowdowns, levels);
  if (qos_ns < 0) throw std::invalid_argument("a target is from 0 ns (0: none)");
  if (priority < 1) throw std::invalid_argument("a priority is at least 1");
  check_times(model_ns);
  check_times(layer_ns);
}

ModelProfile ModelProfile::unknown() {
  ModelProfile profile;
  profile.cores = {1};
  profile.model_ns = {1};
  profile.finish();
  return profile;
}

NeededCores needed_cores(const ModelProfile& profile, int32_t total_cores) {
  int32_t fastest = 0;
  int32_t fewest = -1;  // in time
  for (int32_t i = 0; i < static_cast<int32_t>(profile.cores.size()); ++i) {
    if (profile.cores[i] > total_cores) break;
    const int64_t time_ns = profile.model_time(i, 0);
    if (fewest < 0 && profile.qos_ns > 0 && time_ns <= profile.qos_ns) fewest = i;
    if (time_ns < profile.model_time(fastest, 0)) fastest = i;
  }
  const int64_t best_ns = profile.model_time(fastest, 0);
  if (fewest >= 0) {
    const int64_t time_ns = profile.model_time(fewest, 0);
    return {profile.cores[fewest], time_ns, CoreNeed::kMeetsTarget, best_ns};
  }
  if (profile.qos_ns > 0) return {total_cores, best_ns, CoreNeed::kOutOfReach, best_ns};
  return {std::min(profile.cores[fastest], total_cores), best_ns, CoreNeed::kNoTarget, best_ns};
}

}  // namespace veltair::sched
