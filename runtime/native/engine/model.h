// A loaded model: its kernels, its weights, and the checked description of every kernel call.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "native/engine/border.h"
#include "native/engine/fallback.h"
#include "native/engine/library.h"
#include "native/engine/memory.h"

namespace veltair::engine {

// Kernels load whole vectors: every storage begins at a multiple of this.
inline constexpr uint64_t kStorageAlignment = 64;

enum class Storage : int { kInput, kOutput, kWeights, kArena, kBordered };

// The description of a model as the manifest has it, in plain data.
struct ArgumentSpec {
  Storage storage = Storage::kArena;
  int64_t index = 0;
  int64_t offset_bytes = 0;
  DLDataType dtype{};
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements
};

struct VariantSpec {
  std::string symbol;
  int64_t parallel_extent = 0;  // iterations of the parallel loop, 0 where not known; a fallback's
                                // threads
  std::vector<ArgumentSpec> arguments;
};

struct LayerSpec {
  std::string name;
  std::vector<VariantSpec> variants;
  std::optional<FallbackSpec> fallback;  // what its variants run in place of kernels
  std::vector<BorderSpec> cleared;       // before it runs
};

struct ModelSpec {
  std::string kernels_path;
  std::string weights_path;
  int64_t weights_bytes = 0;
  int64_t arena_bytes = 0;     // of activations that mean nothing before a run, nor after it
  int64_t bordered_bytes = 0;  // of those whose borders stay zero
  std::vector<int64_t> input_bytes;
  std::vector<int64_t> output_bytes;
  std::vector<LayerSpec> layers;
  std::string onnxruntime_path;  // of the library; only needed where a layer falls back
};

// Which layers: [begin, end).
struct LayerRange {
  int begin = 0;
  int end = 0;
};

// Ownership: holds the library, the mapping and the sessions of layers that fall back.
// Thread-safety: immutable, shared by all instances of a process.
class Model {
 public:
  struct Variant {
    KernelFunction function = nullptr;   // null where the layer falls back
    const Fallback* fallback = nullptr;  // null where it is compiled
    int extent = 0;
    int first_argument = 0;  // among all arguments of the model
    int arguments = 0;
  };
  struct Layer {
    int first_variant = 0;  // among all variants of the model
    int variants = 0;
  };

  // Opens the files and checks the whole description: afterwards no argument of any kernel can
  // reach outside its storage. Throws ArtifactError.
  Model(std::shared_ptr<const FfiRuntime> ffi, ModelSpec spec);

  int layers() const { return static_cast<int>(layers_.size()); }
  const Layer& layer(int index) const { return layers_[index]; }
  const std::string& layer_name(int index) const { return spec_.layers[index].name; }
  const std::string& symbol(int layer, int variant) const {
    return spec_.layers[layer].variants[variant].symbol;
  }
  // What to clear before a layer runs.
  const std::vector<BorderSpec>& cleared(int layer) const { return spec_.layers[layer].cleared; }
  const std::vector<Variant>& variants() const { return variants_; }
  // All arguments of all variants, in order; they point into `spec`.
  const std::vector<const ArgumentSpec*>& arguments() const { return arguments_; }
  const ModelSpec& spec() const { return spec_; }
  const std::byte* weights() const { return weights_.data(); }
  const FfiRuntime& ffi() const { return library_.ffi(); }

 private:
  void add_layer(const LayerSpec& layer);
  Variant prepared(const LayerSpec& layer, const VariantSpec& variant);

  const ModelSpec spec_;
  Library library_;
  FileMapping weights_;
  std::shared_ptr<const OnnxRuntime> onnxruntime_;
  std::vector<std::unique_ptr<Fallback>> fallbacks_;
  std::vector<Layer> layers_;
  std::vector<Variant> variants_;
  std::vector<const ArgumentSpec*> arguments_;
};

}  // namespace veltair::engine
