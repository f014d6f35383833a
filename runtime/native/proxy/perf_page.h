// A counter of the calling thread, read without a system call.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>
#include <optional>

namespace veltair::proxy {

// What a counter held at one moment.
struct PageCount {
  uint64_t value = 0;
  uint64_t enabled_ns = 0;  // since it was opened, while its thread ran
  uint64_t running_ns = 0;  // of that, on a hardware counter
};

// Reads the counter whose page the kernel keeps at `page`; nothing where it isn't on a hardware
// counter now, or the kernel doesn't allow the instruction, or doesn't tell the time: the caller
// then asks the kernel.
//
// The kernel changes `lock` before and after it changes the rest, so what was read between two
// looks at the same value belongs together. Every load acquires: none may move behind the second
// look. The hardware's register has `pmc_width` bits; it is sign-extended, since it runs from
// below zero up to its overflow, and what it had before is in `offset`.
//
// `read_counter(index)` is the instruction RDPMC, `read_clock()` RDTSC. The counter belongs to the
// calling thread's own event: on another processor the same index counts something else.
template <typename ReadCounter, typename ReadClock>
std::optional<PageCount> read_page(const perf_event_mmap_page& page, ReadCounter read_counter,
                                   ReadClock read_clock) {
  const auto load = [](const auto& field) { return __atomic_load_n(&field, __ATOMIC_ACQUIRE); };
  while (true) {
    const uint32_t lock = load(page.lock);
    perf_event_mmap_page caps{};  // its bit fields, taken from one load
    caps.capabilities = load(page.capabilities);
    const uint32_t index = load(page.index);
    PageCount count{.value = static_cast<uint64_t>(load(page.offset)),
                    .enabled_ns = load(page.time_enabled),
                    .running_ns = load(page.time_running)};
    const bool readable = index != 0 && caps.cap_user_rdpmc && caps.cap_user_time;
    if (readable) {
      const uint64_t cycles = read_clock();
      const uint16_t shift = load(page.time_shift);
      const uint64_t multiplier = load(page.time_mult);
      const uint64_t part = cycles & ((uint64_t{1} << shift) - 1);
      const uint64_t since_ns =
          load(page.time_offset) + (cycles >> shift) * multiplier + ((part * multiplier) >> shift);
      count.enabled_ns += since_ns;
      count.running_ns += since_ns;
      const int unused = 64 - load(page.pmc_width);
      const uint64_t raw = read_counter(index - 1);
      count.value += static_cast<uint64_t>(static_cast<int64_t>(raw << unused) >> unused);
    }
    if (load(page.lock) != lock) continue;
    if (!readable) return std::nullopt;
    return count;
  }
}

}  // namespace veltair::proxy
