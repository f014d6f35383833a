// A co-runner with a set footprint in the shared cache and a set bandwidth.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "native/engine/memory.h"
#include "native/proxy/ordered_thread.h"

namespace veltair::proxy {

// What a bubble has done since its rate was last set.
struct BubbleReading {
  int64_t bytes = 0;
  int64_t elapsed_ns = 0;
  int64_t missed_ns = 0;  // of its schedule, given up because it was too far behind
};

// A thread pinned to one cpu that reads and writes its memory, all of it and nothing else, at a set
// rate: that of the bytes that it reads and those that it writes together.
//
// It takes page after page in the order of `Walk` and in a page line after line. Prefetchers don't
// go beyond a page, so all that they fetch is wanted, the bytes counted are the bytes moved into
// and out of its core once the footprint exceeds the core's own caches, and the rate can be as high
// as any kernel's. It writes because layers do, and because a line that has been written costs the
// shared cache more than one that has been read.
//
// It spins between pages, so that they are spread evenly down to some 10 us and a kernel beside it
// meets the same rate however short it is. It makes up for up to 20 ms in which it didn't run; what
// is beyond that is missed.
//
// Ownership: owns its memory and its thread; the destructor ends both. Thread-safety: any thread at
// any time.
class Bubble {
 public:
  static constexpr int64_t kPageBytes = 4096;

  // `footprint_bytes` is rounded down to pages. Begins idle. Throws std::invalid_argument
  // for less than one page or a cpu that can't be used, std::bad_alloc.
  Bubble(int cpu, int64_t footprint_bytes);

  int cpu() const { return thread_.cpu(); }
  int64_t footprint_bytes() const { return moving_.pages * kPageBytes; }
  // 0 puts it to sleep. Returns when the thread has taken the rate up. Throws std::invalid_argument
  // for a negative rate.
  void set_rate(int64_t bytes_per_s);
  BubbleReading reading() const;

 private:
  struct Moving final : Job {
    explicit Moving(int64_t count) : pages(count) {}
    void prepare() override;
    void begin() override;
    void follow(int64_t bytes_per_s, const OrderedThread& thread) override;

    const int64_t pages;
    std::unique_ptr<engine::Arena> memory;
    std::atomic<int64_t> bytes{0};
    std::atomic<int64_t> missed_ns{0};
  };

  Moving moving_;
  OrderedThread thread_;  // ends before what it uses
};

}  // namespace veltair::proxy
