// Kernels with TVM's calling convention, written by hand: what engine_model_test loads.
#include <dlpack/dlpack.h>
#include <tvm/ffi/c_api.h>

#include <cstdint>

namespace {

struct Env {
  void* sync_handle;
  int32_t num_task;
};
using Lambda = int (*)(int, Env*, void*);

}  // namespace

// NOLINTBEGIN(bugprone-reserved-identifier): the names are TVM's
#define EXPORT __attribute__((visibility("default")))

extern "C" {
EXPORT __attribute__((weak)) int (*__TVMBackendParallelLaunch)(Lambda, void*, int) = nullptr;
EXPORT __attribute__((weak)) void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int,
                                                                 int) = nullptr;
EXPORT __attribute__((weak)) int (*__TVMBackendFreeWorkspace)(int, int, void*) = nullptr;
#ifdef WITH_BARRIER
EXPORT __attribute__((weak)) int (*__TVMBackendParallelBarrier)(int, Env*) = nullptr;
#endif
}

namespace {

struct Vectors {
  const float* in;
  const float* weight;
  float* out;
  int64_t length;
};

Vectors vectors_of(const TVMFFIAny* args) {
  const auto* in = static_cast<DLTensor*>(args[0].v_ptr);
  const auto* weight = static_cast<DLTensor*>(args[1].v_ptr);
  const auto* out = static_cast<DLTensor*>(args[2].v_ptr);
  return {static_cast<const float*>(in->data), static_cast<const float*>(weight->data),
          static_cast<float*>(out->data), out->shape[0]};
}

// out = in + weight, by way of a workspace.
int add_task(int task, Env* env, void* data) {
  const auto& v = *static_cast<Vectors*>(data);
  const int64_t chunk = (v.length + env->num_task - 1) / env->num_task;
  auto* scratch = static_cast<float*>(
      __TVMBackendAllocWorkspace(kDLCPU, 0, sizeof(float) * static_cast<uint64_t>(chunk), 2, 32));
  if (scratch == nullptr) return -1;
  const int64_t begin = task * chunk;
  const int64_t end = begin + chunk < v.length ? begin + chunk : v.length;
  for (int64_t i = begin; i < end; ++i) scratch[i - begin] = v.in[i] + v.weight[i];
  for (int64_t i = begin; i < end; ++i) v.out[i] = scratch[i - begin];
  return __TVMBackendFreeWorkspace(kDLCPU, 0, scratch);
}

// Each task writes how many there are.
int tell_task(int task, Env* env, void* data) {
  static_cast<Vectors*>(data)->out[task] = static_cast<float>(env->num_task);
  return 0;
}

int failing_task(int task, Env*, void*) {
  if (task != 1) return 0;
  TVMFFIErrorSetRaisedFromCStr("ValueError", "task 1 does not want to");
  return -1;
}

}  // namespace

extern "C" {
EXPORT int __tvm_ffi_add(void*, const TVMFFIAny* args, int32_t n, TVMFFIAny*) {
  if (n != 3 || args[0].type_index != kTVMFFIDLTensorPtr) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "three tensors are wanted");
    return -1;
  }
  Vectors vectors = vectors_of(args);
  return __TVMBackendParallelLaunch(add_task, &vectors, 0);
}

EXPORT int __tvm_ffi_tell_tasks(void*, const TVMFFIAny* args, int32_t, TVMFFIAny*) {
  Vectors vectors = vectors_of(args);
  return __TVMBackendParallelLaunch(tell_task, &vectors, 0);
}

EXPORT int __tvm_ffi_fail(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) {
  return __TVMBackendParallelLaunch(failing_task, nullptr, 4);
}

EXPORT int __tvm_ffi_fail_silently(void*, const TVMFFIAny*, int32_t, TVMFFIAny*) { return -1; }
}
// NOLINTEND(bugprone-reserved-identifier)
