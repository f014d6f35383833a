#include "native/sched/policy.h"

#include <stdexcept>
#include <string>

#include "native/sched/model_policy.h"

namespace veltair::sched {

std::string_view reason_text(Reason reason) {
  switch (reason) {
    case Reason::kQueueEmpty:
      return "no task waits";
    case Reason::kMeetsTarget:
      return "the fewest cores whose profiled time meets the latency target";
    case Reason::kOutOfReach:
      return "no measured core count meets the latency target: all cores";
    case Reason::kNoTarget:
      return "the model has no latency target: the fewest cores of its shortest profiled time";
  }
  return "";
}

std::vector<std::string_view> policy_names() { return {ModelPolicy::kName}; }

std::unique_ptr<Policy> make_policy(std::string_view name, int32_t total_cores,
                                    std::span<const ModelProfile> models) {
  if (total_cores < 1) throw std::invalid_argument("a policy needs at least one core");
  if (name == ModelPolicy::kName) return std::make_unique<ModelPolicy>(total_cores, models);
  std::string known;
  for (std::string_view each : policy_names()) known.append(known.empty() ? "" : ", ").append(each);
  throw std::invalid_argument("no scheduling policy `" + std::string(name) + "`; known: " + known);
}

}  // namespace veltair::sched
