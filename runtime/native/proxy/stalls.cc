#include "native/proxy/stalls.h"

#include <algorithm>
#include <ctime>
#include <future>
#include <stdexcept>
#include <string>

#include "native/engine/clock.h"
#include "native/proxy/pinned.h"

namespace veltair::proxy {
namespace {

int64_t ran_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

double stalled_share(int cpu, int64_t duration_ns) {
  pin_to(cpu);
  StallCount count;
  const int64_t begin_ns = engine::now_ns();
  int64_t now_ns = begin_ns;
  while (now_ns - begin_ns < duration_ns) {
    now_ns = engine::now_ns();
    count.look(now_ns, ran_ns());
  }
  return static_cast<double>(count.stalled_ns()) / static_cast<double>(now_ns - begin_ns);
}

}  // namespace

void StallCount::look(int64_t now_ns, int64_t ran_ns) {
  if (last_ && now_ns - last_->now_ns >= kLeastNs) {
    stalled_ns_ += std::min(now_ns - last_->now_ns, ran_ns - last_->ran_ns);
  }
  last_ = Look{now_ns, ran_ns};
}

std::vector<double> stalled_shares(std::span<const int> cpus, int64_t duration_ns) {
  if (duration_ns < 1) {
    throw std::invalid_argument("stalls are looked for during at least 1 ns, and not " +
                                std::to_string(duration_ns));
  }
  std::vector<std::future<double>> looking;
  looking.reserve(cpus.size());
  for (const int cpu : cpus) {
    looking.push_back(std::async(std::launch::async, stalled_share, cpu, duration_ns));
  }
  std::vector<double> shares;
  for (std::future<double>& each : looking) shares.push_back(each.get());
  return shares;
}

}  // namespace veltair::proxy
