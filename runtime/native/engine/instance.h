// One runnable copy of a model: its activations and its prepared kernel calls.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "native/engine/gang.h"
#include "native/engine/memory.h"
#include "native/engine/model.h"

namespace veltair::engine {

// Runs a model's layers on a gang.
//
// Ownership: shares the model, the gang and the arena; bound buffers are the caller's and must
// outlive the runs. Thread-safety: none; one thread at a time, which runs all that share an arena
// and begins no run of one before it has ended that of another. Nothing allocates after
// construction.
class Instance {
 public:
  // `arena` may be larger than the model's; null: one of its own. Throws UsageError where it is
  // smaller, std::bad_alloc.
  Instance(std::shared_ptr<const Model> model, std::shared_ptr<Gang> gang,
           std::shared_ptr<Arena> arena = nullptr);
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const Model& model() const { return *model_; }
  Gang& gang() { return *gang_; }

  // Says where input or output `index` lies for the runs that follow: dense, row-major, as long as
  // the model says, aligned to kStorageAlignment. Throws UsageError.
  void bind_input(int index, const void* data);
  void bind_output(int index, void* data);

  // Runs the layers of `range` in order on the gang's granted cores, led by the calling thread.
  // `variants` has one entry for each layer of the range, or none: each layer's first. `layer_ns`,
  // unless empty, has one for each layer too and takes its duration; `least_tasks` likewise says
  // into how many tasks each layer is cut at least. Throws UsageError before anything runs,
  // KernelError with the layer's name where a kernel fails.
  void run(LayerRange range, std::span<const uint16_t> variants = {},
           std::span<int64_t> layer_ns = {}, std::span<const uint16_t> least_tasks = {});

  // Runs the whole model once for each entry of `run_ns` and puts the run's duration there.
  void time_runs(std::span<const uint16_t> variants, std::span<int64_t> run_ns);

  // The whole model.
  LayerRange all() const { return {0, model_->layers()}; }

 private:
  struct Patch {
    int tensor;
    int64_t offset_bytes;
  };

  void check_run(LayerRange range, std::span<const uint16_t> variants,
                 std::span<const int64_t> layer_ns, std::span<const uint16_t> least_tasks) const;
  void bind(std::vector<std::vector<Patch>>& patches, std::vector<char>& bound, int index,
            void* data, const char* kind);
  void run_layer(int layer, int variant);
  void run_fallback(int layer, const Model::Variant& call);

  std::shared_ptr<const Model> model_;
  std::shared_ptr<Gang> gang_;
  std::shared_ptr<Arena> arena_;
  Arena bordered_;
  std::vector<DLTensor> tensors_;     // one for each argument of the model
  std::vector<TVMFFIAny> arguments_;  // arguments_[i] points to tensors_[i]
  std::vector<std::vector<Patch>> input_patches_;
  std::vector<std::vector<Patch>> output_patches_;
  std::vector<char> input_bound_;
  std::vector<char> output_bound_;
};

}  // namespace veltair::engine
