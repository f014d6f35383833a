// The executor that serves: compiled kernels on a gang.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "native/engine/gang.h"
#include "native/engine/instance.h"
#include "native/ipc/board.h"
#include "native/ipc/executor.h"
#include "native/ipc/segment.h"
#include "native/sched/profile.h"

namespace veltair::ipc {

// Kernels read and write the queries' slots where they are. The gang's threads themselves let go
// the cores that the policy takes back, between two tasks of a kernel.
//
// Ownership: shares segment and models; owns its gang and one instance a model.
class KernelExecutor final : public Executor, private engine::CoreWatch {
 public:
  // Makes gang and instances, so that running allocates nothing. `models` and `profiles` are in the
  // segment's order; a null model is not served. Throws engine::Error, std::bad_alloc.
  KernelExecutor(std::shared_ptr<Segment> segment, int32_t worker,
                 const std::vector<std::shared_ptr<const engine::Model>>& models,
                 const std::vector<sched::ModelProfile>& profiles,
                 const engine::GangOptions& options);

  void begin(int32_t model, int32_t slot) override;
  void set_cores(std::span<const int32_t> cores) override;
  bool in_use(int32_t core) const override { return gang_->in_use(core); }
  void expect_revocations(bool expected) override { short_tasks_ = expected; }
  void run(int32_t model, engine::LayerRange layers, int32_t cores, int32_t level) override;

 private:
  struct Served {
    std::unique_ptr<engine::Instance> instance;  // null: not served
    int32_t layers = 0;
    int32_t levels = 1;
    std::vector<uint16_t> variants;     // [levels][cores from 1 to all][layers]
    std::vector<uint16_t> least_tasks;  // of these, where cores may be taken back
  };

  int64_t must_leave(int core) override;
  void left(int core, int64_t demand) override;

  std::shared_ptr<Segment> segment_;
  Board board_;
  const int32_t worker_;
  std::shared_ptr<engine::Gang> gang_;
  std::vector<Served> served_;  // by model
  bool short_tasks_ = false;
  std::mutex cores_mutex_;      // orders set_cores
  std::vector<int32_t> cores_;  // that the gang has
};

}  // namespace veltair::ipc
