// A gang runs every task exactly once, whatever happens to its cores meanwhile.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "cpus.h"
#include "native/engine/error.h"
#include "native/engine/gang.h"

namespace veltair::engine {
namespace {

struct Counts {
  explicit Counts(int tasks) : runs(static_cast<size_t>(tasks)) {}
  std::vector<std::atomic<int>> runs;
  std::atomic<int> wrong_env{0};
  int expected_tasks = 0;
  int64_t task_ns = 0;
};

int count_task(int task, ParallelEnv* env, void* data) {
  auto& counts = *static_cast<Counts*>(data);
  if (env->num_task != counts.expected_tasks || env->sync_handle != nullptr) ++counts.wrong_env;
  ++counts.runs[static_cast<size_t>(task)];
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(counts.task_ns);
  while (std::chrono::steady_clock::now() < end) {
  }
  return 0;
}

void check_each_once(const Counts& counts) {
  for (const auto& runs : counts.runs) CHECK(runs.load() == 1);
  CHECK(counts.wrong_env.load() == 0);
}

// Whether `core` is free. Its thread may have been woken before the core was taken back and look
// for work only now, for a moment and in vain; who works there stays.
bool comes_free(const Gang& gang, int core) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (gang.in_use(core)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

void runs_each_task_once() {
  Gang gang(usable_cpus());
  std::vector<int> all(gang.cpus().size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  gang.set_cores(all);
  const Gang::Leader leader(gang);
  for (int round = 0; round < 3000; ++round) {
    const int tasks = 1 + round % 67;
    Counts counts(tasks);
    counts.expected_tasks = tasks;
    CHECK(gang.launch(count_task, &counts, tasks) == 0);
    check_each_once(counts);
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // park them
  }
}

void cores_join_and_leave_while_running() {
  const std::vector<int> cpus = usable_cpus();
  GangOptions options;
  options.alone_tasks = 8;
  options.spin_ns = 2'000;
  Gang gang(cpus, options);
  std::atomic<bool> stop{false};
  std::thread scheduler([&] {
    std::minstd_rand random(7);
    while (!stop.load()) {
      const int core = static_cast<int>(random() % cpus.size());
      if (random() % 2 == 0) {
        gang.grant(core);
      } else {
        gang.revoke(core);
      }
      if (random() % 16 == 0) {
        const int only = static_cast<int>(random() % cpus.size());
        gang.set_cores(std::vector<int>{only});
      }
      CHECK(gang.granted() >= 1);
    }
  });
  {
    const Gang::Leader leader(gang);
    for (int round = 0; round < 2000; ++round) {
      const int tasks = 2 + round % 40;
      Counts counts(tasks);
      counts.expected_tasks = tasks;
      counts.task_ns = round % 5 == 0 ? 5'000 : 0;
      CHECK(gang.launch(count_task, &counts, tasks) == 0);
      check_each_once(counts);
    }
  }
  stop.store(true);
  scheduler.join();
}

// Whether the calling thread may run on this cpu only.
bool pinned_to(int cpu) {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set);
}

// Ends only when every task has begun: each needs a core of its own.
int meet(int, ParallelEnv* env, void* data) {
  auto& begun = *static_cast<std::atomic<int>*>(data);
  ++begun;
  while (begun.load() < env->num_task) std::this_thread::yield();
  return 0;
}

void every_launch_wakes_all_its_cores() {
  for (const int64_t spin_ns : {0L, 1'000L, 100'000L}) {
    GangOptions options;
    options.spin_ns = spin_ns;
    Gang gang(usable_cpus(), options);
    for (size_t core = 1; core < gang.cpus().size(); ++core) gang.grant(static_cast<int>(core));
    const Gang::Leader leader(gang);
    for (int round = 0; round < 3000; ++round) {  // a lost wake-up would wait here for ever
      std::atomic<int> begun{0};
      CHECK(gang.launch(meet, &begun, gang.granted()) == 0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> begun{0};
    CHECK(gang.launch(meet, &begun, gang.granted()) == 0);
  }
}

struct Threads {
  std::thread::id leader;
  std::atomic<int> others{0};
};

int note_thread(int, ParallelEnv*, void* data) {
  auto& threads = *static_cast<Threads*>(data);
  if (std::this_thread::get_id() != threads.leader) ++threads.others;
  std::this_thread::sleep_for(std::chrono::microseconds(200));  // room for another thread
  return 0;
}

void leader_stands_for_the_thread_of_its_core() {
  GangOptions options;
  options.alone_tasks = 20;
  options.spin_ns = 1'000'000'000;  // the core's own thread stays awake
  Gang gang({usable_cpus()[0]}, options);
  const Gang::Leader leader(gang);
  Threads threads;
  threads.leader = std::this_thread::get_id();
  CHECK(gang.launch(note_thread, &threads, 0) == 0);
  CHECK(threads.others.load() == 0);
}

struct Handover {
  explicit Handover(const Gang& gang) : cpus(gang.cpus()) {}
  const std::vector<int>& cpus;
  std::atomic<int> begun{0};
  std::atomic<int> begun_on[2] = {0, 0};
  std::atomic<bool> released[2] = {false, false};
};

// Holds its core until the test's other thread releases that core.
int wait_for_release(int, ParallelEnv*, void* data) {
  auto& handover = *static_cast<Handover*>(data);
  const int core = sched_getcpu() == handover.cpus[0] ? 0 : 1;
  ++handover.begun_on[core];
  ++handover.begun;
  while (!handover.released[core].load()) std::this_thread::yield();
  return 0;
}

void leader_leaves_a_revoked_core() {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.size() < 2) return;
  Gang gang(cpus);
  gang.set_cores(std::vector<int>{0, 1});
  Handover handover(gang);
  std::thread scheduler([&] {
    while (handover.begun.load() < 2) std::this_thread::yield();
    CHECK(gang.in_use(0));
    CHECK(gang.in_use(1));
    CHECK(gang.revoke(0));
    CHECK(!gang.revoke(1));  // the last one
    handover.released[0].store(true);
    handover.released[1].store(true);
    while (gang.in_use(0)) std::this_thread::yield();  // the leader was on core 0
  });
  {
    const Gang::Leader leader(gang);
    CHECK(pinned_to(cpus[0]));
    CHECK(gang.launch(wait_for_release, &handover, 50) == 0);
    CHECK(handover.begun.load() == 50);
    CHECK(handover.begun_on[0].load() == 1);  // none after the revocation
    scheduler.join();
    Counts counts(9);
    counts.expected_tasks = 9;
    CHECK(gang.launch(count_task, &counts, 9) == 0);
    check_each_once(counts);
    CHECK(comes_free(gang, 0));
    CHECK(gang.in_use(1));
    CHECK(pinned_to(cpus[1]));  // where the leader moved to
  }
  CHECK(comes_free(gang, 1));
}

void core_granted_again_is_worked_on_by_its_own_thread() {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.size() < 2) return;
  Gang gang(cpus);
  gang.set_cores(std::vector<int>{0, 1});
  Handover handover(gang);
  std::thread scheduler([&] {
    while (handover.begun.load() < 2) std::this_thread::yield();
    CHECK(gang.revoke(0));
    handover.released[0].store(true);
    while (gang.in_use(0)) std::this_thread::yield();  // the leader has left it and waits
    gang.grant(0);
    while (handover.begun.load() < 20) std::this_thread::yield();  // core 1 is still held
    handover.released[1].store(true);
  });
  const Gang::Leader leader(gang);
  CHECK(gang.launch(wait_for_release, &handover, 20) == 0);
  scheduler.join();
  CHECK(handover.begun_on[0].load() == 19);
}

void granted_core_joins_a_running_launch() {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.size() < 2) return;
  GangOptions options;
  options.alone_tasks = 4;
  Gang gang(cpus, options);
  Handover handover(gang);
  std::thread scheduler([&] {
    while (handover.begun.load() < 1) std::this_thread::yield();
    gang.grant(1);
    while (handover.begun.load() < 2) std::this_thread::yield();  // ends only if core 1 joins
    handover.released[0].store(true);
    handover.released[1].store(true);
  });
  const Gang::Leader leader(gang);
  CHECK(gang.launch(wait_for_release, &handover, 0) == 0);
  scheduler.join();
  CHECK(handover.begun.load() == 4);
}

int fail_on_task_three(int task, ParallelEnv*, void* data) {
  ++*static_cast<std::atomic<int>*>(data);
  return task == 3 ? -1 : 0;
}

void failing_task_fails_the_launch_only() {
  Gang gang(usable_cpus());
  const Gang::Leader leader(gang);
  for (int cores = 1; cores <= static_cast<int>(gang.cpus().size()); ++cores) {
    if (cores > 1) gang.grant(cores - 1);
    for (int round = 0; round < 200; ++round) {
      std::atomic<int> ran{0};
      CHECK(gang.launch(fail_on_task_three, &ran, 16) == -1);
      CHECK(ran.load() >= 1);
      Counts counts(5);
      counts.expected_tasks = 5;
      CHECK(gang.launch(count_task, &counts, 5) == 0);
      check_each_once(counts);
    }
  }
}

struct Nested {
  Gang* gang = nullptr;
  std::atomic<int> inner{0};
  std::atomic<int> moved{0};
};

int nested_task(int, ParallelEnv*, void* data) {
  auto& nested = *static_cast<Nested*>(data);
  struct Inner {
    std::thread::id thread;
    Nested* nested;
  } inner{std::this_thread::get_id(), &nested};
  const auto count = [](int, ParallelEnv* env, void* inner_data) {
    auto& self = *static_cast<Inner*>(inner_data);
    if (std::this_thread::get_id() != self.thread) ++self.nested->moved;
    if (env->num_task == 3) ++self.nested->inner;
    return 0;
  };
  return nested.gang->launch(count, &inner, 3);
}

void nested_launch_runs_inline() {
  Gang gang(usable_cpus());
  for (size_t core = 1; core < gang.cpus().size(); ++core) gang.grant(static_cast<int>(core));
  const Gang::Leader leader(gang);
  Nested nested;
  nested.gang = &gang;
  CHECK(gang.launch(nested_task, &nested, 10) == 0);
  CHECK(nested.inner.load() == 30);
  CHECK(nested.moved.load() == 0);
}

void several_gangs_share_the_cores() {
  constexpr int kGangs = 4;
  std::vector<std::thread> leaders;
  leaders.reserve(kGangs);
  for (int i = 0; i < kGangs; ++i) {
    leaders.emplace_back([] {
      Gang gang(usable_cpus());
      for (size_t core = 1; core < gang.cpus().size(); ++core) gang.grant(static_cast<int>(core));
      const Gang::Leader leader(gang);
      for (int round = 0; round < 500; ++round) {
        Counts counts(12);
        counts.expected_tasks = 12;
        CHECK(gang.launch(count_task, &counts, 12) == 0);
        check_each_once(counts);
      }
    });
  }
  for (auto& leader : leaders) leader.join();
}

void chooses_tasks_without_a_longer_core() {
  const Gang gang(usable_cpus());
  CHECK(gang.choose_tasks(1, {100}) == 1);
  CHECK(gang.choose_tasks(2, {0}) == 8);
  CHECK(gang.choose_tasks(2, {32}) == 8);
  CHECK(gang.choose_tasks(2, {1}) == 1);
  for (int cores = 2; cores <= 8; ++cores) {
    for (int extent = 1; extent <= 200; ++extent) {
      const int tasks = gang.choose_tasks(cores, {extent});
      CHECK(tasks >= 1);
      CHECK(tasks <= extent);
      CHECK(tasks <= cores * GangOptions{}.grain);
      // Never slower than one even share a core, which is what a launcher without choice makes.
      const int chunk = (extent + tasks - 1) / tasks;
      const int load = (tasks + cores - 1) / cores * chunk;
      CHECK(load <= (extent + cores - 1) / cores);
    }
  }
}

// Tasks are as many as asked for, where there are as many iterations, and never on one core; no
// core has more to do than an even share and one task.
void chooses_short_tasks_where_asked() {
  const Gang gang(usable_cpus());
  CHECK(gang.choose_tasks(1, {100, 20}) == 1);
  CHECK(gang.choose_tasks(2, {0, 20}) == 8);
  CHECK(gang.choose_tasks(2, {14, 3}) == 14);    // 7 rounds of one: any coarser split is uneven
  CHECK(gang.choose_tasks(2, {56, 11}) == 14);   // 7 rounds of 4, and not 12 tasks of up to 5
  CHECK(gang.choose_tasks(2, {64, 100}) == 64);  // no more than there are iterations
  CHECK(gang.choose_tasks(2, {1'000'000, 1'000'000}) <= Gang::kMaxTasks);
  for (int cores = 2; cores <= 8; ++cores) {
    for (int extent = 1; extent <= 300; ++extent) {
      for (const int least : {2, 7, 20, 64}) {
        const int tasks = gang.choose_tasks(cores, {extent, least});
        CHECK(tasks >= std::min(extent, least));
        CHECK(tasks <= extent);
        const int chunk = (extent + tasks - 1) / tasks;
        const int load = (tasks + cores - 1) / cores * chunk;
        CHECK(load <= (extent + cores - 1) / cores + chunk);
      }
    }
  }
}

// Demands cores by number; counts the answers.
class Demands final : public CoreWatch {
 public:
  explicit Demands(size_t cores) : demands_(cores), answers_(cores) {}
  void demand(int core, int64_t number) { demands_[static_cast<size_t>(core)] = number; }
  int64_t answered(int core) const { return answers_[static_cast<size_t>(core)]; }

