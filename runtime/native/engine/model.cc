#include "native/engine/model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "native/engine/error.h"

namespace veltair::engine {
namespace {

constexpr int64_t kMostDimensions = 16;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw ArtifactError("manifest: " + where + ": " + what + "; compile the model again");
}

// The size of the storage that `argument` lies in.
int64_t storage_bytes(const ModelSpec& spec, const ArgumentSpec& argument,
                      const std::string& where) {
  const auto pick = [&](const std::vector<int64_t>& sizes) {
    if (argument.index < 0 || argument.index >= static_cast<int64_t>(sizes.size())) {
      refuse(where, "index " + std::to_string(argument.index) + " of " +
                        std::to_string(sizes.size()) + " inputs or outputs");
    }
    return sizes[static_cast<size_t>(argument.index)];
  };
  switch (argument.storage) {
    case Storage::kInput:
      return pick(spec.input_bytes);
    case Storage::kOutput:
      return pick(spec.output_bytes);
    case Storage::kWeights:
      return spec.weights_bytes;
    case Storage::kArena:
      return spec.arena_bytes;
    case Storage::kBordered:
      return spec.bordered_bytes;
  }
  refuse(where, "unknown storage");
}

// The offset just past the last byte that the view reaches; -1 where that is no number.
int64_t end_bytes(const ArgumentSpec& argument, int64_t item_bytes) {
  int64_t last = 0;
  for (size_t i = 0; i < argument.shape.size(); ++i) {
    if (argument.shape[i] == 0) return argument.offset_bytes;
    int64_t step = 0;
    if (__builtin_mul_overflow(argument.shape[i] - 1, argument.strides[i], &step)) return -1;
    if (__builtin_add_overflow(last, step, &last)) return -1;
  }
  int64_t bytes = 0;
  if (__builtin_add_overflow(last, int64_t{1}, &last)) return -1;
  if (__builtin_mul_overflow(last, item_bytes, &bytes)) return -1;
  if (__builtin_add_overflow(bytes, argument.offset_bytes, &bytes)) return -1;
  return bytes;
}

void check_argument(const ModelSpec& spec, const ArgumentSpec& argument, const std::string& where) {
  const int64_t item_bytes = (argument.dtype.bits + 7) / 8 * int64_t{argument.dtype.lanes};
  if (item_bytes <= 0) refuse(where, "a type without a size");
  const auto dimensions = static_cast<int64_t>(argument.shape.size());
  if (dimensions != static_cast<int64_t>(argument.strides.size()) || dimensions > kMostDimensions) {
    refuse(where, std::to_string(dimensions) + " dimensions, " +
                      std::to_string(argument.strides.size()) + " strides");
  }
  for (size_t i = 0; i < argument.shape.size(); ++i) {
    if (argument.shape[i] < 0 || argument.strides[i] < 0) {
      refuse(where, "a negative dimension or stride");
    }
  }
  if (argument.offset_bytes < 0 || argument.offset_bytes % item_bytes != 0) {
    refuse(where, "offset " + std::to_string(argument.offset_bytes) + " of items of " +
                      std::to_string(item_bytes) + " bytes");
  }
  const int64_t size = storage_bytes(spec, argument, where);
  const int64_t end = end_bytes(argument, item_bytes);
  if (end < 0 || end > size) {
    refuse(where,
           "ends at byte " + std::to_string(end) + " of a storage of " + std::to_string(size));
  }
}

// ONNX Runtime takes dense tensors of the types that it knows, one for each name.
void check_fallback(const FallbackSpec& fallback, const VariantSpec& variant,
                    const std::string& where) {
  const size_t names = fallback.inputs.size() + fallback.outputs.size();
  if (names != variant.arguments.size()) {
    refuse(where, std::to_string(variant.arguments.size()) + " arguments for " +
                      std::to_string(names) + " names");
  }
  for (size_t i = 0; i < names; ++i) {
    const ArgumentSpec& argument = variant.arguments[i];
    const bool is_input = i < fallback.inputs.size();
    const std::string& name =
        is_input ? fallback.inputs[i] : fallback.outputs[i - fallback.inputs.size()];
    if (std::ranges::count(fallback.framed, name) > 0) {
      const bool bytes = argument.dtype.code == kDLUInt && argument.dtype.bits == 8;
      if (!bytes || argument.shape.size() != 1 ||
          argument.shape[0] < static_cast<int64_t>(sizeof(FramedHeader))) {
        refuse(where, "a framed tensor that is no array of bytes with room for its shape");
      }
    }
    if (OnnxRuntime::type_of(argument.dtype) == 0) refuse(where, "a type that ONNX doesn't have");
    const auto& shape = argument.shape;
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) continue;
    int64_t dense = 1;
    for (size_t i = argument.shape.size(); i-- > 0;) {
      if (argument.shape[i] > 1 && argument.strides[i] != dense) refuse(where, "a sparse view");
      dense *= argument.shape[i];
    }
  }
}

