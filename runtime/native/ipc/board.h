// All that may be done to a shared segment's state, each as one short critical section.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "native/ipc/layout.h"
#include "native/ipc/own_levels.h"
#include "native/ipc/segment.h"
#include "native/sched/admission.h"
#include "native/sched/block_times.h"
#include "native/sched/interference.h"
#include "native/sched/policy.h"
#include "native/sched/record.h"

namespace veltair::ipc {

// What a query's end is told to its client.
struct Ended {
  int32_t query = kNone;
  bool ok = false;
  Failure why = Failure::kError;  // where not `ok`
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

// A query that waits for the batching policy.
struct Arrival {
  int32_t query = kNone;
  int32_t model = kNone;
  int64_t arrival_ns = 0;
  int64_t deadline_ns = 0;
};

// A task that the batching policy made.
struct Released {
  int32_t executor = kNone;
  int32_t task = kNone;
  int64_t order = 0;  // tells it from later tasks of the same number
};

struct News {
  std::vector<Arrival> arrivals;   // in their order
  std::vector<int32_t> executors;  // whose tasks have ended
  uint32_t epoch = 0;              // of the policies
};

// A worker's next step. At most one of `stop` and `stale` holds. Where neither does and
// `decision.task` is kNone: sleep on `WorkerRecord::work` while it holds `seen`, then `take` again.
struct Step {
  bool stop = false;   // the server has ended
  bool stale = false;  // the policies have changed: make new ones, then `take`
  bool waits = false;  // its task waits at a boundary
  uint32_t seen = 0;
  sched::Decision decision;  // the block to run now
};

// The scheduling policy as workers ask it: under the mutex, about the records themselves.
struct Scheduler {
  const sched::Policy& policy;
  std::span<const sched::ModelProfile> profiles;
  const sched::Interference* interference = nullptr;  // null: level 0
  uint32_t epoch = 0;                                 // of the policies that `policy` is one of
  sched::Recorder* recorder = nullptr;                // notes each decision; its owner flushes it
};

// A worker's cores at one moment, by their number.
struct OwnedCores {
  struct Leaving {
    int32_t core;
    int64_t revoked_ns;
  };
  std::vector<int32_t> held;     // its own to use; fewer than `Running::cores_held` while others
                                 // still let some go
  std::vector<Leaving> leaving;  // that it must let go
};

// How long a block took that ended, against its profile.
struct BlockSample {
  int32_t core = 0;  // the first that it ran on
  int64_t took_ns = 0;
  sched::ExpectedBlock expected;
  double highest_slowdown = 0;  // that its profile knows
};

// What is told of the measuring of the interference level.
struct LevelReport {
  bool measured = false;
  std::string source;       // what it is measured by; empty: nothing
  int64_t decisions = 0;    // of the scheduling policy
  uint64_t unmeasured = 0;  // of these, those for which the level wasn't known
};

// The level that is measured, as the segment has it, which must live longer; where it isn't known,
// the level of this index.
std::unique_ptr<sched::Interference> measured_interference(const Segment& segment,
                                                           int32_t otherwise);

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
  // Takes the model's lowest free slot, so that neighbours in time are neighbours in memory. Where
  // none is free, queries that wait and can't be in time any more end, for those that come next.
  Verdict allocate(int32_t client, int32_t model, int32_t* query, int64_t now_ns);
  // Hands a held slot to the server. A refused one is free again.
  Verdict submit(int32_t client, int32_t query, int64_t arrival_ns, int64_t deadline_ns,
                 int64_t tag, int64_t now_ns);
  // Frees a held or completed slot now, a queued or running one at its end. False, and nothing
  // changes, where the slot isn't the client's.
  bool release(int32_t client, int32_t query);
  // Takes up to `ended.size()` completions in the order in which they ended; returns how many.
  int32_t collect(int32_t client, std::span<Ended> ended);

  // ---- the batching loop, in rank 0 (batches.cc)

  // What has happened since the last call: new queries, and which of the tasks that were released
  // have ended. With `all`, for a loop that begins again, every query that waits.
  void news(News& news, std::span<const Released> under_way, bool all);
  // Makes a task of the queries that somebody still waits for; `task` kNone: there is none.
  Released release_task(std::span<const int64_t> queries, int32_t executor);
  // Ends a query that the batching policy has given up.
  void drop_waiting(int32_t query, std::string_view error, int64_t now_ns);

  // ---- workers (workers.cc)

  // Announces a worker; its place must be absent. It is idle from here on.
  void join(int32_t worker, int32_t pid, int64_t now_ns);
  // What a worker does that has nothing to do: a block that another worker's event has given it, or
  // what the policy says now. The policy is asked about every worker that waits and every task of
  // the queue, in the order of sim::Simulator; those that are given a block are woken.
  Step take(int32_t worker, const Scheduler& scheduler, int64_t now_ns);
  // The end of a busy worker's block: `layer_end` of the layers have run, and there are more, or
  // more queries of the task. As `take`, with the worker's own next block first. `sample` is what
  // the block took, null where that says nothing.
  Step next_block(int32_t worker, const Scheduler& scheduler, int32_t layer_end, int64_t now_ns,
                  const BlockSample* sample = nullptr);
  // Ends a busy worker's task: its queries complete, its cores come free. An empty `error` is
  // success. The worker must `take` next, or leave.
  void complete(int32_t worker, std::string_view error, int64_t now_ns,
                const BlockSample* sample = nullptr);
  // Reads the worker's cores into `found`, whose room is used again.
  void read_cores(int32_t worker, OwnedCores* found);
  // Lets a core go that the worker must let go, and on which nothing of it runs any more. Nothing
  // changes where it isn't one of these, or is so by a later revocation than that of `revoked_ns`.
  void let_go(int32_t worker, int32_t core, int64_t revoked_ns, int64_t now_ns);
  // Takes a worker out that has died (its process must be gone) or leaves: its cores come free, its
  // task goes back to the front of the queue, or fails after kMaxAttempts.
  void remove_worker(int32_t worker, int64_t now_ns);

