#include "native/proxy/bubble.h"

#include <immintrin.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "native/engine/clock.h"
#include "native/engine/memory.h"
#include "native/proxy/pinned.h"
#include "native/proxy/walk.h"

namespace veltair::proxy {
namespace {

using engine::now_ns;

constexpr int64_t kLineBytes = 64;
constexpr int64_t kMovedBytes = 2 * Bubble::kPageBytes;  // read and written
constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr int64_t kSpreadNs = 10'000;  // what is due within it is done at once
constexpr int64_t kMostAtOnce = 128;   // pages, whatever the rate: orders are looked for between
constexpr int64_t kMostBehindNs = 20'000'000;
constexpr int64_t kLongestSpinNs = 200'000;  // a longer wait sleeps until shortly before its end
constexpr int64_t kWakeNs = 100'000;

int64_t pages_of(int64_t footprint_bytes) {
  if (footprint_bytes < Bubble::kPageBytes) {
    throw std::invalid_argument("a bubble's footprint is at least " +
                                std::to_string(Bubble::kPageBytes) + " bytes");
  }
  return footprint_bytes / Bubble::kPageBytes;
}

// Reads and writes every line of `count` pages.
void touch_pages(std::byte* memory, Walk& walk, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::byte* page = memory + walk.next() * Bubble::kPageBytes;
    for (int64_t line = 0; line < Bubble::kPageBytes; line += kLineBytes) {
      // Volatile, or a compiler might leave it out: nobody looks at what is written.
      auto* word = reinterpret_cast<volatile uint64_t*>(page + line);
      *word = *word + 1;
    }
  }
}

void sleep_for(int64_t ns) {
  const timespec length{.tv_sec = ns / kNsPerSecond, .tv_nsec = ns % kNsPerSecond};
  nanosleep(&length, nullptr);
}

}  // namespace

Bubble::Bubble(int cpu, int64_t footprint_bytes) : cpu_(cpu), pages_(pages_of(footprint_bytes)) {
  std::promise<void> ready;
  std::future<void> outcome = ready.get_future();
  thread_ = std::thread(&Bubble::run, this, std::move(ready));
  try {
    outcome.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

Bubble::~Bubble() {
  ending_.store(true);
  ordered_.fetch_add(1);
  ordered_.notify_all();
  thread_.join();
}

void Bubble::set_rate(int64_t bytes_per_s) {
  if (bytes_per_s < 0) throw std::invalid_argument("a bubble's rate is from 0 bytes a second");
  const std::lock_guard<std::mutex> lock(setting_);
  bytes_per_s_.store(bytes_per_s);
  const uint32_t order = ordered_.fetch_add(1) + 1;
  ordered_.notify_all();
  for (uint32_t seen = followed_.load(); seen != order; seen = followed_.load()) {
    followed_.wait(seen);
  }
}

BubbleReading Bubble::reading() const {
  return {.bytes = bytes_.load(std::memory_order_relaxed),
          .elapsed_ns = now_ns() - begin_ns_.load(),
          .missed_ns = missed_ns_.load(std::memory_order_relaxed)};
}

// Allocates on its own cpu, so that the memory lies on that cpu's node.
void Bubble::run(std::promise<void> ready) {
  try {
    pin_to(cpu_);
    prctl(PR_SET_TIMERSLACK, 1UL);
    engine::Arena arena(static_cast<uint64_t>(footprint_bytes()));
    memory_ = arena.data();
    begin_ns_.store(now_ns());
    ready.set_value();
    work();
  } catch (...) {
    ready.set_exception(std::current_exception());
  }
}

void Bubble::work() {
  while (true) {
    const uint32_t order = ordered_.load();  // before the look: an end that comes later changes it
    if (ending_.load()) return;
    const int64_t bytes_per_s = bytes_per_s_.load();
    bytes_.store(0);
    missed_ns_.store(0);
    begin_ns_.store(now_ns());
    followed_.store(order);
    followed_.notify_all();
    if (bytes_per_s == 0) {
      ordered_.wait(order);
    } else {
      pace(bytes_per_s);
    }
  }
}

// Touches pages until there is another order.
void Bubble::pace(int64_t bytes_per_s) {
  const uint32_t order = followed_.load(std::memory_order_relaxed);
  const double ns_per_page =
      static_cast<double>(kNsPerSecond) * kMovedBytes / static_cast<double>(bytes_per_s);
  const int64_t at_once =
      std::clamp<int64_t>(static_cast<int64_t>(kSpreadNs / ns_per_page), 1, kMostAtOnce);
  Walk walk(pages_);
  int64_t pages = 0;
  int64_t missed_ns = 0;
  const int64_t begin_ns = begin_ns_.load(std::memory_order_relaxed);
  while (ordered_.load(std::memory_order_relaxed) == order) {
    const int64_t due_ns =
        begin_ns + missed_ns + static_cast<int64_t>(static_cast<double>(pages) * ns_per_page);
    const int64_t early_ns = due_ns - now_ns();
    if (early_ns > 0) {
      if (early_ns > kLongestSpinNs) {
        sleep_for(std::min<int64_t>(early_ns - kWakeNs, kMostBehindNs));
      } else {
        _mm_pause();
      }
      continue;
    }
    if (-early_ns > kMostBehindNs) {
      missed_ns += -early_ns - kMostBehindNs;
      missed_ns_.store(missed_ns, std::memory_order_relaxed);
    }
    touch_pages(memory_, walk, at_once);
    pages += at_once;
    bytes_.store(pages * kMovedBytes, std::memory_order_relaxed);
  }
}

}  // namespace veltair::proxy
