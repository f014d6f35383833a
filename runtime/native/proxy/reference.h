// The kernel that says how strongly bubbles interfere: the unit of a profile's levels.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "native/engine/memory.h"

namespace veltair::proxy {

// A dense layer's way through its weights, reduced to what interference touches: a sum over its
// memory in order, as a matrix-vector product reads its matrix. With more memory than a core's own
// caches hold it runs from the shared one.
//
// Its memory is its own, or a file's, which an `Evictor` can throw out of the caches.
//
// Ownership: owns its memory. Thread-safety: none. The thread that calls `time` is pinned to the
// cpu meanwhile and gets its affinity back.
class Reference {
 public:
  // Throws std::invalid_argument for less than one block of memory, std::bad_alloc.
  Reference(int cpu, int64_t working_set_bytes);
  // The same, and engine::ArtifactError for a file that can't be mapped or isn't as long as that.
  Reference(int cpu, const std::string& path, int64_t working_set_bytes);

  int64_t working_set_bytes() const { return blocks_ * kBlockBytes; }
  // Times one pass over the memory for each entry, after one that isn't timed. Throws
  // std::invalid_argument for a cpu that can't be used.
  void time(std::span<int64_t> pass_ns);

 private:
  static constexpr int64_t kBlockBytes = 4096;

  static int64_t blocks_of(int64_t working_set_bytes);

  const int cpu_;
  const int64_t blocks_;
  std::optional<engine::Arena> own_;
  std::optional<engine::FileMapping> file_;
  const std::byte* memory_ = nullptr;
};

}  // namespace veltair::proxy
