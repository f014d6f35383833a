// A gang: pinned threads that run the parallel tasks of one kernel at a time.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "native/engine/abi.h"

namespace veltair::engine {

struct GangOptions {
  // How long a thread looks for the next launch (and the leader for the end of one) before it
  // sleeps. Longer saves wake-ups between the kernels of a block; shorter frees an idle core
  // sooner.
  int64_t spin_ns = 30'000;
  // Tasks a core where the launcher chooses: more tasks let cores join and leave a running kernel
  // sooner, each costs a cache line's way between cores.
  int grain = 4;
  // Tasks where the launcher chooses and one core is granted. With 1 the kernel runs as a plain
  // loop and a core granted meanwhile joins at the next kernel; with more it joins this one.
  int alone_tasks = 1;
  // Whether a leader's affinity is put back when it stops leading: for threads that the gang
  // doesn't own, as Python's.
  bool restore_affinity = false;
};

// The loop that a kernel divides among its tasks.
struct ParallelLoop {
  int extent = 0;       // iterations; 0 where not known
  int least_tasks = 1;  // it is cut into as many at least, where there are as many iterations
};

// Says which cores a gang must leave: asked by the threads that run there, between two tasks.
class CoreWatch {
 public:
  CoreWatch() = default;
  virtual ~CoreWatch() = default;
  CoreWatch(const CoreWatch&) = delete;
  CoreWatch& operator=(const CoreWatch&) = delete;

  // Whether `core` must be left; not 0 says so, and names the demand.
  virtual int64_t must_leave(int core) = 0;
  // Nothing of the gang runs on `core` any more, as that demand wanted.
  virtual void left(int core, int64_t demand) = 0;
};

// One thread a core, asleep until its core is granted and there is work.
//
// A launch is cut into tasks that threads claim one by one from an atomic word, so the cores can
// change while a kernel runs: a granted core joins, a revoked one leaves at its next task boundary.
//
// Ownership: owns its threads; the destructor joins them and must not run during a `Leader`.
// Thread-safety: `set_cores`, `grant`, `revoke`, `granted`, `in_use` from any thread at any time;
// `launch` from the leader, and from inside tasks (nested launches run inline). Nothing allocates
// after construction. Any number of gangs may share cores, in one process or several: every wait
// spins for `spin_ns` at most and then sleeps.
class Gang {
 public:
  static constexpr int kMaxTasks = 65535;

  // Makes one thread for each of `cpus` (numbers of the operating system); "core" below is an index
  // into that list. Core 0 is granted. Throws UsageError for an empty list, a repeated cpu, one
  // that the process may not use, or an option out of range.
  // `watch`, where there is one, must outlive the gang.
  explicit Gang(std::vector<int> cpus, GangOptions options = {}, CoreWatch* watch = nullptr);
  ~Gang();
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  // The cpus that the gang was made with.
  const std::vector<int>& cpus() const { return cpus_; }

  // Grants exactly `cores`: at least one, no duplicates. Throws UsageError, changing nothing.
  void set_cores(std::span<const int> cores);
  // Lets `core` work, within a running launch too.
  void grant(int core);
  // Takes `core` back: its thread claims no task after the one that it is in. False, and nothing
  // changes, where it is the last one: a kernel that has begun must be able to end.
  bool revoke(int core);
  // How many cores are granted.
  int granted() const { return granted_.load(std::memory_order_relaxed); }
  // Whether anything of the gang still runs on `core`: after `revoke`, false says that it is free.
  // True may also be, for a moment, a thread that was woken before and finds that it may not work.
  // The leader's core comes free when its next launch begins or ends, or when it stops leading.
  bool in_use(int core) const;

  // Makes the calling thread the gang's leader while it lives: pinned to one of the granted cores,
  // whose own thread sleeps meanwhile. Throws UsageError where there is a leader already.
  class Leader {
   public:
    explicit Leader(Gang& gang);
    ~Leader();
    Leader(const Leader&) = delete;
    Leader& operator=(const Leader&) = delete;

