// Opens an artifact's kernels and connects them to the engine.
#pragma once

#include <tvm/ffi/c_api.h>

#include <memory>
#include <string>

namespace veltair::engine {

using KernelFunction = TVMFFISafeCallType;

// The functions of libtvm_ffi that kernels and engine exchange errors through.
//
// Ownership: holds the library open. Thread-safety: immutable; the errors themselves are
// per thread, as libtvm_ffi keeps them.
class FfiRuntime {
 public:
  // Opens libtvm_ffi.so so that kernels find its symbols. Throws ArtifactError.
  explicit FfiRuntime(const std::string& path);
  ~FfiRuntime();
  FfiRuntime(const FfiRuntime&) = delete;
  FfiRuntime& operator=(const FfiRuntime&) = delete;

  // Takes the calling thread's raised error, or null where there is none; the caller owns it.
  TVMFFIObjectHandle take_error() const;
  // Raises `error` on the calling thread; takes it from the caller. Null is ignored.
  void raise_error(TVMFFIObjectHandle error) const;
  // Frees `error`; null is ignored.
  void drop_error(TVMFFIObjectHandle error) const;
  // Takes the calling thread's raised error as `kind: message`.
  std::string take_message() const;

 private:
  void* handle_;
  decltype(&TVMFFIErrorMoveFromRaised) move_from_raised_;
  decltype(&TVMFFIErrorSetRaised) set_raised_;
  decltype(&TVMFFIObjectDecRef) release_;
};

// An opened kernels.so whose parallel launches and workspaces are the engine's.
//
// Ownership: holds the library open; functions from `find` live as long. Thread-safety: immutable.
class Library {
 public:
  // Throws ArtifactError where the file can't be loaded, or asks for what a server of kernels
  // can't give: TVM's own runtime, or barriers between tasks (with more tasks than cores the first
  // tasks would wait for ever for the last).
  Library(std::shared_ptr<const FfiRuntime> ffi, const std::string& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // The kernel `symbol` (`__tvm_ffi_<symbol>`). Throws ArtifactError where there is none.
  KernelFunction find(const std::string& symbol) const;
  const FfiRuntime& ffi() const { return *ffi_; }

 private:
  std::shared_ptr<const FfiRuntime> ffi_;
  std::string path_;
  void* handle_;
};

}  // namespace veltair::engine
