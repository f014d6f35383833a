#include "native/engine/border.h"

#include <cstring>
#include <initializer_list>

namespace veltair::engine {

bool BorderSpec::fits(int64_t arena_bytes) const {
  for (const int64_t size : {planes, height, width, pixel_bytes}) {
    if (size <= 0) return false;
  }
  for (const int64_t size : {offset_bytes, top, left, bottom, right}) {
    if (size < 0) return false;
  }
  // Each is below the other, so that no sum overflows.
  if (top >= height || bottom >= height - top || left >= width || right >= width - left) {
    return false;
  }
  int64_t bytes = pixel_bytes;
  for (const int64_t size : {width, height, planes}) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return false;
  }
  return !__builtin_add_overflow(bytes, offset_bytes, &bytes) && bytes <= arena_bytes;
}

void clear_border(std::byte* arena, const BorderSpec& border) {
  const auto bytes = [&border](int64_t pixels) {
    return static_cast<size_t>(pixels * border.pixel_bytes);
  };
  const size_t row = bytes(border.width);
  const size_t before = bytes((border.top * border.width) + border.left);
  const size_t between = bytes(border.right + border.left);
  const size_t after = bytes(border.right + (border.bottom * border.width));
  const int64_t rows = border.height - border.top - border.bottom;
  std::byte* plane = arena + border.offset_bytes;
  for (int64_t p = 0; p < border.planes; ++p, plane += bytes(border.width * border.height)) {
    std::memset(plane, 0, before);
    std::byte* gap = plane + before + row - between;  // behind the first row's inside
    for (int64_t r = 1; r < rows; ++r, gap += row) std::memset(gap, 0, between);
    std::memset(gap, 0, after);
  }
}

}  // namespace veltair::engine
