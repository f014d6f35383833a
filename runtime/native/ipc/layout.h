// The records of the shared segment: what lies where, and who may write it.
//
// Every record is plain data at a fixed place, zero when the segment is made, and names others by
// index, never by address. Unless said otherwise a field is guarded by `Header::mutex`.
//
// A process can be killed at any instruction, also inside a critical section. So each thing has one
// field that says what it is (`QueryRecord::state`, `TaskRecord::state`, `CoreRecord::owner`,
// `WorkerRecord::state`, `ClientRecord::state`), each change is committed by one store to it, and
// all else (queue links, free bitmaps, counts, rings) is rebuilt from these fields by repair.cc.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "native/ipc/own_levels.h"
#include "native/sched/interference.h"
#include "native/sched/policy.h"
#include "native/sched/view.h"

namespace veltair::ipc {

inline constexpr uint64_t kMagic = 0x7261'6974'6c65'7631;  // "1veltair", little-endian
inline constexpr uint32_t kLayoutVersion = 10;
inline constexpr size_t kAlignment = 64;  // of every record, table and tensor slot
inline constexpr int32_t kNone = sched::kNone;
inline constexpr int32_t kMaxClients = 64;
inline constexpr int32_t kMaxAttempts = 3;  // workers that may die over one task before it fails
inline constexpr int32_t kMaxOwnModels = 4;
inline constexpr int32_t kNobody = -2;  // heir of a core that comes free when it is let go

enum class ServerState : uint32_t { kStarting, kServing, kDraining, kStopped };
enum class ModelState : uint32_t { kLoading, kReady, kUnavailable };

// Why a query failed. The first four were refused and not accepted; kDeadline also counts those
// that were, and that the scheduling or batching policy gave up later.
enum class Failure : uint32_t {
  kQueueFull,
  kDeadline,
  kDraining,
  kUnavailable,
  kError,
  kCancelled
};
inline constexpr int kFailures = 6;

// Latency histogram: below 2^10 ns, then eight buckets an octave up to 2^36 ns, then the rest.
inline constexpr int kFirstOctave = 10;
inline constexpr int kLastOctave = 36;
inline constexpr int kBuckets = 2 + (kLastOctave - kFirstOctave) * 8;

// Atomic, each by itself: read at any time without the mutex.
struct alignas(kAlignment) Counters {
  std::atomic<uint64_t> accepted;
  std::atomic<uint64_t> succeeded;
  std::atomic<uint64_t> failed[kFailures];  // by Failure
  std::atomic<uint64_t> within_qos;
  std::atomic<uint64_t> executions;
  std::atomic<uint64_t> queue_ns;
  std::atomic<uint64_t> compute_ns;
  std::atomic<uint64_t> request_ns;
  std::atomic<uint64_t> latency[kBuckets];
};

struct alignas(kAlignment) ModelRecord {
  // Written before the segment is shared, then constant.
  char name[256];
  int64_t version;
  int64_t qos_ns;
  int64_t expected_ns;  // of one task on `needed_cores`, alone
  int64_t fastest_ns;   // on whatever count of cores
  int32_t needed_cores;
  int32_t first_slot;  // of the server's slots; also the number of its first query record
  int32_t slots;
  int32_t inputs;
  int32_t outputs;
  int64_t tensors_offset;   // TensorRecord[inputs + outputs]
  int64_t bitmap_offset;    // uint64_t[ceil(slots / 64)]: set where a slot is free
  int64_t metadata_offset;  // opaque to this layer: the model as clients see it
  int64_t metadata_bytes;

