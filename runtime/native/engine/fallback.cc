#include "native/engine/fallback.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "native/engine/error.h"

namespace veltair::engine {
namespace {

constexpr int kErrorsOnly = 3;

size_t bytes_of(const DLTensor& tensor) {
  size_t bytes = size_t{tensor.dtype.lanes} * ((tensor.dtype.bits + 7) / 8);
  for (int32_t i = 0; i < tensor.ndim; ++i) bytes *= static_cast<size_t>(tensor.shape[i]);
  return bytes;
}

// Options of a session, freed with it.
class Options {
 public:
  explicit Options(const OnnxRuntime& library) : library_(library) {
    set<ort::CreateSessionOptions>(&options_);
  }
  ~Options() {
    if (options_ != nullptr) library_.get<ort::ReleaseSessionOptions>()(options_);
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  template <typename Function, typename... Arguments>
  void set(Arguments... arguments) {
    const std::string error = library_.call<Function>(arguments...);
    if (!error.empty()) throw ArtifactError("ONNX Runtime's options: " + error);
  }
  OrtSessionOptions* get() const { return options_; }

 private:
  const OnnxRuntime& library_;
  OrtSessionOptions* options_ = nullptr;
};

// What a run reads and writes, freed with it.
class Values {
 public:
  Values(const OnnxRuntime& library, size_t count) : library_(library), values_(count, nullptr) {}
  ~Values() {
    for (OrtValue* value : values_) {
      if (value != nullptr) library_.get<ort::ReleaseValue>()(value);
    }
  }
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  OrtValue** data() { return values_.data(); }
  OrtValue*& operator[](size_t i) { return values_[i]; }