  int64_t must_leave(int core) override { return demands_[static_cast<size_t>(core)]; }
  void left(int core, int64_t demand) override {
    CHECK(comes_free(*gang, core));  // of the caller too, who has nothing to do but to tell
    demands_[static_cast<size_t>(core)] = 0;
    CHECK(answers_[static_cast<size_t>(core)].exchange(demand) != demand);
  }

  Gang* gang = nullptr;

 private:
  std::vector<std::atomic<int64_t>> demands_;
  std::vector<std::atomic<int64_t>> answers_;
};

// A demanded core is left between two tasks, by the leader too, and told; the last one stays.
void demanded_cores_are_left() {
  Demands demands(usable_cpus().size());
  Gang gang(usable_cpus(), {}, &demands);
  demands.gang = &gang;
  const auto cores = static_cast<int>(gang.cpus().size());
  if (cores < 2) return;
  for (int round = 0; round < 200; ++round) {
    gang.set_cores(std::vector<int>{0, 1});
    const Gang::Leader leader(gang);
    Counts counts(40);
    counts.expected_tasks = 40;
    counts.task_ns = 20'000;
    const int core = round % 2;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round));
      demands.demand(core, round + 1);
    });
    CHECK(gang.launch(count_task, &counts, 40) == 0);
    check_each_once(counts);
    other.join();
    // A second launch follows a demand that came too late for the first one's tasks.
    Counts more(40);
    more.expected_tasks = 40;
    more.task_ns = 2'000;
    for (int again = 0; demands.answered(core) != round + 1 && again < 1000; ++again) {
      std::fill(more.runs.begin(), more.runs.end(), 0);
      CHECK(gang.launch(count_task, &more, 40) == 0);
    }
    CHECK(demands.answered(core) == round + 1);
    CHECK(gang.granted() == 1);
    CHECK(comes_free(gang, core));
    demands.demand(1 - core, 1'000'000);  // the last one
    Counts last(10);
    last.expected_tasks = 10;
    CHECK(gang.launch(count_task, &last, 10) == 0);
    check_each_once(last);
    CHECK(gang.granted() == 1 && demands.answered(1 - core) != 1'000'000);
    demands.demand(1 - core, 0);
  }
}

