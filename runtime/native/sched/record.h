// Writes decisions, with all that they were made on, to a file that `veltair replay` reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "native/sched/batcher.h"
#include "native/sched/policy.h"
#include "native/sched/recorded_view.h"
#include "native/sched/view.h"

namespace veltair::sched {

// Which decision it is, and whose.
struct Stamp {
  int64_t sequence = 0;  // from 0, one more each decision of the machine: a gap shows what is lost
  int32_t epoch = 0;     // of the policy that decided: the record says which it was
};

enum class BatchEventKind : uint8_t { kArrival, kExecutorFree, kTimer };

// What a Batcher was told; only the fields that its kind has are read.
struct BatchEvent {
  BatchEventKind kind = BatchEventKind::kTimer;
  int32_t model = kNone;  // arrival
  int64_t query = 0;
  int64_t arrival_ns = 0;
  int64_t deadline_ns = 0;
  int32_t executor = kNone;  // executor free
};

// How much a Recorder holds between two flushes.
struct RecordRoom {
  int32_t workers = 1;        // that have a task
  int32_t queue = 4096;       // tasks of the queue
  int32_t decisions = 16;     // noted between two flushes
  size_t buffered_bytes = 0;  // of whole lines before they are written; 0: each flush writes
};

// Copies decisions where they are made, and writes each as one line of JSON later.
//
// `note` is called under the caller's lock: it copies plain data into memory that is there already,
// as much of the queue as the policy says that it reads (Needs::queued). `flush` is called after
// it: it formats and writes, whole lines in one write() each time, so that processes that opened
// the file with O_APPEND share it and one that is killed costs no more than its own last lines. A
// decision that there is no room for gets a line that says so; it never delays the caller.
//
// After a write that fails nothing more is noted or written, and `error` tells why; the caller
// serves on. The first line of the file, its header, is its opener's: runtime/record.py, which also
// describes the lines.
//
// Ownership: has a descriptor of its own for the caller's file. Thread-safety: one thread; `error`
// any.
class Recorder {
 public:
  Recorder(int descriptor, const RecordRoom& room);
  ~Recorder();  // writes what is left
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // The policy that decides under an epoch from here on. Every process that decides tells it,
  // before its first decision: so the order of processes doesn't matter.
  void tell_policy(std::string_view name, const PolicyOptions& options, int32_t epoch);

  // The same for a batcher: its policies and what it was made with; all executors are local cores.
  void tell_batcher(std::string_view batching, std::string_view placement, int32_t queue_limit,
                    std::span<const BatchCost> costs, int32_t executors, int32_t epoch);

  void note(const Policy& policy, const View& view, const Event& event, int64_t now_ns,
            const Decision& decision, Stamp stamp);
  void flush();

  // An event of a Batcher and what it decided. Formats at once: batchers have one owner, no lock.
  void note_batch(const BatchEvent& event, int64_t now_ns, const Decisions& decisions, Stamp stamp);

  // Writes the lines that are buffered.
  void write_out();

  // The errno of the write that failed; 0: none did.
  int error() const { return error_.load(std::memory_order_relaxed); }

 private:
  struct Noted {
    Stamp stamp;
    int64_t now_ns = 0;
    Event event;
    Decision decision;
    int32_t queue_length = 0;
    int32_t free_cores = 0;
    int32_t level = 0;
    int32_t slowdown = kNone;
    int32_t pace = kAsPredicted;
    bool is_whole = true;  // otherwise there was no room for its view
    size_t queue_end = 0;  // where its part of each of the tables ends
    size_t tasks_end = 0;
    size_t workers_end = 0;
  };

  bool copy(const View& view, int32_t queued);

  const int descriptor_;
  const RecordRoom room_;
  std::atomic<int> error_{0};
  std::vector<Noted> noted_;
  std::vector<NamedTask> queue_;
  std::vector<NamedTask> tasks_;
  std::vector<NamedWorker> workers_;
  std::string text_;
};

// Appends the line of one decision.
void append_decision(std::string& text, Stamp stamp, int64_t now_ns, const Event& event,
                     const ViewParts& parts, const Decision& decision);

}  // namespace veltair::sched
