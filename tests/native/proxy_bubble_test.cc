// Bubbles visit all of their memory, keep a rate, take new ones up and end.
#include <sched.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "native/proxy/bubble.h"
#include "native/proxy/reference.h"
#include "native/proxy/walk.h"

namespace veltair::proxy {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// A cpu that this process may use.
int usable_cpu() {
  cpu_set_t set;
  CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &set)) ++cpu;
  return cpu;
}

void a_round_visits_every_page_once() {
  std::vector<int64_t> sizes{4096, 5040, 65536, 65537, 99991};
  for (int64_t pages = 1; pages <= 600; ++pages) sizes.push_back(pages);
  for (const int64_t pages : sizes) {
    Walk walk(pages);
    for (int round = 0; round < 2; ++round) {
      std::vector<char> seen(static_cast<size_t>(pages));
      for (int64_t i = 0; i < pages; ++i) {
        const int64_t page = walk.next();
        CHECK(page >= 0 && page < pages);
        CHECK(!seen[static_cast<size_t>(page)]);
        seen[static_cast<size_t>(page)] = 1;
      }
    }
  }
}

void neighbours_are_far_apart_in_time() {
  Walk walk(65536);
  int64_t before = walk.next();
  for (int64_t i = 1; i < 65536; ++i) {
    const int64_t page = walk.next();
    CHECK(page - before > 16 || before - page > 16);
    before = page;
  }
}

void a_rate_is_taken_up_and_given_up() {
  Bubble bubble(usable_cpu(), 4 * kMiB + 100);
  CHECK(bubble.footprint_bytes() == 4 * kMiB);
  CHECK(bubble.reading().bytes == 0);
  for (const int64_t rate : {200'000'000, 50'000'000}) {
    bubble.set_rate(rate);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const BubbleReading seen = bubble.reading();
    // Never more than what is due, but for the pages that are taken at once.
    const double due = static_cast<double>(seen.elapsed_ns) * static_cast<double>(rate) / 1e9;
    CHECK(static_cast<double>(seen.bytes) <= due + 2 * 8192);
    CHECK(seen.bytes > 0);
    CHECK(seen.missed_ns >= 0);
  }
  bubble.set_rate(0);
  CHECK(bubble.reading().bytes == 0);
}

// At a rate of which a page takes seconds, it still ends at once.
void a_slow_bubble_ends() {
  Bubble bubble(usable_cpu(), 4096);
  bubble.set_rate(1);
  bubble.set_rate(1000);
}

void an_unreachable_rate_is_missed() {
  Bubble bubble(usable_cpu(), 64 * kMiB);
  bubble.set_rate(int64_t{1} << 50);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const BubbleReading seen = bubble.reading();
  CHECK(seen.bytes > 0);
  CHECK(seen.missed_ns > 0);
}

void what_makes_no_sense_is_refused() {
  CHECK_THROWS(Bubble(usable_cpu(), 4095), std::invalid_argument);
  CHECK_THROWS(Bubble(-1, kMiB), std::invalid_argument);
  CHECK_THROWS(Bubble(CPU_SETSIZE, kMiB), std::invalid_argument);
  Bubble bubble(usable_cpu(), kMiB);
  CHECK_THROWS(bubble.set_rate(-1), std::invalid_argument);
  CHECK_THROWS(Reference(usable_cpu(), 1), std::invalid_argument);
}

void the_reference_is_timed_and_leaves_the_thread_as_it_was() {
  cpu_set_t before;
  CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
  Reference reference(usable_cpu(), kMiB + 5);
  CHECK(reference.working_set_bytes() == kMiB);
  std::vector<int64_t> pass_ns(20, 0);
  reference.time(pass_ns);
  for (const int64_t ns : pass_ns) CHECK(ns > 1000);  // a MiB at 1 TB/s
  cpu_set_t after;
  CHECK(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
  Reference elsewhere(CPU_SETSIZE, kMiB);
  CHECK_THROWS(elsewhere.time(pass_ns), std::invalid_argument);
}

}  // namespace
}  // namespace veltair::proxy

int main() {
  veltair::proxy::a_round_visits_every_page_once();
  veltair::proxy::neighbours_are_far_apart_in_time();
  veltair::proxy::a_rate_is_taken_up_and_given_up();
  veltair::proxy::a_slow_bubble_ends();
  veltair::proxy::an_unreachable_rate_is_missed();
  veltair::proxy::what_makes_no_sense_is_refused();
  veltair::proxy::the_reference_is_timed_and_leaves_the_thread_as_it_was();
  return 0;
}
