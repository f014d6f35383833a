#include "native/proxy/probe_walk.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "native/engine/clock.h"
#include "native/engine/memory.h"
#include "native/proxy/pinned.h"

namespace veltair::proxy {
namespace {

using engine::now_ns;

constexpr int64_t kNsPerSecond = 1'000'000'000;
constexpr int64_t kLongestSleepNs = 20'000'000;  // after which an end is noticed
constexpr int64_t kInterruptedNs = 2'000;        // out of the processor, beyond what clocks cost
constexpr size_t kMostSamples = 16'384;          // that wait for a reading: the latest
constexpr int64_t kLongestRestNs = 100'000'000;
constexpr int kLowestPriority = 19;
constexpr uint32_t kSeed = 1;

int64_t thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

// Each line's first word says where the next line is: one circle through all, in random order.
void write_circle(std::byte* memory, uint64_t lines, uint64_t stride_bytes) {
  std::vector<uint32_t> order(lines);
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937_64 random(kSeed);
  std::shuffle(order.begin(), order.end(), random);
  for (uint64_t i = 0; i < lines; ++i) {
    const uint64_t next = order[(i + 1) % lines] * stride_bytes;
    std::memcpy(memory + order[i] * stride_bytes, &next, sizeof next);
  }
}

// Each step's address is what the step before has loaded, so none begins before the last has ended.
uint64_t take_steps(const std::byte* memory, uint64_t place, int steps) {
  for (int i = 0; i < steps; ++i) std::memcpy(&place, memory + place, sizeof place);
  return place;
}

// Asks the kernel how it has mapped `data`.
bool in_huge_pages(const std::byte* data, uint64_t bytes) {
  constexpr std::string_view kHuge = "AnonHugePages:";
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<uintptr_t>(data);
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    const char* const end = line.data() + line.size();
    uintptr_t first = 0;
    uintptr_t last = 0;
    const auto dash = std::from_chars(line.data(), end, first, 16);
    if (dash.ec == std::errc() && dash.ptr != end && *dash.ptr == '-' &&
        std::from_chars(dash.ptr + 1, end, last, 16).ec == std::errc()) {
      found = first <= wanted && wanted < last;
    } else if (found && line.starts_with(kHuge)) {
      const size_t digit = std::min(line.find_first_not_of(' ', kHuge.size()), line.size());
      uint64_t kib = 0;
      std::from_chars(line.data() + digit, end, kib);
      return kib * 1024 >= bytes;
    }
  }
  return false;
}

double percentile(std::vector<double>& values, double part) {
  const auto at = static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

ProbeOptions checked(ProbeOptions options) {
  if (options.steps < 1) throw std::invalid_argument("a walk has at least 1 step");
  if (options.stride_bytes < ProbeWalk::kLineBytes ||
      options.stride_bytes % ProbeWalk::kLineBytes != 0) {
    throw std::invalid_argument("a stride is a multiple of 64 bytes, not " +
                                std::to_string(options.stride_bytes));
  }
  if (options.buffer_bytes / options.stride_bytes < options.steps) {
    throw std::invalid_argument("a walk of " + std::to_string(options.steps) + " steps at " +
                                std::to_string(options.stride_bytes) + " bytes doesn't fit into " +
                                std::to_string(options.buffer_bytes) + " bytes");
  }
  if (!(options.budget > 0 && options.budget <= 1)) {
    throw std::invalid_argument("the budget is a share of one core, above 0 and up to 1");
  }
  if (options.cpus.empty()) throw std::invalid_argument("a probe needs a processor to run on");
  options.buffer_bytes -= options.buffer_bytes % options.stride_bytes;
  return options;
}

}  // namespace

ProbeWalk::ProbeWalk(ProbeOptions options) : options_(checked(std::move(options))) {
  samples_.reserve(kMostSamples);
  std::promise<void> ready;
  std::future<void> outcome = ready.get_future();
  thread_ = std::thread(&ProbeWalk::run, this, std::move(ready));
  try {
    outcome.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

ProbeWalk::~ProbeWalk() {
  ending_.store(true);
  thread_.join();
}

ProbeReading ProbeWalk::reading() {
  ProbeReading found;
  std::vector<double> cold;
  std::vector<double> again;
  {
    const std::lock_guard<std::mutex> lock(collecting_);
    for (const Sample& sample : samples_) {
      cold.push_back(sample.cold);
      again.push_back(sample.again);
    }
    samples_.clear();
    oldest_ = 0;
    found.interrupted = std::exchange(interrupted_, 0);
    found.cpu_ns = std::exchange(cpu_ns_, 0);
    const int64_t now = now_ns();
    found.elapsed_ns = now - std::exchange(begin_ns_, now);
  }
  found.walks = static_cast<int64_t>(cold.size());
  if (cold.empty()) return found;
  found.low = percentile(cold, 0.1);
  found.median = percentile(cold, 0.5);
  found.high = percentile(cold, 0.9);
  found.again = percentile(again, 0.5);
  return found;
}

// Allocates on its own cpu, so that the memory lies on that cpu's node.
void ProbeWalk::run(std::promise<void> ready) {
  try {
    pin_to(options_.cpus);
    engine::Arena arena(static_cast<uint64_t>(options_.buffer_bytes));
    const auto stride_bytes = static_cast<uint64_t>(options_.stride_bytes);
    write_circle(arena.data(), arena.size_bytes() / stride_bytes, stride_bytes);
    memory_ = arena.data();
    huge_ = in_huge_pages(arena.data(), arena.size_bytes());
    // Others first; where it isn't granted the budget still bounds it.
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowestPriority);
    begin_ns_ = now_ns();
    ready.set_value();
    int64_t before_ns = thread_cpu_ns();
    int64_t debt_ns = 0;
    while (!ending_.load()) {
      walk_on();
      const int64_t cpu_ns = thread_cpu_ns();
      const int64_t spent_ns = cpu_ns - before_ns;
      before_ns = cpu_ns;
      {
        const std::lock_guard<std::mutex> lock(collecting_);
        cpu_ns_ += spent_ns;
      }
      debt_ns += static_cast<int64_t>(static_cast<double>(spent_ns) * (1 / options_.budget - 1));
      const int64_t rest_ns = std::clamp(debt_ns, options_.least_rest_ns,
                                         std::max(options_.least_rest_ns, kLongestRestNs));
      debt_ns = std::max<int64_t>(debt_ns - rest_ns, 0);
      rest(rest_ns);
    }
  } catch (...) {
    ready.set_exception(std::current_exception());
  }
}

void ProbeWalk::walk_on() {
  const int64_t begin_cpu_ns = thread_cpu_ns();
  const int64_t begin_ns = now_ns();
  const uint64_t end = take_steps(memory_, place_, options_.steps);
  // The clock waits for the loads before it, and the compiler keeps the order.
  asm volatile("" : : "r"(end) : "memory");
  const int64_t cold_ns = now_ns() - begin_ns;
  const int64_t middle_ns = now_ns();
  const uint64_t same = take_steps(memory_, place_, options_.steps);
  asm volatile("" : : "r"(same) : "memory");
  const int64_t again_ns = now_ns() - middle_ns;
  const int64_t out_ns = now_ns() - begin_ns - (thread_cpu_ns() - begin_cpu_ns);
  place_ = end;
  keep({.cold = static_cast<double>(cold_ns) / options_.steps,
        .again = static_cast<double>(again_ns) / options_.steps},
       out_ns > kInterruptedNs);
}

void ProbeWalk::keep(const Sample& sample, bool interrupted) {
  const std::lock_guard<std::mutex> lock(collecting_);
  if (interrupted) {
    ++interrupted_;
  } else if (samples_.size() < kMostSamples) {
    samples_.push_back(sample);
  } else {
    samples_[oldest_++ % kMostSamples] = sample;
  }
}

void ProbeWalk::rest(int64_t ns) const {
  const int64_t end_ns = now_ns() + ns;
  for (int64_t left_ns = ns; left_ns > 0 && !ending_.load(); left_ns = end_ns - now_ns()) {
    const int64_t sleep_ns = std::min(left_ns, kLongestSleepNs);
    const timespec length{.tv_sec = sleep_ns / kNsPerSecond, .tv_nsec = sleep_ns % kNsPerSecond};
    nanosleep(&length, nullptr);
  }
}

}  // namespace veltair::proxy
