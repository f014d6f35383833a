// The C interface between TVM's generated kernels and their launcher.
//
// TVM declares these types in a header of its compiler package, which the serving side doesn't
// have.
#pragma once

#include <cstdint>

namespace veltair::engine {

extern "C" {

// What a task of a parallel kernel is told about its launch. The kernel divides its loop by
// `num_task`; `sync_handle` is the barrier's, and null here: see `Library`.
struct ParallelEnv {
  void* sync_handle;
  int32_t num_task;
};

// Runs task `task` of a parallel kernel; non-zero is failure, with the error raised in tvm_ffi.
using ParallelLambda = int (*)(int task, ParallelEnv* env, void* data);
}

}  // namespace veltair::engine
