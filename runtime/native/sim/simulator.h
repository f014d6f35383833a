// A simulated machine of N cores that asks the same policies as the server, at simulated times.
#pragma once

#include <cstdint>
#include <queue>
#include <span>
#include <vector>

#include "native/sched/interference.h"
#include "native/sched/plan.h"
#include "native/sched/policy.h"
#include "native/sched/record.h"
#include "native/sim/look.h"
#include "native/sim/machine_pace.h"
#include "native/sim/shared_memory.h"

namespace veltair::sim {

struct MachineOptions {
  int32_t cores = 64;
  int32_t workers = 64;           // tasks that can be amid their layers at once
  int32_t max_queue = 1'000'000;  // tasks that wait; one more is refused
  int64_t conflict_ns = 220'000;  // what it costs a running block to gain cores, each time
  int64_t decision_ns = 0;        // what a decision costs the block that it begins
  // A running block gains cores only where that, the cost included, makes it end earlier.
  bool expand_if_shorter = false;
  PaceOptions pace = {};     // how long all takes for what is predicted
  SharedMemory memory = {};  // what blocks do to each other; needs profiles that say what they read
  bool trace = false;
};

enum class Outcome : uint8_t {
  kServed,
  kRefused,    // by the policy: it could not be in time
  kQueueFull,  // on arrival
};

// What became of each query, in the order of the arrivals.
struct Queries {
  std::vector<int64_t> start_ns;  // of its first block; -1: none
  std::vector<int64_t> end_ns;
  std::vector<uint8_t> outcome;
};

// Sums over the blocks of one model.
struct ModelTotals {
  int64_t blocks = 0;
  int64_t conflicts = 0;   // blocks that began with fewer cores than wanted
  int64_t expansions = 0;  // times that a running block gained cores
  int64_t core_ns = 0;     // sum of cores x time
  int64_t busy_ns = 0;     // sum of the blocks' times
};

struct MachineTotals {
  int64_t events = 0;
  int64_t decisions = 0;
  int64_t returns = 0;  // of tasks, into the queue
  int64_t revocations = 0;
  int64_t first_ns = 0;          // the first arrival
  int64_t last_ns = 0;           // the last event
  int32_t max_cores = 0;         // in use at once
  int32_t max_cores_wanted = 0;  // by the blocks that run at once
};

// A part of a block's run on an unchanged number of cores.
struct Segment {
  int64_t query;
  int64_t worker;
  int64_t layer_begin;
  int64_t layer_end;
  int64_t cores_wanted;
  int64_t cores;
  int64_t start_ns;
  int64_t end_ns;
};

// Runs queries to their ends. Each query is a task of its own.
//
// Time goes from event to event, by (time, sequence number): arrivals in their given order come
// before the block ends of the same time, which come in the order in which they were foreseen.
// After each event, as in the server: blocks that lack cores gain those that are free (the oldest
// task first), then tasks that wait at a boundary are asked about, then the queue. A block's time
// is its plan's on the cores that it holds, for the versions of the level that the policy chose at
// the level that holds when it begins; when its cores change, the rest of it is scaled by the ratio
// of the whole block's times. Losing cores costs nothing but their work.
//
// Where memory is shared, blocks go at the level that they make together, which changes amid a
// block as others begin and end; in steps, since times hardly differ within one. A block is taken
// to read at its model's average rate. Policies are told the level that is left without the blocks
// that are soon to finish.
//
// Each decision is noted by the recorder, where there is one, as epoch 0.
//
// Ownership: keeps references to policy, interference and recorder; owns the rest. Thread-safety:
// none.
class Simulator {
 public:
  // Throws std::invalid_argument for options out of range.
  Simulator(const MachineOptions& options, std::vector<sched::ModelProfile> models,
            const sched::Policy& policy, const sched::Interference& interference,
            sched::Recorder* recorder = nullptr);

  // `arrival_ns` ascending, from 0; `model` of each. Throws std::invalid_argument where they are
  // not, and std::logic_error where a decision breaks the rules or the policy stalls. Once.
  void run(std::span<const int64_t> arrival_ns, std::span<const int32_t> model,
           const Look& look = {});

