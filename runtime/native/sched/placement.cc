#include "native/sched/placement.h"

#include <stdexcept>
#include <string>

namespace veltair::sched {
namespace {

class LocalPlacement final : public PlacementPolicy {
 public:
  static constexpr std::string_view kName = "local";
  std::string_view name() const override { return kName; }
  int32_t decide(const PlacementView& view, const Task& /*task*/,
                 int64_t /*now_ns*/) const override {
    for (int32_t i = 0; i < static_cast<int32_t>(view.executors.size()); ++i) {
      const bool is_free = view.free == nullptr || view.free->contains(i);
      if (is_free && view.executors[i].kind == ExecutorKind::kLocalCores) return i;
    }
    return kNone;
  }
};

class FirstFitPlacement final : public PlacementPolicy {
 public:
  static constexpr std::string_view kName = "first-fit";
  std::string_view name() const override { return kName; }
  int32_t decide(const PlacementView& view, const Task& /*task*/,
                 int64_t /*now_ns*/) const override {
    return view.free == nullptr || view.free->empty() ? kNone : view.free->first();
  }
};

}  // namespace

std::vector<std::string_view> placement_names() {
  return {LocalPlacement::kName, FirstFitPlacement::kName};
}

std::unique_ptr<PlacementPolicy> make_placement(std::string_view name) {
  if (name == LocalPlacement::kName) return std::make_unique<LocalPlacement>();
  if (name == FirstFitPlacement::kName) return std::make_unique<FirstFitPlacement>();
  std::string known;
  for (std::string_view each : placement_names()) {
    known.append(known.empty() ? "" : ", ").append(each);
  }
  throw std::invalid_argument("no placement policy `" + std::string(name) + "`; known: " + known);
}

}  // namespace veltair::sched
