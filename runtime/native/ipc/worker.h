// A worker's loop: take a task, run its blocks, complete it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "native/engine/gang.h"
#include "native/engine/instance.h"
#include "native/engine/model.h"
#include "native/ipc/board.h"
#include "native/sched/policy.h"

namespace veltair::ipc {

// One model as a worker runs it; without `model` it is not served.
struct WorkerModel {
  std::shared_ptr<const engine::Model> model;
  sched::ModelProfile profile;
};

// Serves one place of the worker table.
//
// Kernels read and write the queries' slots where they are. Between blocks the policy is asked
// under the segment's mutex; cores that come free meanwhile are let into the running block by a
// second thread, which sleeps otherwise.
//
// Ownership: shares segment and models; owns its gang and one instance a model. Thread-safety:
// `run` once, on any thread; `beat` and `leave` from any other.
class Worker {
 public:
  // Makes gang and instances, so that serving allocates nothing. `models` are in the segment's
  // order. Throws engine::Error, std::invalid_argument, std::bad_alloc.
  Worker(const std::shared_ptr<Segment>& segment, int32_t index, std::vector<WorkerModel> models,
         const engine::GangOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Joins the server, serves until it has stopped or `leave` is called, and leaves it.
  void run();
  // Ends `run` after the task that is running. Async-signal-unsafe, idempotent.
  void leave();
  // A sign of life, for a thread that is not held up by kernels.
  void beat();

 private:
  void serve(const Step& first);
  void run_block(engine::Instance& instance, const sched::Decision& block);
  void bind(engine::Instance& instance, int32_t task);
  void take_cores();
  void watch_cores();

  Board board_;
  const int32_t index_;
  std::vector<sched::ModelProfile> profiles_;
  std::unique_ptr<sched::Policy> policy_;
  std::shared_ptr<engine::Gang> gang_;
  std::vector<std::unique_ptr<engine::Instance>> instances_;  // by model; null: not served
  std::vector<int32_t> cores_;                                // room for held_cores
  std::vector<uint16_t> variants_;                            // room for a block's
  std::mutex gang_mutex_;  // orders block boundaries and the second thread's grants
  bool in_block_ = false;  // guarded by gang_mutex_
  std::atomic<bool> leaving_{false};
  std::thread core_watcher_;
};

}  // namespace veltair::ipc
