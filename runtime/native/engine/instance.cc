#include "native/engine/instance.h"

#include <algorithm>
#include <string>
#include <utility>

#include "native/engine/clock.h"
#include "native/engine/entry.h"
#include "native/engine/error.h"

namespace veltair::engine {
namespace {

std::shared_ptr<Arena> fitting(std::shared_ptr<Arena> arena, const Model& model) {
  const auto bytes = static_cast<uint64_t>(model.spec().arena_bytes);
  if (!arena) return std::make_shared<Arena>(bytes);
  if (arena->size_bytes() >= bytes) return arena;
  throw UsageError("an arena of " + std::to_string(arena->size_bytes()) + " bytes, the model has " +
                   std::to_string(bytes));
}

}  // namespace

Instance::Instance(std::shared_ptr<const Model> model, std::shared_ptr<Gang> gang,
                   std::shared_ptr<Arena> arena)
    : model_(std::move(model)),
      gang_(std::move(gang)),
      arena_(fitting(std::move(arena), *model_)),
      bordered_(static_cast<uint64_t>(model_->spec().bordered_bytes)),
      input_patches_(model_->spec().input_bytes.size()),
      output_patches_(model_->spec().output_bytes.size()),
      input_bound_(model_->spec().input_bytes.size(), 0),
      output_bound_(model_->spec().output_bytes.size(), 0) {
  const auto& specs = model_->arguments();
  tensors_.resize(specs.size());
  arguments_.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const ArgumentSpec& spec = *specs[i];
    DLTensor& tensor = tensors_[i];
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(spec.shape.size());
    tensor.dtype = spec.dtype;
    // Kernels only read them; the C structure doesn't say so.
    tensor.shape = const_cast<int64_t*>(spec.shape.data());
    tensor.strides = const_cast<int64_t*>(spec.strides.data());
    // The offset goes into the pointer: kernels insist on a byte_offset of 0.
    tensor.byte_offset = 0;
    const Patch patch{static_cast<int>(i), spec.offset_bytes};
    switch (spec.storage) {
      case Storage::kInput:
        input_patches_[static_cast<size_t>(spec.index)].push_back(patch);
        break;
      case Storage::kOutput:
        output_patches_[static_cast<size_t>(spec.index)].push_back(patch);
        break;
      case Storage::kWeights:
        tensor.data = const_cast<std::byte*>(model_->weights()) + spec.offset_bytes;
        break;
      case Storage::kArena:
        tensor.data = arena_->data() + spec.offset_bytes;
        break;
      case Storage::kBordered:
        tensor.data = bordered_.data() + spec.offset_bytes;
        break;
    }
    arguments_[i].type_index = kTVMFFIDLTensorPtr;
    arguments_[i].v_ptr = &tensor;
  }
}

void Instance::bind_input(int index, const void* data) {
  bind(input_patches_, input_bound_, index, const_cast<void*>(data), "input");
}

void Instance::bind_output(int index, void* data) {
  bind(output_patches_, output_bound_, index, data, "output");
}

void Instance::bind(std::vector<std::vector<Patch>>& patches, std::vector<char>& bound, int index,
                    void* data, const char* kind) {
  if (index < 0 || static_cast<size_t>(index) >= patches.size()) {
    throw UsageError(std::string(kind) + " " + std::to_string(index) + ": the model has " +
                     std::to_string(patches.size()));
  }
  if (data == nullptr || reinterpret_cast<uintptr_t>(data) % kStorageAlignment != 0) {
    throw UsageError(std::string(kind) + " " + std::to_string(index) +
                     ": its buffer must be aligned to " + std::to_string(kStorageAlignment) +
                     " bytes");
  }
  for (const Patch& patch : patches[static_cast<size_t>(index)]) {
    tensors_[static_cast<size_t>(patch.tensor)].data =
        static_cast<std::byte*>(data) + patch.offset_bytes;
  }
  bound[static_cast<size_t>(index)] = 1;
}

