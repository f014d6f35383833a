#include "native/sched/policy.h"

#include <charconv>
#include <stdexcept>
#include <string>

#include "native/sched/block_policy.h"
#include "native/sched/deadline_policy.h"
#include "native/sched/model_policy.h"
#include "native/sched/partition_policy.h"
#include "native/sched/prema_policy.h"
#include "native/sched/veltair_policy.h"

namespace veltair::sched {
namespace {

constexpr std::string_view kLayer = "layer";
constexpr std::string_view kBlock = "block-";
constexpr std::string_view kVeltairAs = "veltair-as";
constexpr std::string_view kVeltairAc = "veltair-ac";
constexpr std::string_view kVeltair = "veltair";
constexpr std::string_view kDeadline = "deadline";
constexpr std::string_view kVeltairDeadline = "veltair-deadline";

// The N of `block-N`, or 0 where the name is not of that family.
int32_t layers_per_block(std::string_view name) {
  if (!name.starts_with(kBlock)) return 0;
  const std::string_view digits = name.substr(kBlock.size());
  int32_t layers = 0;
  const auto [rest, error] = std::from_chars(digits.begin(), digits.end(), layers);
  const bool whole = error == std::errc() && rest == digits.end() && digits.front() != '0';
  return whole && layers > 0 ? layers : 0;
}

}  // namespace

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
    case Reason::kMeetsShare:
      return "the fewest cores whose profiled time meets the block's share of the target";
    case Reason::kShareOutOfReach:
      return "no measured core count meets the block's share of the target: all cores";
    case Reason::kPivot:
      return "the block ends before the next layer whose demand reaches threshold and average";
    case Reason::kNoPivot:
      return "no later layer's demand reaches threshold and average: all remaining layers";
    case Reason::kPartition:
      return "an instance of fixed size is free";
    case Reason::kPartitionsBusy:
      return "every instance is taken";
    case Reason::kHighestToken:
      return "the shortest of the tasks whose token is high enough";
    case Reason::kOtherRuns:
      return "another task has the machine until its layer ends";
    case Reason::kEarliestDeadline:
      return "the earliest deadline of those that wait, on the fewest cores for its time left";
    case Reason::kSpareCores:
      return "nobody else waits: more of the free cores than its time left asks for";
    case Reason::kLessUrgent:
      return "others that wait are more urgent and take all cores";
    case Reason::kHopeless:
      return "the deadline can't be met any more, even on all cores";
    case Reason::kReturned:
      return "late, and the only worker for one that can be in time: it begins again later";
    case Reason::kNoCores:
      return "no core is free, and no running block of a later deadline has several";
  }
  return "";
}

std::vector<std::string_view> policy_names() {
  return {ModelPolicy::kName,     kLayer,     "block-6",  "block-11", PremaPolicy::kName,
          PartitionPolicy::kName, kVeltairAs, kVeltairAc, kVeltair,   kDeadline,
          kVeltairDeadline};
}

std::vector<ModelPlan> make_plans(std::span<const ModelProfile> models, int32_t total_cores) {
  std::vector<ModelPlan> plans;
  plans.reserve(models.size());
  for (const ModelProfile& model : models) plans.emplace_back(model, total_cores);
  return plans;
}

std::unique_ptr<Policy> make_policy(std::string_view name, int32_t total_cores,
                                    std::span<const ModelProfile> models,
                                    const PolicyOptions& options) {
  if (total_cores < 1) throw std::invalid_argument("a policy needs at least one core");
  if (name == ModelPolicy::kName) return std::make_unique<ModelPolicy>(total_cores, models);
  if (name == kLayer) return std::make_unique<BlockPolicy>(name, 1, total_cores, models);
  if (const int32_t layers = layers_per_block(name)) {
    return std::make_unique<BlockPolicy>(name, layers, total_cores, models);
  }
  if (name == PremaPolicy::kName) return std::make_unique<PremaPolicy>(total_cores, models);
  if (name == PartitionPolicy::kName) {
    return std::make_unique<PartitionPolicy>(total_cores, models, options);
  }
  for (const auto& [known, kind] :
       {std::pair{kVeltairAs, VeltairPolicy::Kind{.blocks = true, .versions = false}},
        std::pair{kVeltairAc, VeltairPolicy::Kind{.blocks = false, .versions = true}},
        std::pair{kVeltair, VeltairPolicy::Kind{.blocks = true, .versions = true}}}) {
    if (name != known) continue;
    return std::make_unique<VeltairPolicy>(known, kind, total_cores, models, options);
  }
  for (const auto& [known, blocks] :
       {std::pair{kDeadline, false}, std::pair{kVeltairDeadline, true}}) {
    if (name != known) continue;
    return std::make_unique<DeadlinePolicy>(known, blocks, total_cores, models, options);
  }
  std::string known;
  for (std::string_view each : policy_names()) {
    if (!each.starts_with(kBlock)) known.append(each).append(", ");
  }
  known += "block-N";
  throw std::invalid_argument("no scheduling policy `" + std::string(name) + "`; known: " + known);
}

}  // namespace veltair::sched
