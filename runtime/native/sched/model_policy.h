// `model`: first come, first served, over whole models.
#pragma once

#include <vector>

#include "native/sched/policy.h"

namespace veltair::sched {

// The oldest task runs whole, on all the cores that its profile says it needs for its target.
//
// Reference: VELTAIR §3.2, model-wise scheduling: served at once if resources are free, waiting
// otherwise. Differs: with some of the cores free a task begins on those and takes the others as
// they come free, instead of leaving them idle until all are there.
class ModelPolicy final : public Policy {
 public:
  static constexpr std::string_view kName = "model";

  ModelPolicy(int32_t total_cores, std::span<const ModelProfile> models);

  std::string_view name() const override { return kName; }
  Decision decide(const View& view, const Event& event, int64_t now_ns) const override;

 private:
  struct Cores {
    int32_t cores;
    Reason reason;
  };
  struct Plan {
    int32_t layers;
    std::vector<Cores> by_queries;  // of a task of 1, 2, ... queries, one after the other
  };
  std::vector<Plan> plans_;  // by model
};

}  // namespace veltair::sched
