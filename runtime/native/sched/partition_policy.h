// `partition`: the machine cut into instances of equal, fixed size.
#pragma once

#include <vector>

#include "native/sched/policy.h"

namespace veltair::sched {

// First come, first served; each task runs whole on one instance, and waits while all are taken.
//
// Reference: Packrat §3, instances of T/i threads. Differs: all instances have one size. It is
// `partition_cores`, or, where that is 0, the largest of the models' needs, widened so that the
// instances fill the machine. Cores beyond the last whole instance idle.
class PartitionPolicy final : public Policy {
 public:
  static constexpr std::string_view kName = "partition";

  // Throws std::invalid_argument where an instance is larger than the machine.
  PartitionPolicy(int32_t total_cores, std::span<const ModelProfile> models,
                  const PolicyOptions& options);

  std::string_view name() const override { return kName; }
  Needs needs() const override { return {.topping_up = false}; }
  Decision decide(const View& view, const Event& event, int64_t now_ns) const override;

  int32_t instance_cores() const { return instance_cores_; }

 private:
  int32_t instance_cores_;
  std::vector<ModelPlan> plans_;
};

}  // namespace veltair::sched
