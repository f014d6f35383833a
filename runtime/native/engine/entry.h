// What kernels call: TVM's backend functions, served by the gang that the calling thread leads.
#pragma once

#include <cstdint>

#include "native/engine/abi.h"
#include "native/engine/gang.h"
#include "native/engine/library.h"

namespace veltair::engine {

// While it lives, the parallel launches of the calling thread's kernels know where their errors go
// and which loop they divide.
//
// Thread-safety: of the thread that made it.
class KernelScope {
 public:
  explicit KernelScope(const FfiRuntime& ffi);
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

  // The next kernel's parallel loop.
  void set_loop(ParallelLoop loop);

 private:
  const FfiRuntime* outer_;
};

extern "C" {
// The values of the kernels' weak pointers `__TVMBackend...`. Any thread may call them.
int veltair_parallel_launch(ParallelLambda lambda, void* data, int num_task);
void* veltair_alloc_workspace(int device_type, int device_id, uint64_t bytes, int, int);
int veltair_free_workspace(int device_type, int device_id, void* block);
}

}  // namespace veltair::engine
