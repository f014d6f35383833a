// Counters of the kernel's perf_event_open.
#pragma once

#include <linux/perf_event.h>
#include <pthread.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <vector>

namespace veltair::proxy {

// The kernel refused an event, or one has stopped; `code()` is the errno.
class PerfError : public std::system_error {
 public:
  PerfError(int error, const std::string& what)
      : std::system_error(error, std::generic_category(), what) {}
};

// One event, in the words of perf_event_open(2).
struct PerfEvent {
  uint32_t type = 0;
  uint64_t config = 0;
  uint64_t config1 = 0;
  uint64_t config2 = 0;
  bool user_only = true;  // not the kernel's part: all that paranoid level 2 grants
};

// What a group was counted over, since the read before.
struct PerfTimes {
  int64_t elapsed_ns = 0;
  int64_t enabled_ns = 0;  // of that, while the thread ran, or the cpu was there
  int64_t running_ns = 0;  // of that, on hardware counters: the rest is extrapolated
  bool by_page = false;    // read without a system call
};

// A group's state at one moment.
struct PerfState {
  static constexpr int kMostEvents = 8;  // more than any processor has counters for one group

  int64_t time_ns = 0;
  uint64_t enabled_ns = 0;
  uint64_t running_ns = 0;
  std::array<uint64_t, kMostEvents> values{};
};

// Fills `counts` with what was counted between two states, extrapolated where the group shared the
// hardware counters with others; NaN where it had none of the time. `cpu` is -1 for a thread.
//
// Throws PerfError: EOVERFLOW for a count or a time that went back, which no counter does, and
// ENODEV for a cpu that was counted for no part of the time, so isn't there any more.
PerfTimes perf_between(const PerfState& before, const PerfState& now, int cpu,
                       std::span<double> counts);

// Events that are counted together, on one thread or one cpu, and read at once.
//
// They share the hardware's counters as one: all of them count, or none. The kernel's 64-bit counts
// don't wrap where the hardware's 48 bits do. A group of the thread that made it is read from the
// pages that the kernel shares where the hardware and the kernel allow it, others by one system
// call.
//
// Ownership: owns its files and mappings. Thread-safety: none; any thread may read.
class PerfGroup {
 public:
  // `tid` is a thread, 0 the calling one, -1 none: then all that runs on `cpu` counts. `cpu` is -1
  // for wherever the thread runs. Throws PerfError with the kernel's errno,
  // std::invalid_argument for no events, or too many.
  PerfGroup(std::span<const PerfEvent> events, int tid, int cpu);
  ~PerfGroup();
  PerfGroup(const PerfGroup&) = delete;
  PerfGroup& operator=(const PerfGroup&) = delete;

  int size() const { return size_; }
  // Counts since the last read, the first since the construction, one for each event; as
  // `perf_between`. Throws PerfError.
  PerfTimes read(std::span<double> counts);

 private:
  void open(std::span<const PerfEvent> events, int tid);
  void map_pages();
  void close();
  bool read_pages(PerfState& state) const;
  void ask_kernel(PerfState& state) const;

  const int cpu_;
  const pthread_t owner_;
  int size_ = 0;
  bool mapped_ = false;
  std::array<int, PerfState::kMostEvents> files_{};
  std::array<perf_event_mmap_page*, PerfState::kMostEvents> pages_{};
  PerfState last_;
};

}  // namespace veltair::proxy
