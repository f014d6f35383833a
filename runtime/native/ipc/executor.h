// What a worker runs its blocks with.
#pragma once

#include <cstdint>
#include <span>

#include "native/engine/model.h"

namespace veltair::ipc {

// Runs layers of a task on the cores that it is told to use.
//
// Cores are named by their index in the segment's core table. Thread-safety: `begin` and `run` from
// one thread; `set_cores` and `in_use` from any, also during `run`.
class Executor {
 public:
  Executor() = default;
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The runs that follow are of the query in this slot, counted from the model's first. Throws what
  // makes the query fail.
  virtual void begin(int32_t model, int32_t slot) = 0;
  // Uses exactly these cores, at least one, from the next end of a kernel's task on.
  virtual void set_cores(std::span<const int32_t> cores) = 0;
  // Whether anything still runs on a core that isn't among these any more.
  virtual bool in_use(int32_t core) const = 0;
  // Whether the cores of the runs that follow may be taken back while they run: kernels are then
  // cut into tasks that let go of a core soon. From the thread of `run`.
  virtual void expect_revocations(bool expected) = 0;
  // Runs `layers` in the versions for `level` and as many cores as the block was decided for, which
  // may be more than it has yet. Throws what makes the query fail.
  virtual void run(int32_t model, engine::LayerRange layers, int32_t cores, int32_t level) = 0;
};

}  // namespace veltair::ipc
