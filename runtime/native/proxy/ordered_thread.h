// A thread on one cpu that does as it is ordered.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <mutex>
#include <thread>

namespace veltair::proxy {

class OrderedThread;

// What an `OrderedThread` does; all of it on that thread.
class Job {
 public:
  virtual ~Job() = default;
  // Once, before any order. What it throws, the thread's constructor throws.
  virtual void prepare() = 0;
  // At each order, before it counts as taken up: forgets what was done under the last one.
  virtual void begin() = 0;
  // Follows an order, which isn't 0, until `thread.stands()` is false; looks often.
  virtual void follow(int64_t order, const OrderedThread& thread) = 0;
};

// A thread pinned to one cpu. An order is a number, and 0, the first one, is to rest: then the
// thread sleeps.
//
// Ownership: owns its thread; the destructor ends it. The job outlives it. Thread-safety: any
// thread at any time.
class OrderedThread {
 public:
  // Throws std::invalid_argument for a cpu that can't be used, and what `prepare` throws.
  OrderedThread(int cpu, Job& job);
  ~OrderedThread();
  OrderedThread(const OrderedThread&) = delete;
  OrderedThread& operator=(const OrderedThread&) = delete;

  int cpu() const { return cpu_; }
  // Returns when the thread has taken the order up.
  void order(int64_t order);
  // For the job: whether the order that it follows is the last one.
  bool stands() const { return given_.load(std::memory_order_relaxed) == following_; }
  // When the last order was taken up.
  int64_t begin_ns() const { return begin_ns_.load(); }

 private:
  void run(std::promise<void> ready);
  void work();

  const int cpu_;
  Job& job_;
  std::mutex ordering_;                // one `order` at a time
  std::atomic<int64_t> order_{0};      // the last one
  std::atomic<uint32_t> given_{0};     // changes with each order, and at the end
  std::atomic<uint32_t> taken_up_{0};  // the last change that the thread has seen
  uint32_t following_ = 0;             // the same, the thread's own
  std::atomic<bool> ending_{false};
  std::atomic<int64_t> begin_ns_{0};
  std::thread thread_;
};

}  // namespace veltair::proxy