  std::atomic<uint32_t> state;  // ModelState; stored with release after `reason`
  char reason[512];             // written once, by rank 0
  int32_t free_slots;
  std::atomic<int32_t> lateness;  // sched::count_query's; read without the mutex too
  Counters counters;
};

// One tensor's arena: `slots` places, `stride_bytes` apart; neighbours are a batch.
struct TensorRecord {
  int64_t offset;
  int64_t bytes;
  int64_t stride_bytes;  // `bytes` up to the next multiple of kAlignment
};

enum class QueryState : uint32_t {
  kFree,
  kHeld,    // a client fills it
  kWaits,   // accepted; the batching policy has made no task of it yet
  kInTask,  // it waits or runs; the task's state says which
  kDone,    // its completion waits in the client's ring, or the client reads the outputs
};

struct alignas(kAlignment) QueryRecord {
  std::atomic<uint32_t> state;  // QueryState
  int32_t model;                // constant
  int32_t client;
  int32_t task;        // number of the task's first query
  int32_t next;        // the query behind it in its task, or in the inbox; kNone: the last one
  uint32_t noticed;    // kWaits: the batching loop knows it, so it isn't in the inbox
  uint32_t abandoned;  // nobody waits for it any more: free it when it ends
  uint32_t delivered;  // taken from the ring
  uint32_t failed;     // 0, or 1 + Failure
  int64_t tag;
  int64_t arrival_ns;
  int64_t deadline_ns;
  int64_t submit_ns;
  int64_t start_ns;
  int64_t end_ns;
  char error[160];
};

enum class TaskState : uint32_t { kNone, kQueued, kRunning, kFinishing };

// A task has the number of its first query, so there is nothing to allocate. The others are linked
// from it by `QueryRecord::next`; they run one after the other, and all end when the last one has.
struct alignas(kAlignment) TaskRecord {
  sched::Task task;             // first: policies see it through sched::Table
  std::atomic<uint32_t> state;  // TaskState
  int32_t worker;
  int32_t running;   // the query that runs now, or that will
  int32_t previous;  // in the run queue
};

enum class WorkerState : uint32_t { kAbsent, kIdle, kBusy };

struct alignas(kAlignment) WorkerRecord {
  sched::Running running;       // first: policies see it through sched::Table
  std::atomic<uint32_t> state;  // WorkerState
  std::atomic<int32_t> pid;
  uint32_t signalled;                // woken for work that it has not taken yet
  uint32_t assigned;                 // `running` has a block that it has not begun
  std::atomic<int64_t> beat_ns;      // written by the worker's control thread, without the mutex
  std::atomic<int64_t> progress_ns;  // at each task and block boundary
  alignas(kAlignment) std::atomic<uint32_t> work;   // futex: there is work, or the server's state
  alignas(kAlignment) std::atomic<uint32_t> cores;  // futex: the worker's cores have grown
};

// A core belongs to one worker, `owner`, and only its threads may run there. Where another one is
// to have it, or it is to come free, while a kernel still runs on it, `heir` says so; the owner
// lets it go at the next end of one of the kernel's tasks, and the core then is the heir's.
//
// Policies and `Running::cores_held` count a core for its heir from the decision on.
struct alignas(kAlignment) CoreRecord {
  std::atomic<int32_t> owner;       // worker, or kNone
  std::atomic<int32_t> heir;        // worker, kNobody, or kNone: the owner keeps it
  std::atomic<int64_t> revoked_ns;  // when it got an heir: tells a revocation from later ones
  int32_t cpu;                      // constant: number of the operating system
  int32_t complex;                  // constant: the core complex that it is of
};

// What blocks took that ended since the start: whoever reads it takes the difference of two looks,
// so that it may wrap around. Products are in units of kSquareNs ns².
inline constexpr int64_t kSquareNs = 1024;
struct BlockSums {
  uint64_t blocks;
  uint64_t took_ns;
  uint64_t alone_ns;  // by their profiles
  uint64_t excess;  // (took - alone) * sensitivity (sched::ExpectedBlock): a sum of signed numbers
  uint64_t weight;  // sensitivity²
};

// Cores that share a cache.
struct alignas(kAlignment) ComplexRecord {
  sched::MeasuredRecord level;  // first: sched::Interference sees it
  BlockSums sums;               // of blocks that began on a core of it
  BlockSums looked_at;          // as they were at the last look
  SmoothLevel smooth;           // what is believed, while workers look
};

enum class ClientState : uint32_t { kFree, kLive };

struct alignas(kAlignment) ClientRecord {
  std::atomic<uint32_t> state;  // ClientState
  // Written under the mutex; read without it where a moment's difference is no harm.
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> head;                      // of its ring of query numbers: next to take
  std::atomic<uint32_t> tail;                      // next to fill; equal: empty
  alignas(kAlignment) std::atomic<uint32_t> done;  // futex: completions came, or the server's state
};

// Where the tables lie; constant once the segment is shared.
struct Geometry {
  int64_t bytes = 0;  // of the whole segment
  int32_t n_cores = 0;
  int32_t n_complexes = 0;
  int32_t n_workers = 0;
  int32_t n_models = 0;
  int32_t n_slots = 0;
  uint32_t ring_capacity = 0;    // a power of two, at least n_slots: a ring is never full
  int64_t cores_offset = 0;      // CoreRecord[n_cores]
  int64_t complexes_offset = 0;  // ComplexRecord[n_complexes]
  int64_t workers_offset = 0;    // WorkerRecord[n_workers]
  int64_t clients_offset = 0;    // ClientRecord[kMaxClients]
  int64_t models_offset = 0;     // ModelRecord[n_models]
  int64_t queries_offset = 0;    // QueryRecord[n_slots]
  int64_t tasks_offset = 0;      // TaskRecord[n_slots]
  int64_t rings_offset = 0;      // uint32_t[kMaxClients][ring_capacity]
};

// The batching policies' parameters.
struct BatchOptions {
  int64_t timeout_ns = 5'000'000;  // `timeout`: how long a query waits for others
  int32_t max_batch = 8;           // queries of a task, at most
  int32_t least_percent = 0;       // `deferred`, `eager`: see sched::BatchCost
  int32_t executors = 0;           // tasks released at a time; 0: as many as the cores can run
};

// The policies and their parameters, as text and numbers; what workers make theirs from.
struct PolicyRecord {
  char scheduling[32];
  char batching[32];
  char placement[32];
  sched::PolicyOptions options;
  BatchOptions batch;
  uint32_t batches;        // whether queries wait for the batching loop; not with `none`
  int32_t level;           // of interference, as an index, while nothing measures it
  uint32_t measured;       // whether rank 0 measures it
  uint32_t tops_up;        // Needs::topping_up of the scheduling policy
  uint32_t asks_for_more;  // Needs::revoking: it is asked without a free core too
  uint32_t by_deadline;    // Needs::by_deadline
  int32_t late_percent;    // Needs::late_percent
  uint32_t admission;      // whether deadlines refuse
};

struct alignas(kAlignment) Header {
  // Constant once the segment is shared.
  std::atomic<uint64_t> magic;  // stored last
  uint32_t layout_version;
  uint32_t header_bytes;
  Geometry geometry;
  int32_t server_pid;

