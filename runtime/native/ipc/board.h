// All that may be done to a shared segment's state, each as one short critical section.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "native/ipc/layout.h"
#include "native/ipc/segment.h"
#include "native/sched/admission.h"
#include "native/sched/batching.h"
#include "native/sched/placement.h"
#include "native/sched/policy.h"

namespace veltair::ipc {

// What a query's end is told to its client.
struct Ended {
  int32_t query = kNone;
  bool ok = false;
  int64_t tag = 0;
  int64_t queue_ns = 0;
  int64_t compute_ns = 0;
  int64_t end_ns = 0;
};

// A query that was refused, or not.
struct Verdict {
  bool ok = true;
  Failure why = Failure::kQueueFull;
  int64_t late_ns = 0;  // kDeadline: by how much it would end too late
};

// A worker's next step. `stop`: the server has ended. Neither task nor stop: sleep on
// `WorkerRecord::work` while it holds `seen`.
struct Step {
  bool stop = false;
  uint32_t seen = 0;
  sched::Decision decision;
};

// The scheduling policy as a worker asks it: under the mutex, about the records themselves.
struct Scheduler {
  const sched::Policy& policy;
  std::span<const sched::ModelProfile> profiles;
};

// One process's hand on the segment's state.
//
// The state changes only in here. Each method is one critical section of about a microsecond under
// the segment's mutex, and wakes whom the change concerns after leaving it. The mutex is robust: if
// a process dies inside, the next one to enter repairs the state first (repair.cc).
//
// Ownership: shares the segment. Thread-safety: all methods, from any thread and process. Times are
// of CLOCK_MONOTONIC and passed in.
class Board {
 public:
  // Throws std::invalid_argument where the segment names policies that this build doesn't know.
  explicit Board(std::shared_ptr<Segment> segment);
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  Segment& segment() const { return *segment_; }
  const std::shared_ptr<Segment>& shared_segment() const { return segment_; }

  // ---- clients (queries.cc)

  // Returns the client's number, or kNone where kMaxClients are attached.
  int32_t add_client(int32_t pid);
  // Takes everything back from a client that leaves or has died: cancels what it queued, frees its
  // slots (those of a running task when that ends).
  void remove_client(int32_t client, int64_t now_ns);
  // Takes the model's lowest free slot, so that neighbours in time are neighbours in memory.
  Verdict allocate(int32_t client, int32_t model, int32_t* query);
  // Hands a held slot to the server. A refused one is free again.
  Verdict submit(int32_t client, int32_t query, int64_t arrival_ns, int64_t deadline_ns,
                 int64_t tag, int64_t now_ns);
  // Frees a held or completed slot now, a queued or running one at its end. False, and nothing
  // changes, where the slot isn't the client's.
  bool release(int32_t client, int32_t query);
  // Takes up to `ended.size()` completions in the order in which they ended; returns how many.
  int32_t collect(int32_t client, std::span<Ended> ended);

  // ---- workers (workers.cc)

  // Announces a worker; its place must be absent. It is idle from here on.
  void join(int32_t worker, int32_t pid, int64_t now_ns);
  // Begins a task on an idle worker, if the policy has one for it and a core is free.
  Step take(int32_t worker, const Scheduler& scheduler, int64_t now_ns);
  // Ends a busy worker's block and begins the next one of its task. `layer_end` of the layers have
  // run.
  Step next_block(int32_t worker, const Scheduler& scheduler, int32_t layer_end, int64_t now_ns);
  // Ends a busy worker's task: its queries complete, its cores come free. An empty `error` is
  // success.
  void complete(int32_t worker, std::string_view error, int64_t now_ns);
  // Writes the numbers of the cores that the worker holds; returns how many.
  int32_t held_cores(int32_t worker, std::span<int32_t> cores);
  // Takes a worker out that has died (its process must be gone) or leaves: its cores come free, its
  // task goes back to the front of the queue, or fails after kMaxAttempts.
  void remove_worker(int32_t worker, int64_t now_ns);

  // ---- the server (server.cc)

  void set_state(ServerState state);
  void set_model_state(int32_t model, ModelState state, std::string_view reason);
  // Queries that were accepted and have not ended.
  int32_t pending();
  // Fails every task that waits; returns how many.
  int32_t fail_queued(std::string_view error, int64_t now_ns);
  // Says what is wrong with the state, or nothing: no core with two owners, every task in one
  // place, every slot accounted for, no core idle that a running block waits for.
  std::string check();

  // ---- for tests

  // Makes this process kill itself at the `countdown`-th next store of a critical section, as
  // SIGKILL from outside could; 0: never.
  void die_at_step(int countdown) { die_at_step_ = countdown; }

 private:
  // Holds the mutex; collects wake-ups and sends them after letting it go.
  class Critical {
   public:
    explicit Critical(Board& board);
    ~Critical();
    Critical(const Critical&) = delete;
    Critical& operator=(const Critical&) = delete;
    // Changes a futex word and wakes its sleepers at the end.
    void wake(std::atomic<uint32_t>& word);

   private:
    Board& board_;
    std::array<std::atomic<uint32_t>*, 16> words_;
    int count_ = 0;
  };

  // Separates two stores: the second is not made before the first, and a test may die between them.
  void step();

  // queue.cc
  void link(int32_t task);
  void unlink(int32_t task);
  void free_query(int32_t query);
  void finish(Critical& critical, int32_t task);
  void end_task(Critical& critical, int32_t task, std::string_view error, int64_t now_ns);
  void cancel(int32_t task);
  void dispatch(Critical& critical);
  void top_up_blocks(Critical& critical);
  void grant(int32_t worker, int32_t wanted);
  void give_back(int32_t worker, int32_t keep);

  // queries.cc
  sched::Admission admission(const ModelRecord& model, int64_t deadline_ns, int64_t now_ns);
  void enqueue(int32_t query);
  bool drop_query(int32_t query);

  // workers.cc
  sched::View view(const Scheduler& scheduler) const;
  void begin_block(int32_t worker, const sched::Decision& decision, int64_t now_ns);
  void requeue(Critical& critical, int32_t worker, int64_t now_ns);

  // repair.cc
  void repair(Critical& critical);
  void settle_tasks(Critical& critical);
  void settle_workers();
  void rebuild_queue();
  void rebuild_slots();
  void rebuild_rings();

  // check.cc
  std::string check_cores() const;
  std::string check_queue() const;
  std::string check_tasks() const;
  std::string check_slots() const;

  std::shared_ptr<Segment> segment_;
  Header& header_;
  const std::span<CoreRecord> cores_;
  const std::span<WorkerRecord> workers_;
  const std::span<ClientRecord> clients_;
  const std::span<ModelRecord> models_;
  const std::span<QueryRecord> queries_;
  const std::span<TaskRecord> tasks_;
  const std::unique_ptr<sched::BatchingPolicy> batching_;
  const std::unique_ptr<sched::PlacementPolicy> placement_;
  int die_at_step_ = 0;
};

// The histogram bucket of a latency, and a bucket's inclusive upper bound (the last has the largest
// int64).
int latency_bucket(int64_t latency_ns);
int64_t bucket_bound_ns(int bucket);

// Whether the state field of a record says `state`.
template <typename State>
bool is(const std::atomic<uint32_t>& field, State state) {
  return field.load(std::memory_order_relaxed) == static_cast<uint32_t>(state);
}

// Commits a state.
template <typename State>
void put(std::atomic<uint32_t>& field, State state) {
  field.store(static_cast<uint32_t>(state), std::memory_order_release);
}

}  // namespace veltair::ipc
