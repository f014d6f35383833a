#include "native/engine/workspace.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

namespace veltair::engine {

WorkspacePool::~WorkspacePool() {
  for (Header* header : idle_) {
    while (header != nullptr) std::free(std::exchange(header, header->next));
  }
}

WorkspacePool& WorkspacePool::of_this_thread() {
  thread_local WorkspacePool pool;
  return pool;
}

void* WorkspacePool::allocate(uint64_t bytes) {
  const auto width = static_cast<int>(std::bit_width(std::max<uint64_t>(bytes, 1) - 1));
  const int bits = std::max(width, kSmallestClass);
  const int size_class = bits - kSmallestClass;
  if (size_class >= kClasses) return nullptr;
  Header*& idle = idle_[size_class];
  Header* header = idle;
  if (header != nullptr) {
    idle = header->next;
    idle_bytes_ -= uint64_t{1} << bits;
  } else {
    void* memory = std::aligned_alloc(kAlignment, sizeof(Header) + (size_t{1} << bits));
    if (memory == nullptr) return nullptr;
    header = new (memory) Header{nullptr, size_class};
  }
  return header + 1;
}

void WorkspacePool::free(void* block) {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  header->next = idle_[header->size_class];
  idle_[header->size_class] = header;
  idle_bytes_ += uint64_t{1} << (header->size_class + kSmallestClass);
}

}  // namespace veltair::engine
