// The batching decision in the server: a thread of rank 0 that makes tasks of queries that wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "native/ipc/board.h"
#include "native/sched/batcher.h"
#include "native/sched/record.h"

namespace veltair::ipc {

// Tells a sched::Batcher what happens, at the times at which it does, and does what that decides.
//
// An executor of the Batcher is room for one task under way: as many as `BatchOptions::executors`
// says, or as the cores can run at a time by the profiles. A task's queries run one after the
// other, so a batch takes as many times what one takes. While the policy is `none` clients make
// their own tasks and the thread sleeps. When the policies change it begins again with the queries
// that wait.
//
// Ownership: shares the segment. Thread-safety: `start` and `stop` once each, from one thread.
class BatchLoop {
 public:
  // `profiles` are in the segment's order; `record` is a record's descriptor, duplicated.
  BatchLoop(const std::shared_ptr<Segment>& segment, std::vector<sched::ModelProfile> profiles,
            std::optional<int> record = std::nullopt);
  ~BatchLoop();
  BatchLoop(const BatchLoop&) = delete;
  BatchLoop& operator=(const BatchLoop&) = delete;

  void start();
  // Ends the thread; queries that wait stay where they are.
  void stop();

 private:
  void run();
  void make_batcher();
  int32_t executors(const PolicyRecord& record) const;
  void tell(int64_t now_ns);
  void act(const sched::BatchEvent& event, const sched::Decisions& decisions, int64_t now_ns);
  void pass_through();

  Board board_;
  const std::vector<sched::ModelProfile> profiles_;
  std::unique_ptr<sched::Batcher> batcher_;  // null: `none`
  uint32_t epoch_ = 0;                       // of the policies that it is made of
  std::unique_ptr<sched::Recorder> recorder_;
  int64_t events_ = 0;  // that were recorded
  News news_;
  std::vector<Released> under_way_;
  std::vector<int32_t> unused_;  // executors whose batch had no query left
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace veltair::ipc
