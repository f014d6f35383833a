#include "native/proxy/bubble.h"

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "native/engine/clock.h"
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

Bubble::Bubble(int cpu, int64_t footprint_bytes)
    : moving_(pages_of(footprint_bytes)), thread_(cpu, moving_) {}

void Bubble::set_rate(int64_t bytes_per_s) {
  if (bytes_per_s < 0) throw std::invalid_argument("a bubble's rate is from 0 bytes a second");
  thread_.order(bytes_per_s);
}

BubbleReading Bubble::reading() const {
  return {.bytes = moving_.bytes.load(std::memory_order_relaxed),
          .elapsed_ns = now_ns() - thread_.begin_ns(),
          .missed_ns = moving_.missed_ns.load(std::memory_order_relaxed)};
}

// On its own cpu, so that the memory lies on that cpu's node.
void Bubble::Moving::prepare() {
  memory = std::make_unique<engine::Arena>(static_cast<uint64_t>(pages * kPageBytes));
}

void Bubble::Moving::begin() {
  bytes.store(0);
  missed_ns.store(0);
}

// Touches pages until there is another order.
void Bubble::Moving::follow(int64_t bytes_per_s, const OrderedThread& thread) {
  const double ns_per_page =
      static_cast<double>(kNsPerSecond) * kMovedBytes / static_cast<double>(bytes_per_s);
  const int64_t at_once =
      std::clamp<int64_t>(static_cast<int64_t>(kSpreadNs / ns_per_page), 1, kMostAtOnce);
  Walk walk(pages);
  int64_t done = 0;
  int64_t given_up_ns = 0;
  const int64_t begin_ns = thread.begin_ns();
  while (thread.stands()) {
    const int64_t due_ns =
        begin_ns + given_up_ns + static_cast<int64_t>(static_cast<double>(done) * ns_per_page);
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
      given_up_ns += -early_ns - kMostBehindNs;
      missed_ns.store(given_up_ns, std::memory_order_relaxed);
    }
    touch_pages(memory->data(), walk, at_once);
    done += at_once;
    bytes.store(done * kMovedBytes, std::memory_order_relaxed);
  }
}

}  // namespace veltair::proxy
