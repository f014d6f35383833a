// A co-runner that throws others' memory out of the caches.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "native/engine/memory.h"
#include "native/proxy/ordered_thread.h"

namespace veltair::proxy {

// A part of a file that others have mapped.
struct Victim {
  std::string path;
  int64_t file_bytes = 0;  // of the whole file
  int64_t begin_bytes = 0;
  int64_t end_bytes = 0;
};

// A thread pinned to one cpu that throws a share of its victims' pages out of all caches, the same
// pages again and again, each every half a millisecond, or as often as it can.
//
// It maps the victims' files, so that their pages are the same memory in whatever process, and
// flushes line by line. Whoever reads such a line next gets it from memory: what a co-runner does
// whose footprint fills the cache that it shares with its victims, where no co-runner of this
// machine's own can fill it, or shares one. What isn't of a file, as activations, stays.
//
// Which pages are thrown out depends on the share alone, and those of a larger share include those
// of a smaller one. What is used again within a sweep may be met in the cache: as in one that
// others fill, where what is used all the time stays. A sweep takes half a millisecond, about what
// a core of a server needs to fill its part of a last cache, or longer where the chosen bytes do,
// at some 10 to 30 GB/s.
//
// Ownership: owns its mappings and its thread; the destructor ends both. Thread-safety: any thread
// at any time.
class Evictor {
 public:
  static constexpr int64_t kWhole = 1'000'000;

  // Begins idle. Throws std::invalid_argument for no victims, a part that its file doesn't have or
  // a cpu that can't be used, engine::ArtifactError for a file that can't be mapped.
  Evictor(int cpu, std::span<const Victim> victims);

  int64_t pages() const { return evicting_.pages; }  // of the victims
  // `millionths` of the pages; 0 puts it to sleep. Returns when the thread has taken it up. Throws
  // std::invalid_argument for what is beyond `kWhole`.
  void set_share(int64_t millionths);
  // That were thrown out since the share was last set, again and again.
  int64_t evicted_bytes() const { return evicting_.bytes.load(std::memory_order_relaxed); }

 private:
  struct Part {
    std::unique_ptr<const engine::FileMapping> file;
    const std::byte* begin;  // of a page
    int64_t pages;
  };
  struct Evicting final : Job {
    explicit Evicting(std::span<const Victim> victims);
    void prepare() override {}
    void begin() override { bytes.store(0); }
    void follow(int64_t millionths, const OrderedThread& thread) override;

    std::vector<Part> parts;
    int64_t pages = 0;
    std::atomic<int64_t> bytes{0};
  };

  Evicting evicting_;
  OrderedThread thread_;  // ends before what it uses
};

}  // namespace veltair::proxy
