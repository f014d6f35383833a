// Counters: the page that the kernel shares, what lies between two states, and the real system
// call.
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "native/proxy/perf.h"
#include "native/proxy/perf_page.h"

namespace veltair::proxy {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int kPages = 500;
constexpr PerfEvent kTaskClock{.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_TASK_CLOCK};
constexpr PerfEvent kFaults{.type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_PAGE_FAULTS};

perf_event_mmap_page readable_page() {
  perf_event_mmap_page page{};
  page.lock = 4;
  page.index = 3;
  page.offset = 1000;
  page.time_enabled = 500;
  page.time_running = 400;
  page.cap_user_rdpmc = 1;
  page.cap_user_time = 1;
  page.pmc_width = 48;
  page.time_shift = 4;
  page.time_mult = 8;  // half a ns a cycle
  page.time_offset = 10;
  return page;
}

void a_page_is_read_with_the_register_of_its_index() {
  const perf_event_mmap_page page = readable_page();
  const auto count = read_page(
      page,
      [](uint32_t index) {
        CHECK(index == 2);
        return uint64_t{77};
      },
      [] { return uint64_t{100}; });
  CHECK(count.has_value());
  CHECK(count->value == 1077);
  CHECK(count->enabled_ns == 560);
  CHECK(count->running_ns == 460);
}

// The kernel starts a register below zero, so that it overflows after its period.
void a_register_of_48_bits_is_negative_before_its_overflow() {
  perf_event_mmap_page page = readable_page();
  page.offset = int64_t{1} << 47;
  const auto at = [&page](uint64_t raw) {
    return read_page(page, [raw](uint32_t) { return raw; }, [] { return uint64_t{0}; })->value;
  };
  CHECK(at((uint64_t{1} << 48) - 5) == (uint64_t{1} << 47) - 5);
  CHECK(at(5) == (uint64_t{1} << 47) + 5);
  CHECK(at(uint64_t{1} << 47) == 0);
}

void a_page_that_changes_meanwhile_is_read_again() {
  perf_event_mmap_page page = readable_page();
  int looks = 0;
  const auto count = read_page(
      page,
      [&](uint32_t) {
        if (++looks == 1) {
          page.lock += 2;
          page.offset = 5000;
        }
        return uint64_t{1};
      },
      [] { return uint64_t{0}; });
  CHECK(looks == 2);
  CHECK(count.has_value());
  CHECK(count->value == 5001);
}

void what_a_page_cannot_tell_is_left_to_the_kernel() {
  const auto readable = [](const perf_event_mmap_page& page) {
    return read_page(
               page, [](uint32_t) { return uint64_t{1}; }, [] { return uint64_t{1}; })
        .has_value();
  };
  CHECK(readable(readable_page()));
  perf_event_mmap_page page = readable_page();
  page.index = 0;  // on no register now
  CHECK(!readable(page));
  page = readable_page();
  page.cap_user_rdpmc = 0;
  CHECK(!readable(page));
  page = readable_page();
  page.cap_user_time = 0;
  CHECK(!readable(page));
}

PerfState state(int64_t time_ns, uint64_t enabled_ns, uint64_t running_ns, uint64_t value) {
  PerfState made{.time_ns = time_ns, .enabled_ns = enabled_ns, .running_ns = running_ns};
  made.values[0] = value;
  return made;
}

void a_share_of_the_time_is_extrapolated() {
  std::array<double, 1> counts{};
  const PerfTimes times =
      perf_between(state(0, 100, 100, 50), state(1000, 900, 300, 150), -1, counts);
  CHECK(times.elapsed_ns == 1000 && times.enabled_ns == 800 && times.running_ns == 200);
  CHECK(counts[0] == 400);
  perf_between(state(0, 100, 100, 50), state(1000, 900, 900, 150), -1, counts);
  CHECK(counts[0] == 100);
}

void no_time_on_a_counter_is_no_count() {
  std::array<double, 1> counts{};
  perf_between(state(0, 100, 100, 50), state(1000, 900, 100, 50), -1, counts);
  CHECK(std::isnan(counts[0]));
  // A thread that slept has counted nothing, and that is known.
  perf_between(state(0, 100, 100, 50), state(1'000'000'000, 100, 100, 50), -1, counts);
  CHECK(counts[0] == 0);
}

void what_goes_back_is_refused() {
  std::array<double, 1> counts{};
  CHECK_THROWS(perf_between(state(0, 1, 1, 50), state(9, 2, 2, 49), -1, counts), PerfError);
  CHECK_THROWS(perf_between(state(0, 3, 1, 50), state(9, 2, 2, 51), -1, counts), PerfError);
  CHECK_THROWS(perf_between(state(0, 1, 3, 50), state(9, 2, 2, 51), -1, counts), PerfError);
}

void a_cpu_without_time_is_gone() {
  std::array<double, 1> counts{};
  try {
    perf_between(state(0, 100, 100, 50), state(1'000'000, 100, 100, 50), 3, counts);
    CHECK(false);
  } catch (const PerfError& error) {
    CHECK(error.code().value() == ENODEV);
  }
  perf_between(state(0, 100, 100, 50), state(1'000, 100, 100, 50), 3, counts);  // too soon to say
}

// Maps pages and writes to each once.
void fault(int pages) {
  const size_t bytes = static_cast<size_t>(pages * kPageBytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  for (int i = 0; i < pages; ++i) static_cast<volatile char*>(memory)[i * kPageBytes] = 1;
  munmap(memory, bytes);
}

// Containers often forbid the system call; what needs it is left out there.
bool allowed() {
  try {
    const std::array<PerfEvent, 1> events{kTaskClock};
    const PerfGroup group(events, 0, -1);
    return true;
  } catch (const PerfError& error) {
    const int code = error.code().value();
    CHECK(code == EACCES || code == EPERM || code == ENOSYS);
    return false;
  }
}

void own_events_are_counted_between_reads() {
  const std::array<PerfEvent, 2> events{kTaskClock, kFaults};
  PerfGroup group(events, 0, -1);
  std::array<double, 2> counts{};
  group.read(counts);
  fault(kPages);
  const PerfTimes times = group.read(counts);
  CHECK(counts[1] >= kPages);  // a sanitizer's own memory adds some
  CHECK(counts[0] > 0 && counts[0] <= static_cast<double>(times.elapsed_ns) * 1.5);
  CHECK(times.enabled_ns > 0 && times.running_ns == times.enabled_ns);
  CHECK(!times.by_page);  // software events are on no register
  group.read(counts);
  CHECK(counts[1] < 100);
}

void another_thread_is_counted_and_outlived() {
  std::atomic<int> tid{0};
  std::atomic<int> phase{0};
  std::thread other([&] {
    tid.store(static_cast<int>(syscall(SYS_gettid)));
    tid.notify_all();
    phase.wait(0);
    fault(kPages);
    phase.store(2);
    phase.notify_all();
    phase.wait(2);
  });
  tid.wait(0);
  const std::array<PerfEvent, 1> events{kFaults};
  PerfGroup group(events, tid.load(), -1);
  std::array<double, 1> counts{};
  fault(kPages);  // this thread's, so not counted
  group.read(counts);
  CHECK(counts[0] < 100);
  phase.store(1);
  phase.notify_all();
  phase.wait(1);
  group.read(counts);
  CHECK(counts[0] >= kPages);
  phase.store(3);
  phase.notify_all();
  other.join();
  const PerfTimes times = group.read(counts);  // of a thread that has ended: what was left
  CHECK(counts[0] < 100);
  CHECK(times.elapsed_ns > 0);
  CHECK_THROWS(PerfGroup(events, tid.load(), -1), PerfError);
}

void what_makes_no_sense_is_refused() {
  CHECK_THROWS(PerfGroup({}, 0, -1), std::invalid_argument);
  const std::vector<PerfEvent> many(PerfState::kMostEvents + 1, kFaults);
  CHECK_THROWS(PerfGroup(many, 0, -1), std::invalid_argument);
  const std::array<PerfEvent, 1> unknown{PerfEvent{.type = 0x7fffffff}};
  CHECK_THROWS(PerfGroup(unknown, 0, -1), PerfError);
  if (allowed()) {
    const std::array<PerfEvent, 1> events{kFaults};
    PerfGroup group(events, 0, -1);
    std::array<double, 2> counts{};
    CHECK_THROWS(group.read(counts), std::invalid_argument);
  }
}

}  // namespace
}  // namespace veltair::proxy

int main() {
  namespace proxy = veltair::proxy;
  proxy::a_page_is_read_with_the_register_of_its_index();
  proxy::a_register_of_48_bits_is_negative_before_its_overflow();
  proxy::a_page_that_changes_meanwhile_is_read_again();
  proxy::what_a_page_cannot_tell_is_left_to_the_kernel();
  proxy::a_share_of_the_time_is_extrapolated();
  proxy::no_time_on_a_counter_is_no_count();
  proxy::what_goes_back_is_refused();
  proxy::a_cpu_without_time_is_gone();
  proxy::what_makes_no_sense_is_refused();
  if (!proxy::allowed()) {
    std::puts("perf_event_open is not allowed here: its own tests are left out");
    return 0;
  }
  proxy::own_events_are_counted_between_reads();
  proxy::another_thread_is_counted_and_outlived();
  return 0;
}