  alignas(kAlignment) std::atomic<uint32_t> state;  // ServerState
  std::atomic<uint32_t> stop_requested;             // any rank's wish; rank 0 acts on it
  std::atomic<uint64_t> repairs;
  std::atomic<uint64_t> returns;      // of tasks, into the queue
  std::atomic<uint64_t> revocations;  // of cores, amid a block
  std::atomic<uint64_t> let_go_ns;    // from a revocation until the core was let go: their sum
  std::atomic<uint64_t> longest_let_go_ns;
  std::atomic<int32_t> pace;  // sched::View's

  alignas(kAlignment) pthread_mutex_t mutex;  // process-shared, robust
  int32_t queue_head;                         // the run queue: a list of tasks by `order`
  int32_t queue_tail;
  int32_t queue_length;
  int32_t free_cores;
  int32_t live_workers;
  int64_t next_order;
  int32_t inbox_head;  // of the queries that the batching loop doesn't know yet, as they came
  int32_t inbox_tail;
  int32_t mean_lateness;  // sched::count_query's
  PolicyRecord policies;
  uint32_t epoch;                                      // of `policies`: one more with each change
  int64_t decisions;                                   // that the scheduling policy was asked for
  alignas(kAlignment) std::atomic<uint32_t> batching;  // futex: the batching loop has work

  // ---- the interference level
  alignas(kAlignment) sched::MeasuredRecord level;  // of the node
  char source[64];                                  // what it is measured by; empty: nothing
  SmoothLevel smooth;                               // of the node, while workers look
  int64_t look_period_ns;                           // of workers; 0: rank 0 tells the levels
  int64_t looked_ns;
  int32_t n_own_models;
  OwnModel own_models[kMaxOwnModels];  // the most accurate first
  uint64_t blocks_ended;
  uint64_t decisions_unmeasured;  // while it is measured, those for which it wasn't known
  uint32_t sampler_waits;         // for a block that ends
  std::atomic<uint32_t> sampler;  // futex
  // With the null executor, by how much blocks are slowed down, in millionths; kNone: as in the
  // level that each was decided for.
  std::atomic<int32_t> emulated_slowdown;
};

}  // namespace veltair::ipc
