#include "native/sched/placement.h"

#include <stdexcept>
#include <string>

namespace veltair::sched {
namespace {

class LocalPlacement final : public PlacementPolicy {
 public:
  std::string_view name() const override { return "local"; }
  int32_t decide(std::span<const Executor> executors, const Task& /*task*/,
                 int64_t /*now_ns*/) const override {
    for (int32_t i = 0; i < static_cast<int32_t>(executors.size()); ++i) {
      if (executors[i].kind == ExecutorKind::kLocalCores) return i;
    }
    return kNone;
  }
};

}  // namespace

std::unique_ptr<PlacementPolicy> make_placement(std::string_view name) {
  if (name == "local") return std::make_unique<LocalPlacement>();
  throw std::invalid_argument("no placement policy `" + std::string(name) + "`; known: local");
}

}  // namespace veltair::sched
