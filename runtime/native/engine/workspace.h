// Scratch memory that kernels ask for while they run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace veltair::engine {

// Keeps freed blocks by size, so that a kernel's second run asks the system for nothing. A kernel
// takes the smallest that is large enough; where none is, those that are idle make room for a
// larger one, so that the memory is what the kernel with the most needs, not what all need.
//
// Thread-safety: none; each thread uses its own, `of_this_thread`. A block may be freed into
// another thread's pool than it came from: it carries its size class and moves over.
class WorkspacePool {
 public:
  static constexpr size_t kAlignment = 64;

  WorkspacePool() = default;
  ~WorkspacePool();
  WorkspacePool(const WorkspacePool&) = delete;
  WorkspacePool& operator=(const WorkspacePool&) = delete;

  // The calling thread's pool; its blocks are given back when the thread ends. TVM's interface
  // carries no context by which it could be found otherwise.
  static WorkspacePool& of_this_thread();

  // At least `bytes` of uninitialised memory aligned to `kAlignment`, or null: out of memory.
  void* allocate(uint64_t bytes);
  // Takes back what `allocate` of any pool gave; null is ignored.
  void free(void* block);
  // Bytes that lie ready for reuse.
  uint64_t idle_bytes() const { return idle_bytes_; }

 private:
  static constexpr int kSmallestClass = 6;  // of 2**6 bytes
  static constexpr int kClasses = 40 - kSmallestClass;

  // Lies before the block it describes.
  struct alignas(kAlignment) Header {
    Header* next;
    int size_class;
  };

  Header* take(int size_class);
  void release_below(int size_class);

  std::array<Header*, kClasses> idle_{};
  uint64_t filled_ = 0;  // a bit for each size class that has an idle block
  uint64_t idle_bytes_ = 0;
};

}  // namespace veltair::engine
