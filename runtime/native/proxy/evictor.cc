#include "native/proxy/evictor.h"

#include <cpuid.h>
#include <immintrin.h>

#include <stdexcept>
#include <utility>

#include "native/engine/clock.h"

namespace veltair::proxy {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kLookPages = 32;              // between two looks for another order
constexpr int64_t kSweepNs = 500'000;           // at least
constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // 2^64 over the golden section

bool has_clflushopt() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & (1U << 23)) != 0;
}

__attribute__((target("clflushopt"))) void flush_at_once(const std::byte* page) {
  for (int64_t line = 0; line < kPageBytes; line += kLineBytes) {
    _mm_clflushopt(const_cast<std::byte*>(page + line));
  }
}

// Of every x86-64, line after line.
void flush_in_order(const std::byte* page) {
  for (int64_t line = 0; line < kPageBytes; line += kLineBytes) _mm_clflush(page + line);
}

// Whether a page is among so many millionths: spread evenly over neighbours.
bool is_chosen(int64_t page, int64_t millionths) {
  const uint64_t place = (static_cast<uint64_t>(page) * kStep) >> 32;  // of 2^32
  return place * Evictor::kWhole < static_cast<uint64_t>(millionths) << 32;
}

}  // namespace

Evictor::Evictor(int cpu, std::span<const Victim> victims)
    : evicting_(victims), thread_(cpu, evicting_) {}

void Evictor::set_share(int64_t millionths) {
  if (millionths < 0 || millionths > kWhole) {
    throw std::invalid_argument("an evictor's share is from 0 to " + std::to_string(kWhole) +
                                " millionths");
  }
  thread_.order(millionths);
}

Evictor::Evicting::Evicting(std::span<const Victim> victims) {
  for (const Victim& victim : victims) {
    if (victim.begin_bytes < 0 || victim.begin_bytes >= victim.end_bytes ||
        victim.end_bytes > victim.file_bytes) {
      throw std::invalid_argument(victim.path + ": has no bytes from " +
                                  std::to_string(victim.begin_bytes) + " to " +
                                  std::to_string(victim.end_bytes));
    }
    auto file = std::make_unique<const engine::FileMapping>(
        victim.path, static_cast<uint64_t>(victim.file_bytes));
    const int64_t first = victim.begin_bytes / kPageBytes;
    const int64_t past = (victim.end_bytes + kPageBytes - 1) / kPageBytes;
    const std::byte* begin = file->data() + first * kPageBytes;
    parts.push_back({.file = std::move(file), .begin = begin, .pages = past - first});
    pages += past - first;
  }
  if (parts.empty()) throw std::invalid_argument("an evictor needs a victim");
}

void Evictor::Evicting::follow(int64_t millionths, const OrderedThread& thread) {
  const auto flush = has_clflushopt() ? flush_at_once : flush_in_order;
  int64_t flushed = 0;
  while (true) {
    const int64_t begin_ns = engine::now_ns();
    const auto stands_until = [&](int64_t due_ns) {
      while (thread.stands() && engine::now_ns() < due_ns) _mm_pause();
      return thread.stands();
    };
    int64_t number = 0;
    for (const Part& part : parts) {
      for (int64_t page = 0; page < part.pages; ++page, ++number) {
        // Spread over the sweep.
        const bool looks = number % kLookPages == 0;
        if (looks && !stands_until(begin_ns + kSweepNs * number / pages)) return;
        if (!is_chosen(number, millionths)) continue;
        flush(part.begin + page * kPageBytes);
        flushed += kPageBytes;
      }
    }
    bytes.store(flushed, std::memory_order_relaxed);
    if (!stands_until(begin_ns + kSweepNs)) return;
  }
}

}  // namespace veltair::proxy
