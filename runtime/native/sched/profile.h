// What a model's measured profile says: the input of every policy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace veltair::sched {

// Measured latencies of one model, as the manifest has them, flattened.
//
// Ownership: plain data. Thread-safety: immutable once built.
struct ModelProfile {
  int64_t qos_ns = 0;                // latency target from the arrival; 0: none
  int32_t priority = 1;              // the higher the more urgent; only `prema` reads it
  std::vector<int32_t> cores;        // core counts that were measured, ascending
  int32_t levels = 1;                // interference levels; level 0 is alone
  std::vector<int64_t> model_ns;     // [cores][levels]: a whole run
  std::vector<int32_t> variants;     // [layers]: how many variants each layer has
  std::vector<int64_t> layer_ns;     // [layers][variants of the layer][cores][levels]
  std::vector<int64_t> layer_flops;  // [layers], or empty where they aren't known
  // [layers][variants of the layer]: tasks that a kernel can be divided into; or empty where they
  // aren't known
  std::vector<int32_t> parallel_extents;
  // As `layer_ns`: bytes that a layer reads from memory; or empty where they aren't known
  std::vector<int64_t> layer_bytes;
  // [levels]: slow-down of the reference kernel that each level stands for, ascending from 0; or
  // empty where nobody knows
  std::vector<double> slowdowns;
  std::vector<int32_t> first_row;  // [layers]: index of a layer's first [cores][levels] table

  int32_t layers() const { return static_cast<int32_t>(variants.size()); }
  // The whole model on the `core_index`-th measured count.
  int64_t model_time(int32_t core_index, int32_t level) const {
    return model_ns[static_cast<size_t>(core_index) * levels + level];
  }
  // One layer by one of its variants.
  int64_t layer_time(int32_t layer, int32_t variant, int32_t core_index, int32_t level) const {
    return layer_ns[index_of(layer, variant, core_index, level)];
  }
  // What it reads from memory; only where `layer_bytes` is known.
  int64_t bytes_read(int32_t layer, int32_t variant, int32_t core_index, int32_t level) const {
    return layer_bytes[index_of(layer, variant, core_index, level)];
  }
  // The shortest task of a layer's variant, from its time on one core; 0 where nobody knows.
  int64_t task_time(int32_t layer, int32_t variant, int64_t one_core_ns) const {
    if (parallel_extents.empty()) return 0;
    return one_core_ns / parallel_extents[static_cast<size_t>(first_row[layer]) + variant];
  }
  size_t index_of(int32_t layer, int32_t variant, int32_t core_index, int32_t level) const {
    const size_t row = static_cast<size_t>(first_row[layer]) + variant;
    return (row * cores.size() + core_index) * levels + level;
  }
  // Throws std::invalid_argument where the tables' sizes contradict each other; fills `first_row`.
  void finish();
  // Of a model that could not be loaded: of no use to a policy, but well formed.
  static ModelProfile unknown();
};

// Cores that a task of a model asks for, why, and how long it should then take.
enum class CoreNeed : uint8_t {
  kMeetsTarget,  // the fewest cores whose profiled time is within the target
  kOutOfReach,   // no measured core count meets the target: all cores
  kNoTarget,     // the model has no target: the fewest cores of the shortest profiled time
};

struct NeededCores {
  int32_t cores;
  int64_t expected_ns;
  CoreNeed need;
  int64_t fastest_ns;  // on whatever count of them
};

// The profile's answer, alone on a machine of `total_cores`. Counts above it are not considered.
NeededCores needed_cores(const ModelProfile& profile, int32_t total_cores);

}  // namespace veltair::sched
