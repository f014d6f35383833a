#include "native/engine/entry.h"

#include <atomic>
#include <utility>

#include "native/engine/gang.h"
#include "native/engine/workspace.h"

namespace veltair::engine {
namespace {

thread_local const FfiRuntime* current_ffi = nullptr;
thread_local ParallelLoop current_loop;

// A launch on its way through the gang. An error is raised on the thread whose task failed and
// must reach the thread that called the kernel: the first one waits here.
struct Launch {
  ParallelLambda lambda;
  void* data;
  const FfiRuntime* ffi;
  std::atomic<TVMFFIObjectHandle> error{nullptr};
};

int run_task(int task, ParallelEnv* env, void* data) {
  auto& launch = *static_cast<Launch*>(data);
  const int result = launch.lambda(task, env, launch.data);
  if (result == 0 || launch.ffi == nullptr) return result;
  TVMFFIObjectHandle error = launch.ffi->take_error();
  TVMFFIObjectHandle none = nullptr;
  if (!launch.error.compare_exchange_strong(none, error)) launch.ffi->drop_error(error);
  return result;
}

}  // namespace

KernelScope::KernelScope(const FfiRuntime& ffi) : outer_(std::exchange(current_ffi, &ffi)) {}

KernelScope::~KernelScope() {
  current_ffi = outer_;
  current_loop = {};
}

void KernelScope::set_loop(ParallelLoop loop) { current_loop = loop; }

extern "C" {

int veltair_parallel_launch(ParallelLambda lambda, void* data, int num_task) {
  Gang* gang = Gang::led_here();
  Launch launch{lambda, data, current_ffi};
  const int result = gang == nullptr ? Gang::launch_inline(run_task, &launch, num_task)
                                     : gang->launch(run_task, &launch, num_task, current_loop);
  if (launch.ffi != nullptr) launch.ffi->raise_error(launch.error.load());
  return result;
}

void* veltair_alloc_workspace(int /*device_type*/, int /*device_id*/, uint64_t bytes,
                              int /*dtype_code*/, int /*dtype_bits*/) {
  return WorkspacePool::of_this_thread().allocate(bytes);
}

int veltair_free_workspace(int /*device_type*/, int /*device_id*/, void* block) {
  WorkspacePool::of_this_thread().free(block);
  return 0;
}
}

}  // namespace veltair::engine
