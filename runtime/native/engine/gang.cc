#include "native/engine/gang.h"

#include <immintrin.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "native/engine/clock.h"
#include "native/engine/error.h"
#include "native/engine/futex.h"

namespace veltair::engine {
namespace {

constexpr uint32_t kAwake = 0;
constexpr uint32_t kParked = 1;
constexpr int kPausesPerClockRead = 16;
constexpr int kSplitsTried = 16;

thread_local Gang* led_gang = nullptr;
thread_local bool in_task = false;
// The cpu that the engine pinned this thread to, or -1: saves a system call a block.
thread_local int pinned_cpu = -1;

uint64_t pack(uint32_t launch, uint32_t tasks) {
  return uint64_t{launch} << 32 | uint64_t{tasks} << 16;
}
uint32_t launch_of(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
int tasks_of(uint64_t ticket) { return static_cast<int>(ticket >> 16 & 0xffff); }
int next_of(uint64_t ticket) { return static_cast<int>(ticket & 0xffff); }
bool open(uint64_t ticket) { return next_of(ticket) < tasks_of(ticket); }

// Repeats `ready` with pauses until it is true or `limit_ns` have passed; says which.
template <typename Ready>
bool spin_until(int64_t limit_ns, Ready ready) {
  int64_t end_ns = 0;
  for (int pauses = 1;; ++pauses) {
    if (ready()) return true;
    _mm_pause();
    if (pauses % kPausesPerClockRead != 0) continue;
    const int64_t at_ns = now_ns();
    if (end_ns == 0) end_ns = at_ns + limit_ns;
    if (at_ns >= end_ns) return ready();
  }
}

// Pins the calling thread; 0 or the error number.
int pin(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return EINVAL;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

void check_options(const GangOptions& options) {
  if (options.spin_ns < 0 || options.grain < 1 || options.alone_tasks < 1) {
    throw UsageError("gang: spin_ns must be at least 0, grain and alone_tasks at least 1");
  }
}

// Refuses, before any thread exists, a cpu that the operating system doesn't give this process.
void check_cpus(const std::vector<int>& cpus) {
  if (cpus.empty()) throw UsageError("gang: no cpus; give at least one");
  std::vector<int> sorted = cpus;
  std::sort(sorted.begin(), sorted.end());
  const auto repeated = std::adjacent_find(sorted.begin(), sorted.end());
  if (repeated != sorted.end()) {
    throw UsageError("gang: cpu " + std::to_string(*repeated) + " is given twice");
  }
  cpu_set_t before;
  pthread_getaffinity_np(pthread_self(), sizeof before, &before);
  for (const int cpu : cpus) {
    const int error = pin(cpu);
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    if (error != 0) {
      throw UsageError("gang: cpu " + std::to_string(cpu) + " can't be used (" +
                       std::strerror(error) + "); choose among those that `taskset -p $$` shows");
    }
  }
}

// A loop's iterations, divided among tasks and these among cores.
struct Split {
  int tasks;
  int64_t load;  // iterations of the busiest core
};

// Tasks of `chunk` iterations each, as kernels divide: ceil(extent / tasks).
Split split(int extent, int chunk, int cores) {
  const int tasks = (extent - 1) / chunk + 1;
  if (tasks > Gang::kMaxTasks) return {tasks, INT64_MAX};
  return {tasks, int64_t{(tasks - 1) / cores + 1} * ((extent - 1) / tasks + 1)};
}

// Of the splits into at most `rounds` tasks a core the one whose busiest core has the fewest
// iterations, and among equals the finest.
int even_tasks(int cores, int extent, int rounds) {
  Split best{0, INT64_MAX};
  for (int round = rounds; round >= 1; --round) {
    const int tasks = std::min(cores * round, Gang::kMaxTasks);
    const Split each = split(extent, (extent - 1) / tasks + 1, cores);
    if (each.load < best.load) best = each;
  }
  return best.tasks;
}

// Of the splits into tasks of at most `longest` iterations, and not below half of that, the one
// whose busiest core has the fewest, and among equals the coarsest.
int short_tasks(int cores, int extent, int longest) {
  const int step = (longest - 1) / (2 * kSplitsTried) + 1;
  Split best = split(extent, longest, cores);
  for (int chunk = longest - step; chunk > longest / 2; chunk -= step) {
    const Split each = split(extent, chunk, cores);
    if (each.load < best.load) best = each;
  }
  return best.tasks;
}

}  // namespace

Gang::Gang(std::vector<int> cpus, GangOptions options, CoreWatch* watch)
    : cpus_(std::move(cpus)), options_(options), watch_(watch) {
  check_options(options_);
  check_cpus(cpus_);
  cores_ = std::make_unique<Core[]>(cpus_.size());
  cores_[0].granted.store(true);
  granted_.store(1);
  // Signals are for the process's own threads; a thread inherits the mask of its maker.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (size_t core = 0; core < cpus_.size(); ++core) {
      cores_[core].thread = std::thread(&Gang::thread_main, this, static_cast<int>(core));
    }
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    stop();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Gang::~Gang() { stop(); }

void Gang::stop() {
  stop_.store(true);
  for (size_t core = 0; core < cpus_.size(); ++core) {
    wake(cores_[core]);
    if (cores_[core].thread.joinable()) cores_[core].thread.join();
  }
}

void Gang::check_core(int core) const {
  if (core < 0 || static_cast<size_t>(core) >= cpus_.size()) {
    throw UsageError("gang: core " + std::to_string(core) + " is outside 0.." +
                     std::to_string(cpus_.size() - 1));
  }
}

void Gang::set_cores(std::span<const int> cores) {
  if (cores.empty()) throw UsageError("gang: no cores; grant at least one");
  for (size_t i = 0; i < cores.size(); ++i) {
    check_core(cores[i]);
    for (size_t j = 0; j < i; ++j) {
      if (cores[i] == cores[j]) {
        throw UsageError("gang: core " + std::to_string(cores[i]) + " is given twice");
      }
    }
  }
  const std::lock_guard lock(control_);
  // The new ones first, so that at no time none is granted.
  for (const int core : cores) {
    if (!cores_[core].granted.exchange(true)) wake(cores_[core]);
  }
  for (size_t core = 0; core < cpus_.size(); ++core) {
    if (std::find(cores.begin(), cores.end(), static_cast<int>(core)) == cores.end()) {
      cores_[core].granted.store(false);
    }
  }
  granted_.store(static_cast<int>(cores.size()));
  place_followers();
}

void Gang::grant(int core) {
  check_core(core);
  const std::lock_guard lock(control_);
  if (cores_[core].granted.exchange(true)) return;
  granted_.fetch_add(1);
  wake(cores_[core]);
  place_followers();
}

bool Gang::revoke(int core) {
  check_core(core);
  const std::lock_guard lock(control_);
  if (!cores_[core].granted.load()) return true;
  if (granted_.load() == 1) return false;
  cores_[core].granted.store(false);
  granted_.fetch_sub(1);
  place_followers();
  return true;
}

bool Gang::in_use(int core) const {
  check_core(core);
  return leader_core_.load() == core || cores_[core].working.load();
}

bool Gang::may_work(int core) const {
  return cores_[core].granted.load() && leader_core_.load() != core;
}

bool Gang::open_tasks() const { return open(ticket_.load()); }

// The order of park and wake is Dekker's: the sleeper says that it sleeps, then looks for work; the
// waker publishes work, then looks for sleepers. Both with sequential consistency, so one sees the
// other.
bool Gang::wake(Core& core) {
  if (core.state.load() != kParked || core.state.exchange(kAwake) != kParked) return false;
  futex_wake(core.state, 1);
  return true;
}

void Gang::park(int core) {
  Core& self = cores_[core];
  self.state.store(kParked);
  if (!stop_.load() && !(may_work(core) && open_tasks())) futex_wait(self.state, kParked);
  self.state.store(kAwake);
}

// Wakes sleepers among the first `want` granted cores. Woken threads call it too, so that a large
// gang wakes as a tree and not one by one.
void Gang::wake_granted(int want) {
  const int leader = leader_core_.load();
  if (leader >= 0) --want;
  for (size_t core = 0; core < cpus_.size() && want > 0; ++core) {
    if (static_cast<int>(core) == leader || !cores_[core].granted.load()) continue;
    --want;
    wake(cores_[core]);
  }
}

void Gang::thread_main(int core) {
  const std::string name = "veltair/" + std::to_string(cpus_[core]);
  pthread_setname_np(pthread_self(), name.c_str());
  pin(cpus_[core]);
  Core& self = cores_[core];
  while (!stop_.load()) {
    if (may_work(core)) {  // else woken for nothing: the core is another's
      self.working.store(true);
      int64_t demand = 0;
      if (may_work(core)) run_claimed(core, &demand);  // read again after `working`: see in_use
      self.working.store(false);
      tell_left(core, demand);
    }
    idle(core);
  }
}

// Waits for work: awake for a while where the core is granted, then asleep.
void Gang::idle(int core) {
  const auto wanted = [this, core] {
    return stop_.load() || !may_work(core) || open_tasks() ||
           (granted() > 1 && demanded(core) != 0);
  };
  const bool found = may_work(core) && spin_until(options_.spin_ns, wanted);
  if (found && may_work(core)) return;
  park(core);
  if (may_work(core) && open_tasks()) wake_granted(tasks_of(ticket_.load()));
}

// Claims and runs tasks of the running launch until none is left or the core is revoked. Returns
// how many are left unclaimed: more than zero only after a revocation. `demand` is set where the
// core was left for one.
int Gang::run_claimed(int core, int64_t* demand) {
  const std::atomic<bool>& granted = cores_[core].granted;
  int ran = 0;
  uint64_t ticket = ticket_.load();
  // The watch first: who has been revoked already by another thread still answers its demand, and
  // so does who finds no task.
  while (!leaves(core, demand) && open(ticket) && granted.load(std::memory_order_relaxed)) {
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1)) continue;
    if (!failed_.load(std::memory_order_relaxed)) {
      in_task = true;
      if (lambda_(next_of(ticket), &env_, data_) != 0) failed_.store(true);
      in_task = false;
    }
    ++ran;
    ticket = ticket_.load();
  }
  // While a task of ours isn't counted the launch can't end, so `ticket` is still of that launch.
  const int left = tasks_of(ticket) - next_of(ticket);
  if (ran > 0) finish(ran, tasks_of(ticket));
  if (left > 0) wake_granted(static_cast<int>(cpus_.size()));
  return left;
}

// Follows a demand of the watch, if there is one, by revoking the core here. Who does so answers it
// when it has left.
bool Gang::leaves(int core, int64_t* demand) {
  const int64_t wanted = demanded(core);
  if (wanted == 0 || !revoke(core)) return false;  // the last one stays
  *demand = wanted;
  return true;
}

int64_t Gang::demanded(int core) const { return watch_ == nullptr ? 0 : watch_->must_leave(core); }

void Gang::tell_left(int core, int64_t demand) {
  if (demand != 0) watch_->left(core, demand);
}

void Gang::finish(int tasks, int num_task) {
  const uint32_t done =
      done_.fetch_add(static_cast<uint32_t>(tasks)) + static_cast<uint32_t>(tasks);
  if (done == static_cast<uint32_t>(num_task) && leader_waits_.load()) futex_wake(done_, 1);
}

void Gang::wait_for_end(uint32_t num_task) {
  leader_waits_.store(true);
  for (uint32_t done = done_.load(); done != num_task; done = done_.load()) futex_wait(done_, done);
  leader_waits_.store(false);
}

int Gang::run_published(ParallelLambda lambda, void* data, int num_task) {
  done_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  lambda_ = lambda;
  data_ = data;
  env_ = ParallelEnv{nullptr, num_task};
  const uint32_t launch = launch_of(ticket_.load(std::memory_order_relaxed)) + 1;
  ticket_.store(pack(launch, static_cast<uint32_t>(num_task)));
  wake_granted(num_task);
  const int core = leader_core_.load(std::memory_order_relaxed);
  const auto tasks = static_cast<uint32_t>(num_task);
  const auto ended = [this, tasks] { return done_.load() == tasks; };
  int64_t demand = 0;
  bool leaves_core = run_claimed(core, &demand) > 0 || demand != 0;
  if (!leaves_core) {
    spin_until(options_.spin_ns, [&] {
      leaves_core = leaves(core, &demand);
      return leaves_core || ended();
    });
  }
  if (leaves_core) {
    // This core was revoked: free it, and let its own thread work should it be granted again.
    leader_core_.store(-1);
    tell_left(core, std::exchange(demand, 0));
    wake_granted(static_cast<int>(cpus_.size()));
  }
  if (!ended()) wait_for_end(tasks);
  return failed_.load(std::memory_order_relaxed) ? -1 : 0;
}

int Gang::launch_inline(ParallelLambda lambda, void* data, int num_task) {
  num_task = std::max(num_task, 1);
  ParallelEnv env{nullptr, num_task};
  const bool outer = std::exchange(in_task, true);
  int result = 0;
  for (int task = 0; task < num_task && result == 0; ++task) {
    if (lambda(task, &env, data) != 0) result = -1;
  }
  in_task = outer;
  return result;
}

int Gang::launch(ParallelLambda lambda, void* data, int num_task, ParallelLoop loop) {
  if (in_task || led_gang != this) return launch_inline(lambda, data, num_task);
  keep_core();
  const int cores = granted();
  if (num_task <= 0) num_task = choose_tasks(cores, loop);
  const bool alone = cores == 1 && options_.alone_tasks == 1;
  const int result = num_task == 1 || alone || num_task > kMaxTasks
                         ? launch_inline(lambda, data, num_task)
                         : run_published(lambda, data, num_task);
  keep_core();
  return result;
}

int Gang::choose_tasks(int cores, ParallelLoop loop) const {
  const int rounds = cores == 1 ? options_.alone_tasks : options_.grain;
  const int usual = std::min(cores * rounds, kMaxTasks);
  if (loop.extent <= 0) return usual;
  if (cores == 1 || loop.least_tasks <= 1) return even_tasks(cores, loop.extent, rounds);
  const int fewest = (loop.extent - 1) / kMaxTasks + 1;  // iterations that a task must have
  return short_tasks(cores, loop.extent,
                     std::max(loop.extent / std::max(usual, loop.least_tasks), fewest));
}

// Moves the leader away from a core that was revoked.
void Gang::keep_core() {
  const int core = leader_core_.load(std::memory_order_relaxed);
  int64_t demand = 0;
  if (core >= 0 && !leaves(core, &demand) && cores_[core].granted.load(std::memory_order_relaxed)) {
    return;
  }
  take_core();
  tell_left(core, demand);
}

// Moves the leader to a granted core: the one it had, where it may.
void Gang::take_core() {
  int core = last_core_;
  do {
    while (!cores_[core].granted.load()) core = (core + 1) % static_cast<int>(cpus_.size());
    leader_core_.store(core);
  } while (!cores_[core].granted.load());  // revoked meanwhile: whoever did may not have seen us
  last_core_ = core;
  if (pinned_cpu == cpus_[core]) return;
  if (pin(cpus_[core]) == 0) pinned_cpu = cpus_[core];
}

// Under `control_`. When a call returns, no thread runs on a core that it may not.
void Gang::place_followers() {
  if (followers_.empty()) return;
  const int leader = leader_core_.load();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t core = 0; core < cpus_.size(); ++core) {
    if (cores_[core].granted.load() && static_cast<int>(core) != leader) CPU_SET(cpus_[core], &set);
  }
  if (CPU_COUNT(&set) == 0) CPU_SET(cpus_[leader], &set);
  for (const pthread_t thread : followers_) pthread_setaffinity_np(thread, sizeof set, &set);
}

Gang::Followers::Followers(Gang& gang, std::span<const pthread_t> threads) : gang_(gang) {
  gang_.keep_core();
  const std::lock_guard lock(gang_.control_);
  gang_.followers_ = threads;
  gang_.place_followers();
}

Gang::Followers::~Followers() {
  const std::lock_guard lock(gang_.control_);
  gang_.followers_ = {};
}

Gang* Gang::led_here() { return led_gang; }

Gang::Leader::Leader(Gang& gang) : gang_(gang), outer_(led_gang) {
  if (gang_.led_.exchange(true)) {
    throw UsageError("gang: led by another thread already; one thread at a time may run on it");
  }
  if (gang_.options_.restore_affinity) {
    pthread_getaffinity_np(pthread_self(), sizeof affinity_, &affinity_);
    pinned_cpu = -1;
  }
  led_gang = &gang_;
  gang_.take_core();
}

Gang::Leader::~Leader() {
  gang_.leader_core_.store(-1);
  led_gang = outer_;
  if (gang_.options_.restore_affinity) {
    pthread_setaffinity_np(pthread_self(), sizeof affinity_, &affinity_);
    pinned_cpu = -1;
  }
  gang_.led_.store(false);
}

}  // namespace veltair::engine
