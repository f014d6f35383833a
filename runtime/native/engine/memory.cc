#include "native/engine/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "native/engine/error.h"

namespace veltair::engine {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Linux 5.14; older kernels refuse them and fault pages in on use.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

ArtifactError file_error(const std::string& path, int error) {
  return ArtifactError(path + ": can't be mapped (" + std::strerror(error) + ")");
}

}  // namespace

FileMapping::FileMapping(const std::string& path, uint64_t size_bytes) : size_bytes_(size_bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw file_error(path, errno);
  struct stat status{};
  const int result = fstat(file, &status);
  if (result != 0 || static_cast<uint64_t>(status.st_size) != size_bytes) {
    const int error = errno;
    close(file);
    if (result != 0) throw file_error(path, error);
    throw ArtifactError(path + ": " + std::to_string(status.st_size) +
                        " bytes long, the manifest says " + std::to_string(size_bytes) +
                        "; compile the model again");
  }
  if (size_bytes == 0) {
    close(file);
    return;
  }
  void* mapping = mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  close(file);
  if (mapping == MAP_FAILED) throw file_error(path, error);
  // Small pages cost a convolution some per cent. What isn't in the page cache yet is read in huge
  // pages where the file system has them; what is there stays as it is, see
  // `runtime/huge_pages.py`.
  madvise(mapping, size_bytes, MADV_HUGEPAGE);
  // The first query shall find its weights present. Advice: a failure changes nothing else.
  if (madvise(mapping, size_bytes, MADV_POPULATE_READ) != 0) {
    madvise(mapping, size_bytes, MADV_WILLNEED);
  }
  data_ = static_cast<const std::byte*>(mapping);
}

FileMapping::~FileMapping() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_bytes_);
}

Arena::Arena(uint64_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  const bool huge = size_bytes >= kHugePageBytes;
  // A huge page must begin at a multiple of its size: map one more and begin inside.
  mapped_bytes_ = size_bytes + (huge ? kHugePageBytes : 0);
  if (mapped_bytes_ < size_bytes) throw std::bad_alloc();
  mapping_ =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(mapping_);
  if (huge) {
    const size_t past = reinterpret_cast<uintptr_t>(mapping_) % kHugePageBytes;
    data_ += past == 0 ? 0 : kHugePageBytes - past;
    madvise(data_, size_bytes, MADV_HUGEPAGE);
  }
  madvise(data_, size_bytes, MADV_POPULATE_WRITE);
}

Arena::~Arena() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace veltair::engine
