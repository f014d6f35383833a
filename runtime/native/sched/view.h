// What a policy sees: plain data that its caller owns and keeps still during the call.
//
// The server's records (native/ipc/layout.h) embed `Task` and `Running`, and a view points at them
// where they are, so a decision copies nothing however long the queue is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "native/sched/id_set.h"
#include "native/sched/profile.h"

namespace veltair::sched {

inline constexpr int32_t kNone = -1;

// One or more queries of one model that run together. Lives in shared memory: plain data only.
struct Task {
  int32_t model = kNone;
  int32_t queries = 1;  // how many
  int32_t passes = 1;   // whole runs of the model that are left, the one amid its layers included
  int32_t next_layer = 0;   // of this run: the first layer that has not run
  int32_t executor = 0;     // where placement put it
  int32_t next = kNone;     // the task behind it in the run queue
  int32_t attempts = 0;     // workers that died running it
  int64_t arrival_ns = 0;   // of the oldest query
  int64_t deadline_ns = 0;  // the earliest of the queries'; 0: none
  int64_t order = 0;        // ascending along the run queue
  int64_t lead_ns = 0;  // for `deadline`: it goes ahead as if it were due earlier by this (lead.h)
};

// What one worker does. Lives in shared memory: plain data only.
struct Running {
  int32_t task = kNone;
  int32_t layer_begin = 0;  // the block, [begin, end)
  int32_t layer_end = 0;
  int32_t level = 0;         // interference level that its variants were chosen for
  int32_t cores_wanted = 0;  // for this block; 0 amid a task: it waits at its boundary
  int32_t cores_held = 0;
  int64_t started_ns = 0;         // of the task
  int64_t block_started_ns = 0;   // of the block
  int64_t block_expected_ns = 0;  // its predicted time on the cores that it wants

  // A task that has begun and was not granted cores for its next block.
  bool waits() const { return task != kNone && cores_wanted == 0; }
};

// An array of records that begin with a `Record`, `stride` bytes apart.
template <typename Record>
class Table {
 public:
  Table() = default;
  Table(const Record* first, size_t stride, int32_t size)
      : first_(reinterpret_cast<const std::byte*>(first)), stride_(stride), size_(size) {}

  const Record& operator[](int32_t index) const {
    return *reinterpret_cast<const Record*>(first_ + static_cast<size_t>(index) * stride_);
  }
  int32_t size() const { return size_; }

 private:
  const std::byte* first_ = nullptr;
  size_t stride_ = sizeof(Record);
  int32_t size_ = 0;
};

// Finds the workers that have a task.
inline void find_busy(const Table<Running>& workers, IdSet& busy) {
  busy.clear();
  for (int32_t w = 0; w < workers.size(); ++w) {
    if (workers[w].task != kNone) busy.insert(w);
  }
}

// A pace at which blocks take what their profiles predict: millionths (pace.h).
inline constexpr int32_t kAsPredicted = 1'000'000;

// The state that decisions are made on.
struct View {
  std::span<const ModelProfile> models;
  Table<Task> tasks;  // by task id; those that wait are linked from `queue_head`
  int32_t queue_head = kNone;
  int32_t queue_length = 0;
  Table<Running> workers;       // by worker; `task == kNone`: idle
  const IdSet* busy = nullptr;  // those that have a task; never null
  int32_t total_cores = 0;
  int32_t free_cores = 0;
  int32_t level = 0;  // of interference now, as an index into the profiles' levels
  // What was measured of it: the reference kernel's slow-down, in millionths. kNone: nothing was,
  // and `level` says. Each model has levels of its own, so each makes an index of it.
  int32_t slowdown = kNone;
  // How long blocks take now for what is predicted, in millionths; as predicted while none runs.
  int32_t pace = kAsPredicted;
};

enum class EventKind : uint8_t {
  kWorkerIdle,  // a worker has nothing to do and a core is free (or the policy may revoke some):
                // which task does it begin?
  kBlockEnd,    // a worker's block has ended and layers remain, or its task waits at a boundary:
                // what is its next block?
};

struct Event {
  EventKind kind = EventKind::kWorkerIdle;
  int32_t worker = 0;
};

}  // namespace veltair::sched
