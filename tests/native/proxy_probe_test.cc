// The probe walks, stays within its budget, and ends.
#include <array>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"
#include "cpus.h"
#include "native/proxy/probe_walk.h"

namespace veltair::proxy {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

ProbeOptions options(std::vector<int> cpus) {
  return {.cpus = std::move(cpus), .buffer_bytes = 8 * kMiB, .stride_bytes = kMiB / 8};
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Waits until there are walks, however busy the machine is.
ProbeReading some_walks(ProbeWalk& probe) {
  while (true) {
    sleep_ms(20);
    const ProbeReading found = probe.reading();
    if (found.walks > 0) return found;
  }
}

void walks_are_summed_up() {
  ProbeWalk probe(options({usable_cpus().front()}));
  const ProbeReading found = some_walks(probe);
  CHECK(found.low > 0 && found.low <= found.median && found.median <= found.high);
  CHECK(found.again > 0);
  CHECK(found.cpu_ns > 0 && found.elapsed_ns > 0);
}

// The thread's time is the kernel's own account of it, so this holds on the busiest machine.
void its_time_stays_within_the_budget() {
  ProbeOptions wanted = options(usable_cpus());
  wanted.budget = 0.01;
  wanted.least_rest_ns = 0;
  ProbeWalk probe(wanted);
  sleep_ms(20);
  probe.reading();
  sleep_ms(500);
  const ProbeReading found = probe.reading();
  // A reading may begin within a rest, so that it has a walk more than its time.
  CHECK(found.cpu_ns > 0);
  CHECK(static_cast<double>(found.cpu_ns) < 0.03 * static_cast<double>(found.elapsed_ns));
}

// Every line of the buffer may be walked too, and what doesn't fill a stride is left out.
void a_buffer_is_cut_to_whole_strides() {
  ProbeOptions wanted = options({usable_cpus().front()});
  wanted.buffer_bytes = kMiB + 100;
  wanted.stride_bytes = ProbeWalk::kLineBytes;
  ProbeWalk probe(wanted);
  CHECK(probe.buffer_bytes() == kMiB + 64);
  CHECK(!probe.huge());  // less than one huge page
  CHECK(some_walks(probe).median > 0);
}

void a_reading_begins_anew() {
  ProbeOptions wanted = options({usable_cpus().front()});
  wanted.least_rest_ns = 1'000'000'000;
  ProbeWalk probe(wanted);
  some_walks(probe);
  const ProbeReading found = probe.reading();
  CHECK(found.walks == 0 && found.interrupted == 0 && found.median == 0);
}

void it_ends_within_a_long_rest() {
  ProbeOptions wanted = options({usable_cpus().front()});
  wanted.least_rest_ns = int64_t{3'600} * 1'000'000'000;
  const ProbeWalk probe(wanted);
}

void what_makes_no_sense_is_refused() {
  CHECK_THROWS(ProbeWalk(options({})), std::invalid_argument);
  CHECK_THROWS(ProbeWalk(options({-1})), std::invalid_argument);
  CHECK_THROWS(ProbeWalk(options({usable_cpus().front(), 100'000})), std::invalid_argument);
  const std::array<double, 3> budgets{0, -1, 2};
  for (const double budget : budgets) {
    ProbeOptions wanted = options({usable_cpus().front()});
    wanted.budget = budget;
    CHECK_THROWS(ProbeWalk{wanted}, std::invalid_argument);
  }
  ProbeOptions wanted = options({usable_cpus().front()});
  wanted.buffer_bytes = 8 * kMiB - 1;  // room for 63 lines
  CHECK_THROWS(ProbeWalk{wanted}, std::invalid_argument);
  for (const int64_t stride : {int64_t{0}, int64_t{-64}, int64_t{100}}) {
    wanted = options({usable_cpus().front()});
    wanted.stride_bytes = stride;
    CHECK_THROWS(ProbeWalk{wanted}, std::invalid_argument);
  }
  wanted = options({usable_cpus().front()});
  wanted.steps = 0;
  CHECK_THROWS(ProbeWalk{wanted}, std::invalid_argument);
}

}  // namespace
}  // namespace veltair::proxy

int main() {
  veltair::proxy::walks_are_summed_up();
  veltair::proxy::its_time_stays_within_the_budget();
  veltair::proxy::a_buffer_is_cut_to_whole_strides();
  veltair::proxy::a_reading_begins_anew();
  veltair::proxy::it_ends_within_a_long_rest();
  veltair::proxy::what_makes_no_sense_is_refused();
  return 0;
}