// Two tasks, one a core: that on `core` ends, the other one only when `core` has been left.
struct LeftMeanwhile {
  const std::vector<int>& cpus;
  Demands& demands;
  int core;
  std::atomic<int> begun{0};
};

int end_or_demand(int, ParallelEnv*, void* data) {
  auto& self = *static_cast<LeftMeanwhile*>(data);
  ++self.begun;
  while (self.begun.load() < 2) std::this_thread::yield();
  if (sched_getcpu() == self.cpus[static_cast<size_t>(self.core)]) return 0;
  self.demands.demand(self.core, 7);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (self.demands.answered(self.core) != 7) {
    if (std::chrono::steady_clock::now() > end) return -1;
    std::this_thread::yield();
  }
  return 0;
}

// A core that has no task left is let go at once, and not when the others have ended theirs.
void demanded_cores_are_left_without_a_task() {
  const std::vector<int> cpus = usable_cpus();
  if (cpus.size() < 2) return;
  for (const int core : {0, 1}) {  // the leader's, and one with a thread of its own
    Demands demands(cpus.size());
    GangOptions options;
    options.spin_ns = 60'000'000'000;
    Gang gang(cpus, options, &demands);
    demands.gang = &gang;
    gang.set_cores(std::vector<int>{0, 1});
    const Gang::Leader leader(gang);
    LeftMeanwhile meanwhile{cpus, demands, core};
    CHECK(gang.launch(end_or_demand, &meanwhile, 2) == 0);
    CHECK(gang.granted() == 1);
    CHECK(comes_free(gang, core));
  }
}

