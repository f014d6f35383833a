// A worker's loop: take a task, run its blocks, complete it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "native/ipc/board.h"
#include "native/ipc/executor.h"
#include "native/sched/block_times.h"
#include "native/sched/interference.h"
#include "native/sched/policy.h"
#include "native/sched/record.h"

namespace veltair::ipc {

// Serves one place of the worker table.
//
// Between blocks the policy is asked under the segment's mutex. A second thread, which sleeps
// otherwise, lets cores that come free into the running block, and out of it those that the policy
// gives to another.
//
// Ownership: shares the segment, owns the executor. Thread-safety: `run` once, on any thread;
// `beat` and `leave` from any other.
class Worker {
 public:
  // `profiles` are in the segment's order. `record` is an open file to record decisions
  // in. Throws std::invalid_argument.
  Worker(const std::shared_ptr<Segment>& segment, int32_t index,
         std::vector<sched::ModelProfile> profiles, std::unique_ptr<Executor> executor,
         std::optional<int> record = std::nullopt);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Joins the server, serves until it has stopped or `leave` is called, and leaves it.
  void run();
  // Ends `run` after the task that is running. Async-signal-unsafe, idempotent.
  void leave();
  // A sign of life, for a thread that is not held up by kernels.
  void beat();
  // The errno of the write that ended the recording of decisions; 0: none did. From any thread.
  int record_error() const { return recorder_ ? recorder_->error() : 0; }

 private:
  // What a block began on.
  struct Started {
    int32_t cores = 0;
    int32_t first_core = 0;
    uint32_t seen = 0;  // WorkerRecord::cores then: it changes whenever the cores do
  };

  Scheduler scheduler() const {
    return {*policy_, profiles_, interference_.get(), epoch_, recorder_.get()};
  }
  void make_policies();
  void make_interference(const PolicyRecord& record);
  Step recorded(const Step& step);
  Step run_block(const sched::Decision& block);
  std::optional<BlockSample> run_layers(const sched::Decision& block);
  Started await_core();
  std::optional<BlockSample> sample(const sched::Decision& block, int32_t model,
                                    const Started& started, int64_t took_ns) const;
  bool change_cores();
  void watch_cores();

  Board board_;
  const int32_t index_;
  const std::vector<sched::ModelProfile> profiles_;
  const std::unique_ptr<Executor> executor_;
  const std::unique_ptr<sched::Recorder> recorder_;  // null: decisions are not recorded
  std::unique_ptr<sched::Policy> policy_;
  std::unique_ptr<sched::Interference> interference_;
  std::vector<sched::BlockTimes> times_;  // by model; empty where nothing measures the level
  uint32_t epoch_ = 0;                    // of these
  OwnedCores cores_;                      // as last read; guarded by cores_mutex_
  std::mutex cores_mutex_;                // orders block boundaries and the second thread's changes
  bool in_block_ = false;                 // guarded by cores_mutex_
  std::atomic<bool> leaving_{false};
  std::thread core_watcher_;
};

}  // namespace veltair::ipc
