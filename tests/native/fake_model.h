// A model of three layers over the kernels of fake_kernels.cc.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "native/engine/model.h"

namespace veltair::engine::fakes {

inline constexpr int64_t kLength = 1000;
inline constexpr int64_t kBytes = kLength * 4;
inline constexpr int64_t kArenaOffset = 128;
inline constexpr DLDataType kFloat{kDLFloat, 32, 1};

// A weights file: the vector 0, 1, 2, ... Removed in the end.
class WeightsFile {
 public:
  WeightsFile() {
    const int file = mkstemp(path_);
    CHECK(file >= 0);
    std::vector<float> values(kLength);
    for (int64_t i = 0; i < kLength; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i);
    CHECK(write(file, values.data(), kBytes) == kBytes);
    close(file);
  }
  ~WeightsFile() { unlink(path_); }
  WeightsFile(const WeightsFile&) = delete;
  WeightsFile& operator=(const WeightsFile&) = delete;
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/veltair_weights_XXXXXX";
};

inline ArgumentSpec argument(Storage storage, int64_t offset_bytes = 0) {
  return {storage, 0, offset_bytes, kFloat, {kLength}, {1}};
}

inline LayerSpec add_layer(const std::string& name, ArgumentSpec in, ArgumentSpec out) {
  std::vector<ArgumentSpec> arguments = {std::move(in), argument(Storage::kWeights),
                                         std::move(out)};
  return {name, {{"add", kLength, arguments}, {"fail_silently", 0, {}}}, {}, {}};
}

// output = ((input + w) + w) + w, through two places of the arena.
inline ModelSpec add_model(const WeightsFile& weights) {
  ModelSpec spec;
  spec.kernels_path = FAKE_KERNELS;
  spec.weights_path = weights.path();
  spec.weights_bytes = kBytes;
  spec.arena_bytes = kArenaOffset + 8192;
  spec.input_bytes = {kBytes};
  spec.output_bytes = {kBytes};
  const ArgumentSpec first = argument(Storage::kArena, kArenaOffset);
  const ArgumentSpec second = argument(Storage::kArena, kArenaOffset + 4096);
  spec.layers = {add_layer("one", argument(Storage::kInput), first),
                 add_layer("two", first, second),
                 add_layer("three", second, argument(Storage::kOutput))};
  return spec;
}

// The same, with a last layer whose first outputs are the number of its tasks.
inline ModelSpec telling_model(const WeightsFile& weights) {
  ModelSpec spec = add_model(weights);
  spec.layers.back().variants.front().symbol = "tell_tasks";
  return spec;
}

inline std::shared_ptr<const FfiRuntime> ffi() { return std::make_shared<FfiRuntime>(FFI_LIBRARY); }

}  // namespace veltair::engine::fakes
