#include "native/engine/onnxruntime.h"

#include <dlfcn.h>

#include "native/engine/error.h"

namespace veltair::engine {
namespace {

// Of the interface: the first with every function that we use.
constexpr uint32_t kVersion = 12;
constexpr int kErrorsOnly = 3;
constexpr int kDeviceAllocator = 0;
constexpr int kDefaultMemory = 0;

// What the library's only entry gives.
struct Base {
  void* const* (*table)(uint32_t version);
  const char* (*version)();
};

// One type of one lane: DLPack's code and bits, ONNX's number.
struct TypeNumber {
  DLDataTypeCode code;
  uint8_t bits;
  int number;
};

constexpr TypeNumber kTypes[] = {{kDLFloat, 32, 1},  {kDLUInt, 8, 2},   {kDLInt, 8, 3},
                                 {kDLUInt, 16, 4},   {kDLInt, 16, 5},   {kDLInt, 32, 6},
                                 {kDLInt, 64, 7},    {kDLBool, 8, 9},   {kDLFloat, 16, 10},
                                 {kDLFloat, 64, 11}, {kDLUInt, 32, 12}, {kDLUInt, 64, 13},
                                 {kDLBfloat, 16, 16}};

}  // namespace

OnnxRuntime::OnnxRuntime(const std::string& path)
    : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw ArtifactError(path + ": can't be opened: " + dlerror());
  const auto entry = reinterpret_cast<const Base* (*)()>(dlsym(handle_, "OrtGetApiBase"));
  table_ = entry == nullptr ? nullptr : entry()->table(kVersion);
  if (table_ == nullptr) {
    close();
    throw ArtifactError(path + ": not ONNX Runtime, or older than version 1." +
                        std::to_string(kVersion));
  }
  std::string error = call<ort::CreateEnv>(kErrorsOnly, "veltair", &environment_);
  if (error.empty()) {
    error = call<ort::CreateCpuMemoryInfo>(kDeviceAllocator, kDefaultMemory, &memory_);
  }
  if (!error.empty()) {
    close();
    throw ArtifactError(path + ": " + error);
  }
}

OnnxRuntime::~OnnxRuntime() { close(); }

// The library itself stays: what it has begun in other threads may outlive us.
void OnnxRuntime::close() {
  if (memory_ != nullptr) get<ort::ReleaseMemoryInfo>()(memory_);
  if (environment_ != nullptr) get<ort::ReleaseEnv>()(environment_);
}

std::string OnnxRuntime::take_message(OrtStatus* status) const {
  if (status == nullptr) return {};
  std::string message = get<ort::GetErrorMessage>()(status);
  get<ort::ReleaseStatus>()(status);
  return message.empty() ? "unknown failure" : message;
}

int OnnxRuntime::type_of(DLDataType type) {
  for (const TypeNumber& known : kTypes) {
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return known.number;
  }
  return 0;
}

size_t OnnxRuntime::bytes_of(int type) {
  for (const TypeNumber& known : kTypes) {
    if (known.number == type) return known.bits / 8U;
  }
  return 0;
}

}  // namespace veltair::engine
