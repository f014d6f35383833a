#include "native/proxy/perf.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include <cerrno>
#include <limits>
#include <optional>
#include <stdexcept>

#include "native/engine/clock.h"
#include "native/proxy/perf_page.h"

namespace veltair::proxy {
namespace {

constexpr int64_t kCertainNs = 100'000;  // in which a cpu that is there counts some time

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

int open_event(const PerfEvent& event, int tid, int cpu, int leader) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = event.type;
  attr.config = event.config;
  attr.config1 = event.config1;
  attr.config2 = event.config2;
  attr.read_format =
      PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  attr.disabled = leader < 0 ? 1 : 0;  // the group begins as one, with its leader
  attr.exclude_kernel = event.user_only ? 1 : 0;
  attr.exclude_hv = event.user_only ? 1 : 0;
  return static_cast<int>(
      syscall(SYS_perf_event_open, &attr, tid, cpu, leader, PERF_FLAG_FD_CLOEXEC));
}

std::string place(int tid, int cpu) {
  return cpu >= 0 ? "cpu " + std::to_string(cpu) : "thread " + std::to_string(tid);
}

uint64_t forward(uint64_t before, uint64_t now, const char* what) {
  if (now < before) {
    throw PerfError(EOVERFLOW, std::string("a counter's ") + what + " went back from " +
                                   std::to_string(before) + " to " + std::to_string(now));
  }
  return now - before;
}

}  // namespace

PerfTimes perf_between(const PerfState& before, const PerfState& now, int cpu,
                       std::span<double> counts) {
  PerfTimes times;
  times.elapsed_ns = now.time_ns - before.time_ns;
  const uint64_t enabled = forward(before.enabled_ns, now.enabled_ns, "time");
  const uint64_t running = forward(before.running_ns, now.running_ns, "running time");
  times.enabled_ns = static_cast<int64_t>(enabled);
  times.running_ns = static_cast<int64_t>(running);
  if (cpu >= 0 && enabled == 0 && times.elapsed_ns > kCertainNs) {
    throw PerfError(ENODEV, place(-1, cpu) + " has counted nothing for " +
                                std::to_string(times.elapsed_ns) +
                                " ns: it has gone offline; read the others, or bring it back");
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto counted = static_cast<double>(forward(before.values[i], now.values[i], "count"));
    if (running > 0) {
      counts[i] = counted * (static_cast<double>(enabled) / static_cast<double>(running));
    } else {
      // A thread that didn't run has counted nothing; one that ran uncounted isn't known.
      counts[i] = enabled == 0 ? counted : std::numeric_limits<double>::quiet_NaN();
    }
  }
  return times;
}

PerfGroup::PerfGroup(std::span<const PerfEvent> events, int tid, int cpu)
    : cpu_(cpu), owner_(pthread_self()) {
  if (events.empty() || events.size() > PerfState::kMostEvents) {
    throw std::invalid_argument("a group has from 1 to " + std::to_string(PerfState::kMostEvents) +
                                " events, not " + std::to_string(events.size()));
  }
  try {
    open(events, tid);
    if (tid == 0) map_pages();
    if (ioctl(files_[0], PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP) != 0) {
      throw PerfError(errno, "the events of " + place(tid, cpu) + " can't be enabled");
    }
    ask_kernel(last_);
  } catch (...) {
    close();
    throw;
  }
}

PerfGroup::~PerfGroup() { close(); }

void PerfGroup::open(std::span<const PerfEvent> events, int tid) {
  for (const PerfEvent& event : events) {
    const int file = open_event(event, tid, cpu_, size_ == 0 ? -1 : files_[0]);
    if (file < 0) {
      const int error = errno;
      throw PerfError(error, "event " + std::to_string(event.config) + " of type " +
                                 std::to_string(event.type) + " can't be counted on " +
                                 place(tid, cpu_));
    }
    files_[static_cast<size_t>(size_++)] = file;
  }
}

// The pages save system calls; where there is no room for them the kernel is asked.
void PerfGroup::map_pages() {
  for (int i = 0; i < size_; ++i) {
    void* page = mmap(nullptr, page_bytes(), PROT_READ, MAP_SHARED, files_[i], 0);
    if (page == MAP_FAILED) return;
    pages_[i] = static_cast<perf_event_mmap_page*>(page);
  }
  mapped_ = true;
}

void PerfGroup::close() {
  for (int i = 0; i < size_; ++i) {
    if (pages_[i] != nullptr) munmap(pages_[i], page_bytes());
    ::close(files_[i]);
  }
}

PerfTimes PerfGroup::read(std::span<double> counts) {
  if (counts.size() != static_cast<size_t>(size_)) {
    throw std::invalid_argument("a group of " + std::to_string(size_) + " events fills as many " +
                                "counts, not " + std::to_string(counts.size()));
  }
  PerfState now;
  const bool by_page = read_pages(now);
  if (!by_page) ask_kernel(now);
  PerfTimes times = perf_between(last_, now, cpu_, counts);
  times.by_page = by_page;
  last_ = now;
  return times;
}

// Reads all from the pages, or says that it can't. The events' times differ by what the reading
// takes; the leader's stand for all.
bool PerfGroup::read_pages(PerfState& state) const {
  if (!mapped_ || pthread_equal(owner_, pthread_self()) == 0) return false;
  state.time_ns = engine::now_ns();
  for (int i = 0; i < size_; ++i) {
    const std::optional<PageCount> count = read_page(
        *pages_[i],
        [](uint32_t index) { return static_cast<uint64_t>(__rdpmc(static_cast<int>(index))); },
        [] { return static_cast<uint64_t>(__rdtsc()); });
    if (!count.has_value()) return false;
    if (i == 0) {
      state.enabled_ns = count->enabled_ns;
      state.running_ns = count->running_ns;
    }
    state.values[i] = count->value;
  }
  return true;
}

void PerfGroup::ask_kernel(PerfState& state) const {
  std::array<uint64_t, 3 + PerfState::kMostEvents> answer{};  // events, two times, values
  const ssize_t wanted = static_cast<ssize_t>(sizeof(uint64_t)) * (3 + size_);
  const ssize_t read = ::read(files_[0], answer.data(), sizeof answer);
  state.time_ns = engine::now_ns();
  if (read < 0) throw PerfError(errno, "the counters can't be read");
  if (read != wanted || answer[0] != static_cast<uint64_t>(size_)) {
    throw PerfError(ENODEV, "the kernel has stopped these events: their processor or unit is gone");
  }
  state.enabled_ns = answer[1];
  state.running_ns = answer[2];
  for (int i = 0; i < size_; ++i) state.values[i] = answer[3 + i];
}

}  // namespace veltair::proxy
