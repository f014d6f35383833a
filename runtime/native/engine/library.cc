#include "native/engine/library.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "native/engine/entry.h"
#include "native/engine/error.h"

namespace veltair::engine {
namespace {

std::string last_dl_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown error" : text;
}

template <typename Function>
Function find_in(void* handle, const std::string& path, const char* name) {
  void* address = dlsym(handle, name);
  if (address == nullptr) {
    throw ArtifactError(path + ": no symbol " + name +
                        "; install the pinned apache-tvm-ffi version");
  }
  return reinterpret_cast<Function>(address);
}

// What kernels find only where TVM itself is loaded, and barriers.
constexpr std::array kRefused = {
    "__TVMBackendParallelBarrier",
    "__TVMFFIFunctionCall",
    "__TVMFFIEnvModLookupFromImports",
    "__TVMFFIHandleInitOnce",
};

}  // namespace

FfiRuntime::FfiRuntime(const std::string& path)
    : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) {
  if (handle_ == nullptr) {
    throw ArtifactError(path + ": can't be loaded (" + last_dl_error() +
                        "); install the pinned apache-tvm-ffi version");
  }
  move_from_raised_ =
      find_in<decltype(move_from_raised_)>(handle_, path, "TVMFFIErrorMoveFromRaised");
  set_raised_ = find_in<decltype(set_raised_)>(handle_, path, "TVMFFIErrorSetRaised");
  release_ = find_in<decltype(release_)>(handle_, path, "TVMFFIObjectDecRef");
}

FfiRuntime::~FfiRuntime() {
  // Never closed: kernels and Python's own tvm_ffi keep per-thread state in it.
}

TVMFFIObjectHandle FfiRuntime::take_error() const {
  TVMFFIObjectHandle error = nullptr;
  move_from_raised_(&error);
  return error;
}

void FfiRuntime::raise_error(TVMFFIObjectHandle error) const {
  if (error == nullptr) return;
  set_raised_(error);
  drop_error(error);
}

void FfiRuntime::drop_error(TVMFFIObjectHandle error) const {
  if (error != nullptr) release_(error);
}

std::string FfiRuntime::take_message() const {
  TVMFFIObjectHandle error = take_error();
  if (error == nullptr) return "failed without a message (out of memory for its workspace?)";
  const TVMFFIErrorCell* cell = TVMFFIErrorGetCellPtr(error);
  std::string text = std::string(cell->kind.data, cell->kind.size) + ": " +
                     std::string(cell->message.data, cell->message.size);
  drop_error(error);
  return text;
}

Library::Library(std::shared_ptr<const FfiRuntime> ffi, const std::string& path)
    : ffi_(std::move(ffi)), path_(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    throw ArtifactError(path + ": can't be loaded (" + last_dl_error() +
                        "); compile the model again");
  }
  for (const char* name : kRefused) {
    if (dlsym(handle_, name) == nullptr) continue;
    dlclose(handle_);
    throw ArtifactError(path + ": a kernel calls " + (name + 2) +
                        ", which needs TVM's own runtime; compile it without external calls and " +
                        "barriers");
  }
  const std::array<std::pair<const char*, void*>, 3> entries = {{
      {"__TVMBackendParallelLaunch", reinterpret_cast<void*>(&veltair_parallel_launch)},
      {"__TVMBackendAllocWorkspace", reinterpret_cast<void*>(&veltair_alloc_workspace)},
      {"__TVMBackendFreeWorkspace", reinterpret_cast<void*>(&veltair_free_workspace)},
  }};
  for (const auto& [name, function] : entries) {
    // A library without parallel kernels lacks the pointer.
    void* pointer = dlsym(handle_, name);
    if (pointer != nullptr) *static_cast<void**>(pointer) = function;
  }
}

Library::~Library() { dlclose(handle_); }

KernelFunction Library::find(const std::string& symbol) const {
  void* address = dlsym(handle_, ("__tvm_ffi_" + symbol).c_str());
  if (address == nullptr) {
    throw ArtifactError(path_ + ": no kernel " + symbol + ", which the manifest names; " +
                        "compile the model again");
  }
  return reinterpret_cast<KernelFunction>(address);
}

}  // namespace veltair::engine
