// The part of ONNX Runtime's C interface that running a graph takes.
//
// ONNX Runtime hands out a table of functions that only ever grows at its end. Its header isn't
// part of the installed package, only the library is.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace veltair::engine {

// What the interface only hands around.
struct OrtEnv;
struct OrtStatus;
struct OrtMemoryInfo;
struct OrtSession;
struct OrtSessionOptions;
struct OrtRunOptions;
struct OrtValue;
struct OrtAllocator;
struct OrtTensorInfo;

// A thread of a session, as whoever makes it sees it: `work(argument)` is what it runs.
using OrtWork = void (*)(void* argument);
using OrtMakeThread = const void* (*)(void* options, OrtWork work, void* argument);
using OrtJoinThread = void (*)(const void* thread);

// A function of the table: its place and its type.
template <size_t Place, typename Type>
struct OrtFunction {
  using type = Type;
  static constexpr size_t place = Place;
};

namespace ort {

using GetErrorMessage = OrtFunction<2, const char* (*)(const OrtStatus*)>;
using CreateEnv = OrtFunction<3, OrtStatus* (*)(int severity, const char* id, OrtEnv**)>;
using CreateSession = OrtFunction<7, OrtStatus* (*)(const OrtEnv*, const char* path,
                                                    const OrtSessionOptions*, OrtSession**)>;
using Run =
    OrtFunction<9, OrtStatus* (*)(OrtSession*, const OrtRunOptions*, const char* const* input_names,
                                  const OrtValue* const* inputs, size_t input_count,
                                  const char* const* output_names, size_t output_count,
                                  OrtValue** outputs)>;
using CreateSessionOptions = OrtFunction<10, OrtStatus* (*)(OrtSessionOptions**)>;
using SetSessionLogSeverityLevel = OrtFunction<22, OrtStatus* (*)(OrtSessionOptions*, int)>;
using SetIntraOpNumThreads = OrtFunction<24, OrtStatus* (*)(OrtSessionOptions*, int)>;
using SetInterOpNumThreads = OrtFunction<25, OrtStatus* (*)(OrtSessionOptions*, int)>;
using CreateTensorWithDataAsOrtValue =
    OrtFunction<49, OrtStatus* (*)(const OrtMemoryInfo*, void* data, size_t bytes,
                                   const int64_t* shape, size_t dimensions, int type, OrtValue**)>;
using CreateTensorAsOrtValue =
    OrtFunction<48, OrtStatus* (*)(OrtAllocator*, const int64_t* shape, size_t dimensions, int type,
                                   OrtValue**)>;
using GetTensorMutableData = OrtFunction<51, OrtStatus* (*)(OrtValue*, void**)>;
using FillStringTensor =
    OrtFunction<52, OrtStatus* (*)(OrtValue*, const char* const* strings, size_t count)>;
using GetStringTensorDataLength = OrtFunction<53, OrtStatus* (*)(const OrtValue*, size_t*)>;
using GetStringTensorContent =
    OrtFunction<54, OrtStatus* (*)(const OrtValue*, void* text, size_t bytes, size_t* offsets,
                                   size_t count)>;
using GetTensorElementType = OrtFunction<60, OrtStatus* (*)(const OrtTensorInfo*, int*)>;
using GetDimensionsCount = OrtFunction<61, OrtStatus* (*)(const OrtTensorInfo*, size_t*)>;
using GetDimensions = OrtFunction<62, OrtStatus* (*)(const OrtTensorInfo*, int64_t*, size_t)>;
using GetTensorTypeAndShape = OrtFunction<65, OrtStatus* (*)(const OrtValue*, OrtTensorInfo**)>;
using CreateCpuMemoryInfo =
    OrtFunction<69, OrtStatus* (*)(int allocator, int memory, OrtMemoryInfo**)>;
using GetAllocatorWithDefaultOptions = OrtFunction<78, OrtStatus* (*)(OrtAllocator**)>;
using ReleaseEnv = OrtFunction<92, void (*)(OrtEnv*)>;
using ReleaseStatus = OrtFunction<93, void (*)(OrtStatus*)>;
using ReleaseMemoryInfo = OrtFunction<94, void (*)(OrtMemoryInfo*)>;
using ReleaseSession = OrtFunction<95, void (*)(OrtSession*)>;
using ReleaseValue = OrtFunction<96, void (*)(OrtValue*)>;
using ReleaseTensorInfo = OrtFunction<99, void (*)(OrtTensorInfo*)>;
using ReleaseSessionOptions = OrtFunction<100, void (*)(OrtSessionOptions*)>;
using AddSessionConfigEntry =
    OrtFunction<130, OrtStatus* (*)(OrtSessionOptions*, const char* key, const char* value)>;
using SetMakeThread = OrtFunction<196, OrtStatus* (*)(OrtSessionOptions*, OrtMakeThread)>;
using SetThreadOptions = OrtFunction<197, OrtStatus* (*)(OrtSessionOptions*, void*)>;
using SetJoinThread = OrtFunction<198, OrtStatus* (*)(OrtSessionOptions*, OrtJoinThread)>;

}  // namespace ort

// The opened library.
//
// Ownership: holds it open, with its environment. Thread-safety: immutable.
class OnnxRuntime {
 public:
  // Opens libonnxruntime. Throws ArtifactError.
  explicit OnnxRuntime(const std::string& path);
  ~OnnxRuntime();
  OnnxRuntime(const OnnxRuntime&) = delete;
  OnnxRuntime& operator=(const OnnxRuntime&) = delete;

  // A function of the table.
  template <typename Function>
  typename Function::type get() const {
    return reinterpret_cast<typename Function::type>(table_[Function::place]);
  }

  // Calls a function; a status that it returns is its failure's message, empty without one.
  template <typename Function, typename... Arguments>
  std::string call(Arguments... arguments) const {
    static_assert(std::is_invocable_r_v<OrtStatus*, typename Function::type, Arguments...>);
    return take_message(get<Function>()(arguments...));
  }

  OrtEnv* environment() const { return environment_; }
  // What describes memory of the processor.
  OrtMemoryInfo* memory() const { return memory_; }

  // ONNX's number of a tensor's type; 0 where it has none.
  static int type_of(DLDataType type);
  // Bytes of an element of ONNX's type; 0 where that isn't fixed.
  static size_t bytes_of(int type);
  static constexpr int kStrings = 8;

 private:
  std::string take_message(OrtStatus* status) const;
  void close();

  void* handle_ = nullptr;
  void* const* table_ = nullptr;
  OrtEnv* environment_ = nullptr;
  OrtMemoryInfo* memory_ = nullptr;
};

}  // namespace veltair::engine
