#include "native/ipc/kernel_executor.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "native/ipc/client.h"
#include "native/sched/plan.h"

namespace veltair::ipc {
namespace {

std::vector<int> cpus_of(const Segment& segment) {
  std::vector<int> cpus;
  for (const CoreRecord& core : segment.cores()) cpus.push_back(core.cpu);
  return cpus;
}

}  // namespace

KernelExecutor::KernelExecutor(std::shared_ptr<Segment> segment, int32_t worker,
                               const std::vector<std::shared_ptr<const engine::Model>>& models,
                               const std::vector<sched::ModelProfile>& profiles,
                               const engine::GangOptions& options)
    : segment_(std::move(segment)),
      board_(segment_),
      worker_(worker),
      gang_(std::make_shared<engine::Gang>(cpus_of(*segment_), options,
                                           static_cast<engine::CoreWatch*>(this))) {
  const auto total_cores = static_cast<int32_t>(segment_->cores().size());
  cores_.reserve(segment_->cores().size());
  for (size_t m = 0; m < models.size(); ++m) {
    Served& served = served_.emplace_back();
    if (!models[m]) continue;
    served.instance = std::make_unique<engine::Instance>(models[m], gang_);
    const sched::ModelPlan plan(profiles[m], total_cores);
    if (plan.layers() != models[m]->layers()) {
      throw std::invalid_argument("a profile of " + std::to_string(plan.layers()) +
                                  " layers for a model of " + std::to_string(models[m]->layers()));
    }
    served.layers = plan.layers();
    served.levels = plan.levels();
    for (int32_t level = 0; level < served.levels; ++level) {
      for (int32_t cores = 1; cores <= total_cores; ++cores) {
        for (int32_t l = 0; l < served.layers; ++l) {
          served.variants.push_back(plan.variant(l, cores, level));
        }
      }
    }
  }
}

void KernelExecutor::begin(int32_t model, int32_t slot) {
  engine::Instance* instance = served_[model].instance.get();
  if (instance == nullptr) throw std::runtime_error("this worker could not load the model");
  const ModelRecord& record = segment_->models()[model];
  for (int32_t i = 0; i < record.inputs; ++i) {
    instance->bind_input(i, segment_->tensor(record, i, slot));
  }
  for (int32_t o = 0; o < record.outputs; ++o) {
    instance->bind_output(o, segment_->tensor(record, record.inputs + o, slot));
  }
}

// Read at each task of each kernel: two loads of a line that changes only with the core's owner.
int64_t KernelExecutor::must_leave(int core) {
  const CoreRecord& record = segment_->cores()[static_cast<size_t>(core)];
  if (record.heir.load(std::memory_order_acquire) == kNone) return 0;
  if (record.owner.load(std::memory_order_relaxed) != worker_) return 0;
  return record.revoked_ns.load(std::memory_order_relaxed);
}

void KernelExecutor::left(int core, int64_t demand) {
  {
    const std::scoped_lock lock(cores_mutex_);
    cores_.clear();  // the gang has other cores now than it was told to use
  }
  board_.let_go(worker_, core, demand, monotonic_ns());
}

void KernelExecutor::set_cores(std::span<const int32_t> cores) {
  const std::scoped_lock lock(cores_mutex_);
  if (std::ranges::equal(cores, cores_)) return;  // most blocks run where the last one did
  gang_->set_cores(cores);
  cores_.assign(cores.begin(), cores.end());
}

void KernelExecutor::run(int32_t model, engine::LayerRange layers, int32_t cores, int32_t level) {
  Served& served = served_[model];
  const auto total_cores = static_cast<int32_t>(segment_->cores().size());
  const int32_t row = (std::clamp(level, 0, served.levels - 1) * total_cores) +
                      std::clamp(cores, 1, total_cores) - 1;
  const std::span<const uint16_t> variants(
      served.variants.data() + static_cast<size_t>(row) * served.layers + layers.begin,
      static_cast<size_t>(layers.end - layers.begin));
  served.instance->run(layers, variants);
}

}  // namespace veltair::ipc