void bad_arguments_are_refused() {
  const std::vector<int> cpus = usable_cpus();
  CHECK_THROWS(Gang({}), UsageError);
  CHECK_THROWS(Gang({cpus[0], cpus[0]}), UsageError);
  CHECK_THROWS(Gang({1'000'000}), UsageError);
  CHECK_THROWS(Gang({-1}), UsageError);
  GangOptions options;
  options.grain = 0;
  CHECK_THROWS(Gang({cpus[0]}, options), UsageError);
  Gang gang({cpus[0]});
  CHECK_THROWS(gang.grant(1), UsageError);
  CHECK_THROWS(gang.revoke(-1), UsageError);
  CHECK_THROWS(gang.set_cores({}), UsageError);
  CHECK_THROWS(gang.set_cores(std::vector<int>{0, 0}), UsageError);
  const Gang::Leader leader(gang);
  std::thread([&] { CHECK_THROWS(Gang::Leader(gang), UsageError); }).join();
}

std::vector<int> cpus_of(pthread_t thread) {
  cpu_set_t set;
  pthread_getaffinity_np(thread, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void followers_run_where_the_gang_may() {
  Gang gang(usable_cpus());
  const std::vector<int>& cpus = gang.cpus();
  std::vector<int> all(cpus.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  std::atomic<bool> stop{false};
  std::thread other([&stop] { stop.wait(false); });
  const std::vector<pthread_t> threads{other.native_handle()};
  const int last = static_cast<int>(cpus.size()) - 1;
  gang.set_cores(std::vector<int>{last});
  {
    const Gang::Leader leader(gang);
    const Gang::Followers followers(gang, threads);
    CHECK(cpus_of(threads[0]) == std::vector<int>{cpus[static_cast<size_t>(last)]});
    gang.set_cores(all);
    const std::vector<int> others(cpus.begin(), cpus.end() - 1);  // the last is the leader's
    CHECK(cpus_of(threads[0]) == (others.empty() ? cpus : others));
    for (int core = last - 1; core > 0; --core) gang.revoke(core);
    if (last > 0) CHECK(cpus_of(threads[0]) == std::vector<int>{cpus[0]});
    if (last > 1) {
      gang.grant(1);
      CHECK(cpus_of(threads[0]) == (std::vector<int>{cpus[0], cpus[1]}));
    }
  }
  const std::vector<int> left = cpus_of(threads[0]);
  gang.set_cores(all);
  gang.set_cores(std::vector<int>{0});
  CHECK(cpus_of(threads[0]) == left);  // it follows no longer
  {
    const Gang::Leader leader(gang);
    {
      const Gang::Followers followers(gang, threads);
      gang.set_cores(std::vector<int>{last});  // the leader's own core is revoked
    }
    CHECK(last == 0 || gang.in_use(0));  // the leader is there until it begins something
    const Gang::Followers followers(gang, threads);
    CHECK(gang.in_use(last));
    CHECK(last == 0 || comes_free(gang, 0));
  }
  stop.store(true);
  stop.notify_all();
  other.join();
}

void affinity_comes_back_where_asked() {
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  GangOptions options;
  options.restore_affinity = true;
  Gang gang({usable_cpus().back()}, options);
  {
    const Gang::Leader leader(gang);
    CHECK(pinned_to(gang.cpus()[0]));
  }
  cpu_set_t after;
  sched_getaffinity(0, sizeof after, &after);
  CHECK(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace veltair::engine

int main() {
  using namespace veltair::engine;
  affinity_comes_back_where_asked();  // first: the others pin this thread
  // Each on a thread of its own, so that the next starts unpinned.
  for (void (*test)() :
       {runs_each_task_once, every_launch_wakes_all_its_cores,
        leader_stands_for_the_thread_of_its_core, cores_join_and_leave_while_running,
        leader_leaves_a_revoked_core, core_granted_again_is_worked_on_by_its_own_thread,
        granted_core_joins_a_running_launch, failing_task_fails_the_launch_only,
        nested_launch_runs_inline, several_gangs_share_the_cores,
        chooses_tasks_without_a_longer_core, chooses_short_tasks_where_asked,
        demanded_cores_are_left, demanded_cores_are_left_without_a_task,
        followers_run_where_the_gang_may, bad_arguments_are_refused}) {
    std::thread(test).join();
  }
  return 0;
}
