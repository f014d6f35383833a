// Batching and placement as one state machine: events and time in, decisions out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "native/sched/batching.h"
#include "native/sched/id_set.h"
#include "native/sched/indexed_heap.h"
#include "native/sched/placement.h"
#include "native/sched/view.h"

namespace veltair::sched {

// Which of the two matchmaking events made the pair.
enum class Match : uint8_t {
  kModelReady,    // the batch's moment came while an executor was free
  kExecutorFree,  // an executor came free while the batch was ready
};

enum class DropReason : uint8_t {
  kDeadline,   // it can't end in time any more, even alone and at once
  kQueueFull,  // its model's queue holds all that it may
  kGivenUp,    // its deadline would keep the batch small while enough wait for a large one
};

// One sentence for a log or a person.
std::string_view match_text(Match match);
std::string_view drop_text(DropReason reason);

// A batch begins now.
struct Dispatch {
  int32_t model = kNone;
  int32_t executor = kNone;
  int32_t first = 0;        // its queries are `queries[first .. first + size)` of the decisions
  int32_t size = 0;         // how many
  int64_t expected_ns = 0;  // when it should end
  int64_t deadline_ns = 0;  // the earliest of its queries'; kNever: none
  Moment moment = Moment::kAtOnce;
  Match match = Match::kModelReady;
};

struct Drop {
  int64_t query = 0;
  int32_t model = kNone;
  DropReason reason = DropReason::kDeadline;
};

// What one event decided, in the order of the decisions.
struct Decisions {
  std::vector<Dispatch> dispatches;
  std::vector<int64_t> queries;
  std::vector<Drop> drops;
};

// Decides which queries run together, when, and where.
//
// A model has a queue and a candidate: the batch that a batching policy would run next, from
// `exec` on and until `latest`. It is made again when a query arrives, when a batch leaves, and
// when it ceases to be valid. A candidate whose `exec` has come is ready. Whenever a ready
// candidate and a free executor are both there they are matched: the candidate with the nearest
// `latest`, on the executor that the placement policy names.
//
// A state machine: the same events at the same times give the same decisions, so a record of them
// replays. It reads no clock. Each event takes O(log models + log executors), and that again for
// each batch and drop that it decides; nothing allocates after construction.
//
// Reference: Symphony §3.2, Algorithm 1; §4.2 for the bounds; appendix D.
// Differs:
// - An executor is free when its caller says so, not when a prediction does; a batch that ends
//   early or late does no harm.
// - At the same instant a candidate may use an executor that comes free (`<=`, as in appendix D,
//   where Algorithm 1 has `<`), and a batch may start at its `latest`.
// - A candidate is made again the moment that it ceases to be valid, and a query that can't end in
//   time is dropped at that moment. The paper waits for the next event of the model or for the
//   query's deadline, so its clients learn later, and an executor that comes free in between passes
//   the model over.
// - Gathering takes the longest prefix of the queue that fits its first query's deadline, and with
//   `BatchCost::least_percent` gives up first queries that keep the batch small while every
//   executor is busy (the paper names both ways, and not which it ran). Without it an overload
//   doesn't end: the first query has little time left, so the batch is small, so the next first
//   query has less.
// - Ties: equal `latest` go to the smaller model id.
// - Each query may have a deadline of its own. A queue is ordered by deadline, then by arrival,
//   which is the paper's order where a model has one target; entering costs O(1) then, otherwise
//   one step for each query with a later deadline.
//
// Thread-safety: none; one owner.
class Batcher {
 public:
  // The most queries that a model's queue can be asked to hold.
  static constexpr int32_t kLargestQueue = 1 << 20;

  // All executors are free. `queue_limit` queries of each model can wait. Throws
  // std::invalid_argument where a cost or a count can't be, or where the placement policy has no
  // use for these executors.
  Batcher(std::unique_ptr<const BatchingPolicy> batching,
          std::unique_ptr<const PlacementPolicy> placement, std::span<const BatchCost> models,
          std::span<const Executor> executors, int32_t queue_limit);

  // The events. Each takes the time, which must not go back (std::invalid_argument), and returns
  // what is decided now; the result is valid until the next event.

  // A query came. `query` is the caller's name for it; `deadline_ns` 0 says: none.
  const Decisions& on_arrival(int32_t model, int64_t query, int64_t arrival_ns, int64_t deadline_ns,
                              int64_t now_ns);
  // An executor has ended its batch; std::invalid_argument if it had none.
  const Decisions& on_executor_free(int32_t executor, int64_t now_ns);
  // `next_timer_ns` has come. Harmless at any other time.
  const Decisions& on_timer(int64_t now_ns);

  // When `on_timer` is due if no event comes before; kNever: not at all.
  int64_t next_timer_ns() const { return timers_.empty() ? kNever : timers_.top_key(); }

  int32_t models() const { return static_cast<int32_t>(models_.size()); }
  int32_t executors() const { return static_cast<int32_t>(executors_.size()); }
  int32_t waiting(int32_t model) const { return models_[model].waiting; }
  const Candidate& candidate(int32_t model) const { return models_[model].candidate; }
  bool is_ready(int32_t model) const { return ready_.contains(model); }
  bool is_free(int32_t executor) const { return free_.contains(executor); }

 private:
  struct Waiting {
    int64_t query;
    int64_t arrival_ns;
    int64_t deadline_ns;  // kNever: none
  };
  struct ModelState {
    BatchCost cost;
    Candidate candidate;
    int32_t head = 0;  // of its ring in `slots_`
    int32_t waiting = 0;
    int64_t gap_ns = 0;  // mean time between two arrivals, of the last ones
    int64_t last_arrival_ns = kNever;
  };

  static void note_gap(ModelState& state, int64_t now_ns);
  int32_t least_batch(const ModelState& state, const Waiting& first) const;
  bool gives_up(int32_t model, int64_t now_ns);
  void begin(int64_t now_ns);
  Waiting& slot(int32_t model, int32_t place);
  void enter(int32_t model, const Waiting& query);
  void pop(int32_t model, int32_t count);
  void update(int32_t model, int64_t now_ns);
  void match(int64_t now_ns, Match event);
  void dispatch(int32_t model, int32_t executor, int64_t now_ns, Match event);

  const std::unique_ptr<const BatchingPolicy> batching_;
  const std::unique_ptr<const PlacementPolicy> placement_;
  const int32_t queue_limit_;
  const int32_t ring_mask_;
  std::vector<ModelState> models_;
  std::vector<Executor> executors_;
  std::vector<Waiting> slots_;  // [models][ring_mask_ + 1]
  IndexedHeap timers_;          // models with a candidate, by when it has to be looked at again
  IndexedHeap ready_;           // models whose candidate may run now, by `latest`
  IdSet free_;                  // executors
  bool is_scarce_ = false;      // no executor was free when the event came
  Decisions decisions_;
  int64_t now_ns_ = std::numeric_limits<int64_t>::min();
};

}  // namespace veltair::sched
