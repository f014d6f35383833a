// `layer` and `block-N`: blocks of a fixed number of layers.
#pragma once

#include <string>
#include <vector>

#include "native/sched/policy.h"

namespace veltair::sched {

// First come, first served; each block of N layers gets the fewest cores on which the profile keeps
// the block's share of the target. `layer` is N = 1.
//
// Reference: VELTAIR §3.2. `layer` is Planaria's scheduling ported to cores: resources by what each
// layer needs for its share of the target, and a layer that finds too few takes what is there.
//
// Differs: the paper leaves open
// - overload: nothing is refused or reordered; a block begins on the cores that are free;
// - a target that is already lost, and a block that ends early: shares stay what they are, so a
//   late query neither takes cores from others nor gives its own up, and an early one keeps its
//   lead;
// - blocks are counted from the model's first layer, so each query of a model has the same ones.
class BlockPolicy final : public Policy {
 public:
  // `layers_per_block` from 1.
  BlockPolicy(std::string_view name, int32_t layers_per_block, int32_t total_cores,
              std::span<const ModelProfile> models);

  std::string_view name() const override { return name_; }
  Decision decide(const View& view, const Event& event, int64_t now_ns) const override;

 private:
  const std::string name_;
  const int32_t layers_per_block_;
  const std::vector<ModelPlan> plans_;
};

}  // namespace veltair::sched
