#include "native/proxy/ordered_thread.h"

#include <sys/prctl.h>

#include <utility>

#include "native/engine/clock.h"
#include "native/proxy/pinned.h"

namespace veltair::proxy {

OrderedThread::OrderedThread(int cpu, Job& job) : cpu_(cpu), job_(job) {
  std::promise<void> ready;
  std::future<void> outcome = ready.get_future();
  thread_ = std::thread(&OrderedThread::run, this, std::move(ready));
  try {
    outcome.get();
  } catch (...) {
    thread_.join();
    throw;
  }
}

OrderedThread::~OrderedThread() {
  ending_.store(true);
  given_.fetch_add(1);
  given_.notify_all();
  thread_.join();
}

void OrderedThread::order(int64_t order) {
  const std::lock_guard<std::mutex> lock(ordering_);
  order_.store(order);
  const uint32_t given = given_.fetch_add(1) + 1;
  given_.notify_all();
  for (uint32_t seen = taken_up_.load(); seen != given; seen = taken_up_.load()) {
    taken_up_.wait(seen);
  }
}

void OrderedThread::run(std::promise<void> ready) {
  try {
    pin_to(cpu_);
    prctl(PR_SET_TIMERSLACK, 1UL);
    job_.prepare();
    begin_ns_.store(engine::now_ns());
    ready.set_value();
    work();
  } catch (...) {
    ready.set_exception(std::current_exception());
  }
}

void OrderedThread::work() {
  while (true) {
    following_ = given_.load();  // before the look: an end that comes later changes it
    if (ending_.load()) return;
    const int64_t order = order_.load();
    job_.begin();
    begin_ns_.store(engine::now_ns());
    taken_up_.store(following_);
    taken_up_.notify_all();
    if (order == 0) {
      given_.wait(following_);
    } else {
      job_.follow(order, *this);
    }
  }
}

}  // namespace veltair::proxy