void Instance::check_run(LayerRange range, std::span<const uint16_t> variants,
                         std::span<const int64_t> layer_ns,
                         std::span<const uint16_t> least_tasks) const {
  if (range.begin < 0 || range.begin > range.end || range.end > model_->layers()) {
    throw UsageError("layers " + std::to_string(range.begin) + ".." + std::to_string(range.end) +
                     ": the model has " + std::to_string(model_->layers()));
  }
  const auto count = static_cast<size_t>(range.end - range.begin);
  if ((!variants.empty() && variants.size() != count) ||
      (!layer_ns.empty() && layer_ns.size() != count) ||
      (!least_tasks.empty() && least_tasks.size() != count)) {
    throw UsageError("run: " + std::to_string(count) + " layers, " +
                     std::to_string(variants.size()) + " variants, room for " +
                     std::to_string(layer_ns.size()) + " times, " +
                     std::to_string(least_tasks.size()) + " numbers of tasks");
  }
  for (size_t i = 0; i < variants.size(); ++i) {
    const int layer = range.begin + static_cast<int>(i);
    if (variants[i] >= model_->layer(layer).variants) {
      throw UsageError("layer " + model_->layer_name(layer) + ": variant " +
                       std::to_string(variants[i]) + " of " +
                       std::to_string(model_->layer(layer).variants));
    }
  }
  if (std::count(input_bound_.begin(), input_bound_.end(), 0) != 0 ||
      std::count(output_bound_.begin(), output_bound_.end(), 0) != 0) {
    throw UsageError("run: bind all inputs and outputs first");
  }
}

void Instance::run(LayerRange range, std::span<const uint16_t> variants,
                   std::span<int64_t> layer_ns, std::span<const uint16_t> least_tasks) {
  check_run(range, variants, layer_ns, least_tasks);
  const Gang::Leader leader(*gang_);
  KernelScope scope(model_->ffi());
  int64_t begin_ns = layer_ns.empty() ? 0 : now_ns();
  for (int layer = range.begin; layer < range.end; ++layer) {
    const auto i = static_cast<size_t>(layer - range.begin);
    const int variant = variants.empty() ? 0 : variants[i];
    scope.set_loop({model_->variants()[model_->layer(layer).first_variant + variant].extent,
                    least_tasks.empty() ? 1 : least_tasks[i]});
    run_layer(layer, variant);
    if (layer_ns.empty()) continue;
    const int64_t end_ns = now_ns();
    layer_ns[i] = end_ns - begin_ns;
    begin_ns = end_ns;
  }
}

void Instance::time_runs(std::span<const uint16_t> variants, std::span<int64_t> run_ns) {
  for (int64_t& ns : run_ns) {
    const int64_t begin_ns = now_ns();
    run(all(), variants);
    ns = now_ns() - begin_ns;
  }
}

void Instance::run_layer(int layer, int variant) {
  for (const BorderSpec& border : model_->cleared(layer)) clear_border(arena_->data(), border);
  const Model::Variant& call = model_->variants()[model_->layer(layer).first_variant + variant];
  if (call.fallback != nullptr) {
    run_fallback(layer, call);
    return;
  }
  TVMFFIAny result{};
  result.type_index = kTVMFFINone;
  if (call.function(nullptr, arguments_.data() + call.first_argument, call.arguments, &result) == 0)
    return;
  throw KernelError("layer " + model_->layer_name(layer) + ", kernel " +
                    model_->symbol(layer, variant) + ": " + model_->ffi().take_message());
}

void Instance::run_fallback(int layer, const Model::Variant& call) {
  const Gang::Followers followers(*gang_, call.fallback->threads());
  try {
    call.fallback->run(
        {tensors_.data() + call.first_argument, static_cast<size_t>(call.arguments)});
  } catch (const KernelError& error) {
    throw KernelError("layer " + model_->layer_name(layer) + ": " + error.what());
  }
}

}  // namespace veltair::engine