 private:
  const OnnxRuntime& library_;
  std::vector<OrtValue*> values_;
};

}  // namespace

Fallback::Fallback(std::shared_ptr<const OnnxRuntime> library, const FallbackSpec& spec,
                   int threads)
    : library_(std::move(library)), names_(spec.inputs), inputs_(spec.inputs.size()) {
  names_.insert(names_.end(), spec.outputs.begin(), spec.outputs.end());
  for (const std::string& name : names_) {
    name_pointers_.push_back(name.c_str());
    framed_.push_back(std::ranges::count(spec.framed, name) > 0 ? 1 : 0);
  }
  threads_.reserve(static_cast<size_t>(std::max(threads, 1)));
  Options options(*library_);
  options.set<ort::SetSessionLogSeverityLevel>(options.get(), kErrorsOnly);
  options.set<ort::SetIntraOpNumThreads>(options.get(), std::max(threads, 1));
  options.set<ort::SetInterOpNumThreads>(options.get(), 1);
  // Cores go to another model as soon as a layer ends.
  options.set<ort::AddSessionConfigEntry>(options.get(), "session.force_spinning_stop", "1");
  options.set<ort::SetMakeThread>(options.get(), &Fallback::make_thread);
  options.set<ort::SetThreadOptions>(options.get(), static_cast<void*>(this));
  options.set<ort::SetJoinThread>(options.get(), &Fallback::join_thread);
  const std::string error = library_->call<ort::CreateSession>(
      library_->environment(), spec.path.c_str(), options.get(), &session_);
  if (!error.empty()) {
    throw ArtifactError(spec.path + ": ONNX Runtime can't load it: " + error +
                        "; compile the model again");
  }
}

Fallback::~Fallback() { library_->get<ort::ReleaseSession>()(session_); }

// Signals are for the process's own threads; a thread inherits the mask of its maker.
const void* Fallback::make_thread(void* self, OrtWork work, void* argument) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto thread = std::make_unique<std::thread>(work, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread->native_handle(), "veltair/onnx");
  static_cast<Fallback*>(self)->threads_.push_back(thread->native_handle());
  return thread.release();
}

void Fallback::join_thread(const void* thread) {
  const std::unique_ptr<std::thread> owned(
      static_cast<std::thread*>(const_cast<void*>(thread)));  // as `make_thread` gave it away
  owned->join();
}

void Fallback::run(std::span<const DLTensor> tensors) const {
  if (tensors.size() != names_.size()) {
    throw KernelError(std::to_string(tensors.size()) + " arguments for " +
                      std::to_string(names_.size()) + " names");
  }
  Values values(*library_, tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const DLTensor& tensor = tensors[i];
    if (framed_[i] == 0) {
      call<ort::CreateTensorWithDataAsOrtValue>(library_->memory(), tensor.data, bytes_of(tensor),
                                                tensor.shape, static_cast<size_t>(tensor.ndim),
                                                OnnxRuntime::type_of(tensor.dtype), &values[i]);
    } else if (i < inputs_) {
      values[i] = framed_strings(tensor, names_[i]);
    }  // a framed output is of the library's making
  }
  call<ort::Run>(session_, static_cast<const OrtRunOptions*>(nullptr), name_pointers_.data(),
                 static_cast<const OrtValue* const*>(values.data()), inputs_,
                 name_pointers_.data() + inputs_, names_.size() - inputs_, values.data() + inputs_);
  for (size_t i = inputs_; i < tensors.size(); ++i) {
    if (framed_[i] != 0) keep(values[i], tensors[i], names_[i]);
  }
}

template <typename Function, typename... Arguments>
void Fallback::call(Arguments... arguments) const {
  const std::string error = library_->call<Function>(arguments...);
  if (!error.empty()) throw KernelError("ONNX Runtime: " + error);
}

// A string tensor of its framed form. Whoever wrote that may be another process: nothing in it is
// taken on trust.
OrtValue* Fallback::framed_strings(const DLTensor& tensor, const std::string& name) const {
  const size_t room = bytes_of(tensor) - sizeof(FramedHeader);
  const auto* begin = static_cast<const char*>(tensor.data);
  FramedHeader header;
  std::memcpy(&header, begin, sizeof header);
  const auto bad = [&name] { return KernelError("input '" + name + "': damaged strings"); };
  if (header.bytes < 0 || static_cast<size_t>(header.bytes) > room || header.rank < 0 ||
      header.rank > FramedHeader::kMostDimensions) {
    throw bad();
  }
  std::vector<std::string> strings;
  const char* at = begin + sizeof header;
  const char* const end = at + header.bytes;
  while (at < end) {
    uint32_t size = 0;
    if (end - at < static_cast<int64_t>(sizeof size)) throw bad();
    std::memcpy(&size, at, sizeof size);
    at += sizeof size;
    if (end - at < static_cast<int64_t>(size)) throw bad();
    strings.emplace_back(at, size);
    at += size;
  }
  int64_t count = 1;
  for (int64_t d = 0; d < header.rank; ++d) {
    if (header.dimensions[d] < 0 || __builtin_mul_overflow(count, header.dimensions[d], &count)) {
      throw bad();
    }
  }
  if (count != static_cast<int64_t>(strings.size())) throw bad();
  std::vector<const char*> pointers;
  pointers.reserve(strings.size());
  for (const std::string& string : strings) pointers.push_back(string.c_str());
  OrtAllocator* allocator = nullptr;
  call<ort::GetAllocatorWithDefaultOptions>(&allocator);
  Values made(*library_, 1);
  call<ort::CreateTensorAsOrtValue>(allocator, static_cast<const int64_t*>(header.dimensions),
                                    static_cast<size_t>(header.rank), OnnxRuntime::kStrings,
                                    &made[0]);
  call<ort::FillStringTensor>(made[0], pointers.data(), pointers.size());
  return std::exchange(made[0], nullptr);
}

// Copies an output that ONNX Runtime has made into its framed form.
void Fallback::keep(OrtValue* value, const DLTensor& tensor, const std::string& name) const {
  OrtTensorInfo* info = nullptr;
  call<ort::GetTensorTypeAndShape>(static_cast<const OrtValue*>(value), &info);
  const std::unique_ptr<OrtTensorInfo, void (*)(OrtTensorInfo*)> owned(
      info, library_->get<ort::ReleaseTensorInfo>());
  int type = 0;
  size_t rank = 0;
  FramedHeader header;
  call<ort::GetTensorElementType>(static_cast<const OrtTensorInfo*>(info), &type);
  call<ort::GetDimensionsCount>(static_cast<const OrtTensorInfo*>(info), &rank);
  if (rank > FramedHeader::kMostDimensions) {
    throw KernelError("output '" + name + "' has " + std::to_string(rank) +
                      " dimensions, more than " + std::to_string(FramedHeader::kMostDimensions));
  }
  call<ort::GetDimensions>(static_cast<const OrtTensorInfo*>(info),
                           static_cast<int64_t*>(header.dimensions), rank);
  header.rank = static_cast<int64_t>(rank);
  size_t count = 1;
  for (size_t d = 0; d < rank; ++d) count *= static_cast<size_t>(header.dimensions[d]);

  size_t text = 0;
  if (type == OnnxRuntime::kStrings) {
    call<ort::GetStringTensorDataLength>(static_cast<const OrtValue*>(value), &text);
  }
  const size_t bytes = type == OnnxRuntime::kStrings ? text + count * sizeof(uint32_t)
                                                     : count * OnnxRuntime::bytes_of(type);
  const size_t room = bytes_of(tensor) - sizeof header;
  if (bytes > room) {
    throw KernelError("output '" + name + "' has " + std::to_string(bytes) +
                      " bytes, room is for " + std::to_string(room) +
                      "; compile the model again with --most-bytes " + name + "=" +
                      std::to_string(bytes) + " or more");
  }
  header.bytes = static_cast<int64_t>(bytes);
  auto* target = static_cast<char*>(tensor.data);
  std::memcpy(target, &header, sizeof header);
  target += sizeof header;
  if (type != OnnxRuntime::kStrings) {
    void* elements = nullptr;
    call<ort::GetTensorMutableData>(value, &elements);
    if (bytes > 0) std::memcpy(target, elements, bytes);
    return;
  }
  std::vector<char> joined(text);
  std::vector<size_t> offsets(count);
  call<ort::GetStringTensorContent>(static_cast<const OrtValue*>(value),
                                    static_cast<void*>(joined.data()), text, offsets.data(), count);
  offsets.push_back(text);
  for (size_t i = 0; i < count; ++i) {
    const auto size = static_cast<uint32_t>(offsets[i + 1] - offsets[i]);
    std::memcpy(target, &size, sizeof size);
    std::memcpy(target + sizeof size, joined.data() + offsets[i], size);
    target += sizeof size + size;
  }
}

}  // namespace veltair::engine
