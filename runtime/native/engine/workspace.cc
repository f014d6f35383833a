#include "native/engine/workspace.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

namespace veltair::engine {

WorkspacePool::~WorkspacePool() { release_below(kClasses); }

WorkspacePool& WorkspacePool::of_this_thread() {
  thread_local WorkspacePool pool;
  return pool;
}

void* WorkspacePool::allocate(uint64_t bytes) {
  const auto width = static_cast<int>(std::bit_width(std::max<uint64_t>(bytes, 1) - 1));
  const int bits = std::max(width, kSmallestClass);
  const int wanted = bits - kSmallestClass;
  if (wanted >= kClasses) return nullptr;
  const uint64_t fitting = filled_ >> wanted << wanted;
  if (fitting != 0) return take(std::countr_zero(fitting)) + 1;
  // What is idle was too small for this kernel, and this block will do for the others.
  release_below(wanted);
  void* memory = std::aligned_alloc(kAlignment, sizeof(Header) + (size_t{1} << bits));
  if (memory == nullptr) return nullptr;
  return new (memory) Header{nullptr, wanted} + 1;
}

void WorkspacePool::free(void* block) {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  header->next = idle_[header->size_class];
  idle_[header->size_class] = header;
  filled_ |= uint64_t{1} << header->size_class;
  idle_bytes_ += uint64_t{1} << (header->size_class + kSmallestClass);
}

WorkspacePool::Header* WorkspacePool::take(int size_class) {
  Header* header = idle_[size_class];
  idle_[size_class] = header->next;
  if (header->next == nullptr) filled_ &= ~(uint64_t{1} << size_class);
  idle_bytes_ -= uint64_t{1} << (size_class + kSmallestClass);
  return header;
}

void WorkspacePool::release_below(int size_class) {
  for (int smaller = 0; smaller < size_class; ++smaller) {
    while (idle_[smaller] != nullptr) std::free(take(smaller));
  }
}

}  // namespace veltair::engine
