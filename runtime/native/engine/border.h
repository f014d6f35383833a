// Borders of zeros around activations, for readers that pad.
#pragma once

#include <cstddef>
#include <cstdint>

namespace veltair::engine {

// A tensor with a border: `planes` images of `height` rows of `width` pixels, border included, one
// after the other.
struct BorderSpec {
  int64_t offset_bytes = 0;  // in the arena
  int64_t planes = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t pixel_bytes = 0;
  int64_t top = 0;  // rows, and of left and right columns, that are the border
  int64_t left = 0;
  int64_t bottom = 0;
  int64_t right = 0;

  // Whether the inside is not empty, and the tensor lies within `arena_bytes`.
  bool fits(int64_t arena_bytes) const;
};

// Sets the border to zero; the inside stays.
void clear_border(std::byte* arena, const BorderSpec& border);

}  // namespace veltair::engine
