#include "native/proxy/reference.h"

#include <array>
#include <cstring>
#include <stdexcept>
#include <string>

#include "native/engine/clock.h"
#include "native/proxy/pinned.h"

namespace veltair::proxy {
namespace {

constexpr int64_t kWords = 512;  // of a block
constexpr int64_t kSums = 32;    // independent, so that reading sets the pace, not adding

uint64_t sum(const std::byte* memory, int64_t blocks) {
  std::array<uint64_t, kSums> sums{};
  std::array<uint64_t, kWords> words;
  for (int64_t block = 0; block < blocks; ++block) {
    std::memcpy(words.data(), memory + block * sizeof words, sizeof words);
    for (int64_t word = 0; word < kWords; word += kSums) {
      for (int64_t i = 0; i < kSums; ++i) sums[i] += words[word + i];
    }
  }
  uint64_t all = 0;
  for (const uint64_t each : sums) all += each;
  return all;
}

}  // namespace

int64_t Reference::blocks_of(int64_t working_set_bytes) {
  static_assert(kBlockBytes == kWords * sizeof(uint64_t));
  if (working_set_bytes < kBlockBytes) {
    throw std::invalid_argument("the reference kernel's memory is at least " +
                                std::to_string(kBlockBytes) + " bytes");
  }
  return working_set_bytes / kBlockBytes;
}

Reference::Reference(int cpu, int64_t working_set_bytes)
    : cpu_(cpu), blocks_(blocks_of(working_set_bytes)) {
  memory_ = own_.emplace(static_cast<uint64_t>(blocks_ * kBlockBytes)).data();
}

Reference::Reference(int cpu, const std::string& path, int64_t working_set_bytes)
    : cpu_(cpu), blocks_(blocks_of(working_set_bytes)) {
  memory_ = file_.emplace(path, static_cast<uint64_t>(working_set_bytes)).data();
}

void Reference::time(std::span<int64_t> pass_ns) {
  const Pinned pinned(cpu_);
  volatile uint64_t sink = sum(memory_, blocks_);
  for (int64_t& ns : pass_ns) {
    const int64_t begin_ns = engine::now_ns();
    sink = sink + sum(memory_, blocks_);
    ns = engine::now_ns() - begin_ns;
  }
}

}  // namespace veltair::proxy
