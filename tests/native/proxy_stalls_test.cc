// Stalls are what the kernel inside a virtual machine can't see, and nothing else.
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "cpus.h"
#include "native/proxy/stalls.h"

namespace veltair::proxy {
namespace {

constexpr int64_t kMs = 1'000'000;

void time_that_passes_while_the_thread_seems_to_run_is_a_stall() {
  StallCount count;
  count.look(0, 0);
  count.look(4 * kMs, 4 * kMs);
  count.look(4 * kMs + 100, 4 * kMs + 100);  // goes on at once
  count.look(5 * kMs, 5 * kMs);
  CHECK(count.stalled_ns() == 4 * kMs + (kMs - 100));
}

void time_that_another_thread_had_is_none() {
  StallCount count;
  count.look(0, 0);
  count.look(4 * kMs, 2000);
  CHECK(count.stalled_ns() == 2000);  // what it ran of it may have been one
}

void an_interrupt_is_none() {
  StallCount count;
  count.look(0, 0);
  count.look(StallCount::kLeastNs - 1, StallCount::kLeastNs - 1);
  CHECK(count.stalled_ns() == 0);
}

void the_first_look_has_nothing_to_compare() {
  StallCount count;
  count.look(7 * kMs, 3 * kMs);
  CHECK(count.stalled_ns() == 0);
}

void every_cpu_has_a_share() {
  const std::vector<int> cpus = usable_cpus();
  const std::vector<double> shares = stalled_shares(cpus, 20 * kMs);
  CHECK(shares.size() == cpus.size());
  for (const double share : shares) CHECK(share >= 0 && share <= 1);
}

void what_cannot_be_looked_at_is_refused() {
  const std::vector<int> cpus = {usable_cpus().front(), 100'000};
  CHECK_THROWS(stalled_shares(cpus, kMs), std::invalid_argument);
  CHECK_THROWS(stalled_shares(usable_cpus(), 0), std::invalid_argument);
}

}  // namespace
}  // namespace veltair::proxy

int main() {
  veltair::proxy::time_that_passes_while_the_thread_seems_to_run_is_a_stall();
  veltair::proxy::time_that_another_thread_had_is_none();
  veltair::proxy::an_interrupt_is_none();
  veltair::proxy::the_first_look_has_nothing_to_compare();
  veltair::proxy::every_cpu_has_a_share();
  veltair::proxy::what_cannot_be_looked_at_is_refused();
}