  // ---- what measures the interference level, set up by rank 0 (levels.cc)

  // From now on workers measure it by their own blocks: whoever ends one `period_ns` or more after
  // the last look estimates the level and tells it. 0: no longer. With trained models it is the
  // estimate of the first that has any confidence, else what fits the blocks. A thread that looked
  // would take a core from a kernel each time. Throws std::invalid_argument, changing nothing.
  void measure_by_blocks(std::span<const OwnModel> models, int64_t period_ns, int64_t now_ns);
  // Looks now; returns the level of the node.
  LevelEstimate look(int64_t now_ns);

  // ---- what reads more than our own blocks, in rank 0

  // Returns how many blocks have ended, as soon as that isn't `seen` any more, or after the time.
  uint64_t await_blocks(uint64_t seen, int64_t timeout_ns);
  // Ends a wait.
  void wake_sampler();
  // What the blocks took that ended since the last read or look, by core complex.
  std::vector<BlockTotals> read_blocks();
  // Tells the level of the node and of each core complex, and by what it was measured. Throws
  // std::invalid_argument, changing nothing.
  void tell_levels(const sched::Measured& node, std::span<const sched::Measured> complexes,
                   std::string_view source);
  LevelReport level_report();

  // ---- the server (server.cc)

  void set_state(ServerState state);
  // Changes policies and parameters; tasks stay where they are, and workers ask the new ones from
  // their next block on. Throws std::invalid_argument, changing nothing.
  void set_policies(const Policies& policies);
  PolicyRecord policies(uint32_t* epoch);
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
  void end_task(Critical& critical, int32_t task, std::string_view error, Failure why,
                int64_t now_ns);
  void refuse_queued(Critical& critical, int32_t task, std::string_view why, int64_t now_ns);
  void end_query(Critical& critical, int32_t query);
  void fail(QueryRecord& query, std::string_view error, Failure why, int64_t now_ns);
  void cancel(int32_t task);
  bool is_wanted(int32_t task) const;
  void wake_for_work(Critical& critical);

  // cores.cc
  int32_t in_hand(int32_t core) const;
  void grant(int32_t worker, int32_t wanted);
  void give_back(int32_t worker, int32_t keep);
  void revoke(Critical& critical, const sched::Decision& decision, int32_t worker, int64_t now_ns);
  void pass_on(Critical& critical, int32_t core, int64_t now_ns);
  void let_all_go(Critical& critical, int32_t worker, int64_t now_ns);
  void top_up_blocks(Critical& critical);

  // queries.cc
  sched::Admission admission(const ModelRecord& model, int64_t deadline_ns, int64_t now_ns);
  void make_room(Critical& critical, int32_t model, int64_t now_ns);
  void enqueue(int32_t first, int32_t executor);
  void enter_inbox(int32_t query);
  bool drop_query(int32_t query);

  // workers.cc
  sched::View view(const Scheduler& scheduler);
  sched::Decision ask(const Scheduler& scheduler, const sched::Event& event, int64_t now_ns);
  void begin_block(Critical& critical, int32_t worker, const sched::Decision& decision,
                   int64_t now_ns);
  void begin_task(int32_t worker, int32_t task, int64_t now_ns);
  void continue_task(Critical& critical, int32_t worker, const Scheduler& scheduler,
                     int64_t now_ns);
  void wait_at_boundary(int32_t worker);
  void leave_task(Critical& critical, int32_t worker, std::string_view error, Failure why,
                  int64_t now_ns);
  void become_idle(int32_t worker, int64_t now_ns);
  void return_task(int32_t worker, int64_t now_ns);
  void resume_waiting(Critical& critical, const Scheduler& scheduler, int64_t now_ns);
  void begin_queued(Critical& critical, int32_t worker, const Scheduler& scheduler, int64_t now_ns);
  void advance(Critical& critical, int32_t worker, const Scheduler& scheduler, int64_t now_ns);
  Step step_of(Critical& critical, int32_t worker, const Scheduler& scheduler, int64_t now_ns);
  void queue_again(int32_t task);
  void requeue(Critical& critical, int32_t worker, int64_t now_ns);

  // levels.cc
  int32_t complex_of(int32_t worker) const;
  sched::Level level(const Scheduler& scheduler, const sched::View& view, int32_t worker,
                     int64_t now_ns);
  void note_end(Critical& critical, int32_t worker, const BlockSample* sample, int64_t now_ns);
  LevelEstimate look_now(int64_t now_ns);
  void name_source(std::string_view source);

  // repair.cc
  void repair(Critical& critical);
  void settle_tasks(Critical& critical);
  void settle_workers();
  void settle_cores();
  void rebuild_queue();
  void rebuild_inbox();
  void rebuild_slots();
  void rebuild_rings();

  // check.cc
  std::string find_wrong() const;
  std::string check_cores() const;
  std::string check_levels() const;
  std::string check_queue() const;
  std::string check_inbox() const;
  std::string check_tasks() const;
  std::string check_slots() const;

  std::shared_ptr<Segment> segment_;
  Header& header_;
  const std::span<CoreRecord> cores_;
  const std::span<ComplexRecord> complexes_;
  const std::span<WorkerRecord> workers_;
  const std::span<ClientRecord> clients_;
  const std::span<ModelRecord> models_;
  const std::span<QueryRecord> queries_;
  const std::span<TaskRecord> tasks_;
  sched::IdSet busy_;  // room for `view`; under the mutex
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
