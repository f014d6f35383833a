// The two memories of a model: its weights, mapped, and an instance's arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace veltair::engine {

// A whole file mapped read-only, in huge pages where the page cache holds it so. Processes that map
// the same file share its pages.
//
// Ownership: unmaps in the destructor. Thread-safety: immutable. The file must not be cut short
// while it is mapped: artifacts are replaced by renaming, never written in place.
class FileMapping {
 public:
  // Throws ArtifactError where the file can't be mapped or isn't `size_bytes` long.
  FileMapping(const std::string& path, uint64_t size_bytes);
  ~FileMapping();
  FileMapping(const FileMapping&) = delete;
  FileMapping& operator=(const FileMapping&) = delete;

  const std::byte* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  const std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

// Zeroed memory of the process's own, present from the start, in huge pages where it is large.
//
// Ownership: unmaps in the destructor. Thread-safety: none beyond that of memory.
class Arena {
 public:
  // Throws std::bad_alloc.
  explicit Arena(uint64_t size_bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

}  // namespace veltair::engine