   private:
    Gang& gang_;
    Gang* outer_;
    cpu_set_t affinity_;
  };

  // Threads of another's that work for the leader while it lives: they run on the granted cores and
  // on no other, also when those change. With more cores than one they leave the leader's to it.
  //
  // A core that is revoked is free of them at once; the leader's own when the next launch or the
  // next followers begin, or when it stops leading. At most one at a time, made by the leader; the
  // threads must outlive it.
  class Followers {
   public:
    Followers(Gang& gang, std::span<const pthread_t> threads);
    ~Followers();
    Followers(const Followers&) = delete;
    Followers& operator=(const Followers&) = delete;

   private:
    Gang& gang_;
  };

  // Runs the tasks one after the other on the calling thread; `num_task` below 1 is one task.
  static int launch_inline(ParallelLambda lambda, void* data, int num_task);

  // The gang that the calling thread leads, or null.
  static Gang* led_here();

  // Runs `lambda(task, env, data)` once for each task, on all granted cores, and returns when all
  // have ended: 0, or -1 where any returned non-zero (tasks not begun by then are dropped).
  // `num_task` 0 lets the gang choose for the kernel's loop, so that no core gets an iteration more
  // than it must.
  int launch(ParallelLambda lambda, void* data, int num_task, ParallelLoop loop = {});

  // How many tasks `launch` makes of `num_task` 0 on `cores` cores. `least_tasks` above 1 asks for
  // tasks short enough to leave a core between two of them: one core has `alone_tasks` all the same
  // (it is never taken back), several have `grain` each at least, and may have an iteration more
  // than they must.
  int choose_tasks(int cores, ParallelLoop loop) const;

 private:
  struct alignas(64) Core {
    std::atomic<uint32_t> state{0};  // kAwake or kParked; its thread sleeps on it
    std::atomic<bool> granted{false};
    std::thread thread;
    // On a line of its own: its thread writes it in every launch, the leader reads the others.
    alignas(64) std::atomic<bool> working{false};
  };

  bool may_work(int core) const;
  bool open_tasks() const;
  void thread_main(int core);
  void idle(int core);
  void park(int core);
  bool wake(Core& core);
  void wake_granted(int want);
  int run_claimed(int core, int64_t* demand);
  bool leaves(int core, int64_t* demand);
  int64_t demanded(int core) const;
  void tell_left(int core, int64_t demand);
  void finish(int tasks, int num_task);
  void wait_for_end(uint32_t num_task);
  int run_published(ParallelLambda lambda, void* data, int num_task);
  void place_followers();
  void keep_core();
  void take_core();
  void check_core(int core) const;
  void stop();

  const std::vector<int> cpus_;
  const GangOptions options_;
  CoreWatch* const watch_;
  std::unique_ptr<Core[]> cores_;
  std::mutex control_;  // orders set_cores, grant and revoke; never taken by a launch
  std::span<const pthread_t> followers_;  // under `control_`

  // Read by every waiting thread, written when the leader or the grants change.
  alignas(64) std::atomic<int> leader_core_{-1};
  std::atomic<int> granted_{0};
  std::atomic<bool> led_{false};
  std::atomic<bool> stop_{false};
  int last_core_ = 0;  // the leader's

  // The running launch. `ticket_` is launch number (32 bits), number of tasks (16), next task (16):
  // one word, so a claim that succeeds belongs to the launch that its claimer saw, and keeps that
  // launch, and so the fields beside it, alive.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  ParallelLambda lambda_ = nullptr;
  void* data_ = nullptr;
  ParallelEnv env_{nullptr, 0};
  std::atomic<bool> failed_{false};

  alignas(64) std::atomic<uint32_t> done_{0};  // tasks that ended; the leader sleeps on it
  std::atomic<bool> leader_waits_{false};
};

}  // namespace veltair::engine
