#include "native/sched/batching.h"

#include <stdexcept>
#include <string>

namespace veltair::sched {
namespace {

class NoBatching final : public BatchingPolicy {
 public:
  std::string_view name() const override { return "none"; }
  BatchDecision decide(const BatchView& view, int64_t /*now_ns*/) const override {
    return {.queries = view.waiting > 0 ? 1 : 0, .ask_again_ns = 0};
  }
};

}  // namespace

std::unique_ptr<BatchingPolicy> make_batching(std::string_view name) {
  if (name == "none") return std::make_unique<NoBatching>();
  throw std::invalid_argument("no batching policy `" + std::string(name) + "`; known: none");
}

}  // namespace veltair::sched
