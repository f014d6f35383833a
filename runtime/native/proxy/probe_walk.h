// A software probe of the caches that cores share: how long a step to a random line takes now.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

namespace veltair::proxy {

struct ProbeOptions {
  std::vector<int> cpus;            // one: pinned to it; several: wherever among them there is room
  int64_t buffer_bytes = 0;         // that the lines lie in
  int64_t stride_bytes = 0;         // from one line to the next; 64: all of the buffer's
  int steps = 64;                   // a walk: lines touched, so 4 KiB
  double budget = 0.005;            // of one core: the share of the time that the thread may run
  int64_t least_rest_ns = 500'000;  // between walks, whatever the budget allows
};

struct ProbeReading {
  int64_t walks = 0;        // that were not interrupted
  int64_t interrupted = 0;  // left out: the thread lost its processor within
  int64_t cpu_ns = 0;       // that the thread ran
  int64_t elapsed_ns = 0;
  // ns a step; 0 without walks.
  double low = 0;  // 10th percentile
  double median = 0;
  double high = 0;   // 90th percentile
  double again = 0;  // median of the same steps a second time, at once
};

// A thread of low priority that wakes, takes some dependent steps through random lines, and rests.
//
// Each walk goes on where the last one ended, in one random circle through the lines; with as many
// lines as steps every walk visits them all, so a line is met again after one rest. Meanwhile
// others' lines have taken its place in the caches in proportion to their pressure, and what a step
// then costs is the time to the next cache or memory that has it, under the load that is there. The
// same steps are taken a second time at once.
//
// Where the stride is a multiple of what a core's second cache has in one way, in huge pages, all
// lines fall into one set of it. There are more of them than ways, so that walking pushes each out
// of the core's own caches before it is met again: a second time, too, it comes from the shared
// one. A line that stayed in the core's own would tell nothing of others.
//
// A walk touches 64 B x steps and no more, a second time the same: 4 KiB of the shared cache by
// default, and one set of the core's own. The thread rests after each walk so long that all that it
// runs, the walk, the waking and the clocks, stays within `budget`. No rest is longer than 100 ms;
// what is owed beyond that is rested after the next walks. So what a hypervisor takes in a walk,
// which a virtual machine's clock of a thread counts as the thread's, doesn't silence the probe.
//
// Ownership: owns its memory and its thread; the destructor ends both. Thread-safety: any thread at
// any time.
class ProbeWalk {
 public:
  static constexpr int64_t kLineBytes = 64;

  // Throws std::invalid_argument for options that make no sense, std::bad_alloc.
  explicit ProbeWalk(ProbeOptions options);
  ~ProbeWalk();
  ProbeWalk(const ProbeWalk&) = delete;
  ProbeWalk& operator=(const ProbeWalk&) = delete;

  int64_t buffer_bytes() const { return options_.buffer_bytes; }
  // Whether the buffer lies in huge pages; otherwise which sets its lines fall into isn't known.
  bool huge() const { return huge_; }
  // Empties what was collected.
  ProbeReading reading();

 private:
  struct Sample {
    double cold;
    double again;
  };

  void run(std::promise<void> ready);
  void walk_on();
  void keep(const Sample& sample, bool interrupted);
  void rest(int64_t ns) const;

  ProbeOptions options_;
  const std::byte* memory_ = nullptr;  // the thread's
  uint64_t place_ = 0;                 // the thread's
  bool huge_ = false;                  // set before the constructor ends
  std::mutex collecting_;              // guards what is below
  std::vector<Sample> samples_;        // a ring once it is full
  size_t oldest_ = 0;
  int64_t interrupted_ = 0;
  int64_t cpu_ns_ = 0;
  int64_t begin_ns_ = 0;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace veltair::proxy
