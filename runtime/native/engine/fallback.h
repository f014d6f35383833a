// A layer that isn't compiled: a part of the model's graph that ONNX Runtime runs.
#pragma once

#include <dlpack/dlpack.h>
#include <pthread.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "native/engine/onnxruntime.h"

namespace veltair::engine {

// The description of such a layer as the manifest has it: an ONNX file, and the names of what it
// reads and writes in the order of the layer's arguments, outputs last.
struct FallbackSpec {
  std::string path;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  // Names of those, strings among the inputs and anything among the outputs, whose shape comes with
  // the value: see `FramedHeader`.
  std::vector<std::string> framed;
};

// Before the elements of a tensor that carries its own shape. Strings are each their length in 32
// bits and their bytes.
struct FramedHeader {
  static constexpr int64_t kMostDimensions = 14;
  int64_t bytes = 0;  // of the elements
  int64_t rank = 0;
  int64_t dimensions[kMostDimensions]{};
};
static_assert(sizeof(FramedHeader) == 128);

// A session with a fixed number of threads. What a layer of one thread count is to another is what
// kernels' versions are to each other.
//
// Ownership: shares the library, owns the session and its threads; the calling thread of `run` is
// one of the number. Thread-safety: `run` from any thread.
class Fallback {
 public:
  // Throws ArtifactError where the file can't be loaded.
  Fallback(std::shared_ptr<const OnnxRuntime> library, const FallbackSpec& spec, int threads);
  ~Fallback();
  Fallback(const Fallback&) = delete;
  Fallback& operator=(const Fallback&) = delete;

  // Computes the outputs, the last of `tensors`, from the inputs; all are dense, framed ones arrays
  // of bytes. Throws KernelError.
  void run(std::span<const DLTensor> tensors) const;

  // The session's threads, the calling one left out. They look for work while a run lasts, and
  // sleep from its end on.
  std::span<const pthread_t> threads() const { return threads_; }

 private:
  OrtValue* framed_strings(const DLTensor& tensor, const std::string& name) const;
  void keep(OrtValue* value, const DLTensor& tensor, const std::string& name) const;
  template <typename Function, typename... Arguments>
  void call(Arguments... arguments) const;
  static const void* make_thread(void* self, OrtWork work, void* argument);
  static void join_thread(const void* thread);

  std::shared_ptr<const OnnxRuntime> library_;
  std::vector<pthread_t> threads_;
  std::vector<std::string> names_;
  std::vector<const char*> name_pointers_;  // into `names_`
  std::vector<char> framed_;                // of each name
  size_t inputs_;
  OrtSession* session_ = nullptr;
};

}  // namespace veltair::engine