void check_sizes(const ModelSpec& spec) {
  bool negative = spec.weights_bytes < 0 || spec.arena_bytes < 0 || spec.bordered_bytes < 0;
  for (const int64_t bytes : spec.input_bytes) negative = negative || bytes < 0;
  for (const int64_t bytes : spec.output_bytes) negative = negative || bytes < 0;
  if (negative) refuse("sizes", "a negative size");
}

void check_borders(const ModelSpec& spec, const LayerSpec& layer) {
  for (const BorderSpec& border : layer.cleared) {
    if (border.fits(spec.arena_bytes)) continue;
    refuse("layer " + layer.name, "a border that leaves no inside, or leaves the arena");
  }
}

ModelSpec checked(ModelSpec spec) {
  check_sizes(spec);
  for (const LayerSpec& layer : spec.layers) {
    check_borders(spec, layer);
    if (layer.variants.empty()) refuse("layer " + layer.name, "no variants");
    const FallbackSpec* fallback = layer.fallback.has_value() ? &*layer.fallback : nullptr;
    for (const VariantSpec& variant : layer.variants) {
      const std::string where = "layer " + layer.name + ", kernel " + variant.symbol;
      if (variant.parallel_extent < 0 ||
          variant.parallel_extent > std::numeric_limits<int>::max()) {
        refuse(where, "parallel extent " + std::to_string(variant.parallel_extent));
      }
      for (size_t i = 0; i < variant.arguments.size(); ++i) {
        check_argument(spec, variant.arguments[i], where + ", argument " + std::to_string(i));
      }
      if (fallback != nullptr) check_fallback(*fallback, variant, where);
    }
  }
  return spec;
}

}  // namespace

Model::Model(std::shared_ptr<const FfiRuntime> ffi, ModelSpec spec)
    : spec_(checked(std::move(spec))),
      library_(std::move(ffi), spec_.kernels_path),
      weights_(spec_.weights_path, static_cast<uint64_t>(spec_.weights_bytes)) {
  for (const LayerSpec& layer : spec_.layers) add_layer(layer);
}

void Model::add_layer(const LayerSpec& layer) {
  layers_.push_back({static_cast<int>(variants_.size()), static_cast<int>(layer.variants.size())});
  for (const VariantSpec& variant : layer.variants) {
    variants_.push_back(prepared(layer, variant));
    for (const ArgumentSpec& argument : variant.arguments) arguments_.push_back(&argument);
  }
}

Model::Variant Model::prepared(const LayerSpec& layer, const VariantSpec& variant) {
  Variant made;
  made.extent = static_cast<int>(variant.parallel_extent);
  made.first_argument = static_cast<int>(arguments_.size());
  made.arguments = static_cast<int>(variant.arguments.size());
  if (!layer.fallback.has_value()) {
    made.function = library_.find(variant.symbol);
    return made;
  }
  if (!onnxruntime_) onnxruntime_ = std::make_shared<OnnxRuntime>(spec_.onnxruntime_path);
  fallbacks_.push_back(std::make_unique<Fallback>(onnxruntime_, *layer.fallback, made.extent));
  made.fallback = fallbacks_.back().get();
  return made;
}

}  // namespace veltair::engine
