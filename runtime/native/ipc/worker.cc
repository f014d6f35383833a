#include "native/ipc/worker.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include "native/ipc/client.h"
#include "native/ipc/futex.h"

namespace veltair::ipc {
namespace {

// An idle worker looks for work this often even if nobody wakes it: whoever should have may have
// died between the queue and the wake-up.
constexpr int64_t kLookNs = 1'000'000'000;

std::vector<int> cpus_of(const Segment& segment) {
  std::vector<int> cpus;
  for (const CoreRecord& core : segment.cores()) cpus.push_back(core.cpu);
  return cpus;
}

int most_layers(const std::vector<sched::ModelProfile>& profiles) {
  int most = 0;
  for (const sched::ModelProfile& profile : profiles) most = std::max(most, profile.layers());
  return most;
}

}  // namespace

Worker::Worker(const std::shared_ptr<Segment>& segment, int32_t index,
               std::vector<WorkerModel> models, const engine::GangOptions& options)
    : board_(segment),
      index_(index),
      gang_(std::make_shared<engine::Gang>(cpus_of(*segment), options)),
      cores_(segment->cores().size()) {
  if (models.size() != segment->models().size()) {
    throw std::invalid_argument("a worker needs one entry for each of the segment's models");
  }
  if (index < 0 || index >= static_cast<int32_t>(segment->workers().size())) {
    throw std::invalid_argument("no such worker: " + std::to_string(index));
  }
  for (WorkerModel& each : models) {
    instances_.push_back(each.model ? std::make_unique<engine::Instance>(each.model, gang_)
                                    : nullptr);
    if (!each.model) {
      each.profile.cores = {1};  // of no use to a policy, but well formed
      each.profile.model_ns = {1};
      each.profile.finish();
    }
    profiles_.push_back(std::move(each.profile));
  }
  policy_ = sched::make_policy(segment->header().scheduling,
                               static_cast<int32_t>(segment->cores().size()), profiles_);
  const sched::Needs needs = policy_->needs();
  if (needs.waiting || needs.refusing || needs.revoking) {
    throw std::invalid_argument("the scheduling policy `" + std::string(policy_->name()) +
                                "` makes tasks wait at boundaries, which only the simulator can");
  }
  variants_.resize(most_layers(profiles_));
}

Worker::~Worker() {
  leave();
  if (core_watcher_.joinable()) core_watcher_.join();
}

void Worker::leave() {
  leaving_ = true;
  WorkerRecord& record = board_.segment().workers()[index_];
  for (auto* word : {&record.work, &record.cores}) {
    word->fetch_add(1, std::memory_order_release);
    futex_wake_all(*word);
  }
}

void Worker::beat() {
  board_.segment().workers()[index_].beat_ns.store(monotonic_ns(), std::memory_order_relaxed);
}

void Worker::run() {
  const Scheduler scheduler{*policy_, profiles_};
  WorkerRecord& record = board_.segment().workers()[index_];
  board_.join(index_, getpid(), monotonic_ns());
  core_watcher_ = std::thread([this] { watch_cores(); });
  while (!leaving_) {
    const Step step = board_.take(index_, scheduler, monotonic_ns());
    if (step.stop) break;
    if (step.decision.task == kNone) {
      futex_wait(record.work, step.seen, kLookNs);
    } else {
      serve(step);
    }
  }
  leave();
  core_watcher_.join();
  board_.remove_worker(index_, monotonic_ns());
}

void Worker::serve(const Step& first) {
  const Scheduler scheduler{*policy_, profiles_};
  const int32_t task = first.decision.task;
  const int32_t model = board_.segment().tasks()[task].task.model;
  const int32_t layers = profiles_[model].layers();
  std::string error;
  try {
    if (!instances_[model]) throw std::runtime_error("this worker could not load the model");
    engine::Instance& instance = *instances_[model];
    bind(instance, task);
    sched::Decision block = first.decision;
    while (true) {
      run_block(instance, block);
      if (block.layer_end >= layers) break;
      block = board_.next_block(index_, scheduler, block.layer_end, monotonic_ns()).decision;
    }
  } catch (const std::exception& exception) {
    error = exception.what();
    if (error.empty()) error = "the kernel failed";
  }
  board_.complete(index_, error, monotonic_ns());
}

void Worker::bind(engine::Instance& instance, int32_t task) {
  const Segment& segment = board_.segment();
  const ModelRecord& model = segment.models()[segment.tasks()[task].task.model];
  const int32_t slot = task - model.first_slot;
  for (int32_t i = 0; i < model.inputs; ++i) {
    instance.bind_input(i, segment.tensor(model, i, slot));
  }
  for (int32_t o = 0; o < model.outputs; ++o) {
    instance.bind_output(o, segment.tensor(model, model.inputs + o, slot));
  }
}

void Worker::run_block(engine::Instance& instance, const sched::Decision& block) {
  {
    const std::scoped_lock lock(gang_mutex_);
    take_cores();
    in_block_ = true;
  }
  try {
    // One variant a layer for now: each layer's first, at every level.
    const std::span<uint16_t> variants(variants_.data(), block.layer_end - block.layer_begin);
    instance.run({block.layer_begin, block.layer_end}, variants);
  } catch (...) {
    const std::scoped_lock lock(gang_mutex_);
    in_block_ = false;
    throw;
  }
  const std::scoped_lock lock(gang_mutex_);
  in_block_ = false;
}

void Worker::take_cores() {
  const int32_t count = board_.held_cores(index_, cores_);
  gang_->set_cores({cores_.data(), static_cast<size_t>(count)});
}

void Worker::watch_cores() {
  std::atomic<uint32_t>& word = board_.segment().workers()[index_].cores;
  uint32_t seen = word.load(std::memory_order_acquire);
  while (!leaving_) {
    futex_wait(word, seen, -1);
    seen = word.load(std::memory_order_acquire);
    const std::scoped_lock lock(gang_mutex_);
    if (in_block_) take_cores();
  }
}

}  // namespace veltair::ipc