  const Queries& queries() const { return queries_; }
  const std::vector<ModelTotals>& models() const { return totals_; }
  const MachineTotals& machine() const { return machine_; }
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  struct Worker {
    sched::Running running;  // first: policies see it through sched::Table
    int64_t left_ns = 0;     // predicted, of the block, from `changed_ns`, on the cores held
    int64_t changed_ns = 0;
    sched::Place place;  // level of interference that its time is of
    double gbps = 0;     // that the block would read if memory gave it all
    uint32_t generation = 0;
  };
  struct BlockEnd {
    int64_t time_ns;
    int64_t sequence;
    int32_t worker;
    uint32_t generation;  // another than the worker's: it has been foreseen anew
    bool operator>(const BlockEnd& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : sequence > other.sequence;
    }
  };

  sched::View view(int32_t worker) const;
  sched::Decision ask(sched::EventKind kind, int32_t worker);
  void arrive(int32_t query);
  void end_block(int32_t worker);
  void end_task(int32_t worker, Outcome outcome);
  void return_task(int32_t worker);
  void leave(int32_t worker);
  void continue_task(int32_t worker);
  void dispatch();
  void top_up();
  void resume_waiting();
  void begin_queued();
  void begin_block(int32_t worker, const sched::Decision& decision);
  void revoke(const sched::Decision& decision, int32_t worker);
  double slowdown() const;
  double disturbance(int32_t worker) const;
  void place(int32_t worker, double slowdown);
  void spread();
  void want(int32_t worker);
  void retime(int32_t worker, double before_ns);
  void set_cores(int32_t worker, int32_t cores, int64_t cost_ns);
  void settle(int32_t worker);
  void foresee(int32_t worker);
  void take(int32_t worker, int32_t cores);
  const sched::ModelPlan& plan_of(const Worker& worker) const;
  double block_ns(const Worker& worker, int32_t cores) const;
  void link(int32_t task);
  void unlink(int32_t task);
  void drop(int32_t task, Outcome outcome);
  void check(const sched::Decision& decision, sched::EventKind kind, int32_t worker) const;

  const MachineOptions options_;
  const std::vector<sched::ModelProfile> profiles_;
  const sched::Policy& policy_;
  const sched::Interference& interference_;
  sched::Recorder* const recorder_;
  const sched::Needs needs_;
  std::vector<std::vector<sched::ModelPlan>> plans_;  // [model][level whose versions run]

  MachinePace machine_pace_;
  int32_t pace_ = sched::kAsPredicted;  // as policies see it
  int64_t now_ns_ = 0;
  int64_t sequence_ = 0;
  std::priority_queue<BlockEnd, std::vector<BlockEnd>, std::greater<>> ends_;
  std::vector<Worker> workers_;
  std::vector<int32_t> idle_workers_;  // a stack
  sched::IdSet busy_;                  // the others
  std::vector<int32_t> lacking_;       // room for top_up
  int32_t waiting_ = 0;                // workers that wait at a boundary
  int32_t lacking_count_ = 0;          // running blocks with fewer cores than wanted
  int32_t free_cores_;
  int32_t wanted_cores_ = 0;  // by running blocks
  double wanted_gbps_ = 0;    // the same
  double spread_ = 0;         // slow-down that running blocks were last timed by

  std::vector<int32_t> lateness_;  // by model; of lead.h
  int32_t mean_lateness_ = 0;
  std::vector<sched::Task> tasks_;
  std::vector<int32_t> query_of_;    // by task
  std::vector<int32_t> previous_;    // by task, in the queue
  std::vector<int32_t> free_tasks_;  // a stack
  int32_t queue_head_ = sched::kNone;
  int32_t queue_tail_ = sched::kNone;
  int32_t queue_length_ = 0;

  std::span<const int64_t> arrival_ns_;
  std::span<const int32_t> model_;
  Queries queries_;
  std::vector<ModelTotals> totals_;
  MachineTotals machine_;
  std::vector<Segment> segments_;
};

}  // namespace veltair::sim
