#include "native/ipc/kernel_executor.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "native/ipc/client.h"
#include "native/sched/plan.h"

namespace veltair::ipc {
namespace {

// What a task of a kernel should take at most where its core may be taken back: half of what it may
// take to let go of one, since the operating system interrupts tasks too.
constexpr int64_t kShortTaskNs = 50'000;

// Into how many tasks of at most kShortTaskNs a layer is cut that takes `time_ns` on one core.
uint16_t tasks_within(int64_t time_ns) {
  return static_cast<uint16_t>(
      std::clamp<int64_t>((time_ns - 1) / kShortTaskNs + 1, 1, engine::Gang::kMaxTasks));
}

std::vector<int> cpus_of(const Segment& segment) {
  std::vector<int> cpus;
  for (const CoreRecord& core : segment.cores()) cpus.push_back(core.cpu);
  return cpus;
}

// For all models, of which one runs at a time.
std::shared_ptr<engine::Arena> shared_arena(
    const std::vector<std::shared_ptr<const engine::Model>>& models) {
  int64_t most_bytes = 0;
  for (const auto& model : models) {
    if (model) most_bytes = std::max(most_bytes, model->spec().arena_bytes);
  }
  return std::make_shared<engine::Arena>(static_cast<uint64_t>(most_bytes));
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
  const std::shared_ptr<engine::Arena> arena = shared_arena(models);
  for (size_t m = 0; m < models.size(); ++m) {
    Served& served = served_.emplace_back();
    if (!models[m]) continue;
    served.instance = std::make_unique<engine::Instance>(models[m], gang_, arena);
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
          const uint16_t variant = plan.variant(l, cores, level);
          served.variants.push_back(variant);
          served.least_tasks.push_back(
              tasks_within(sched::interpolated(profiles[m].cores, 1, [&](size_t i) {
                return profiles[m].layer_time(l, variant, static_cast<int32_t>(i), level);
              })));
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
  const auto first = static_cast<size_t>(row) * served.layers + layers.begin;
  const auto count = static_cast<size_t>(layers.end - layers.begin);
  served.instance->run(layers, {served.variants.data() + first, count}, {},
                       {served.least_tasks.data() + first, short_tasks_ ? count : 0});
}

}  // namespace veltair::ipc
