// Emulated executors under a clock of their own: what a batching policy makes of given arrivals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "native/sched/batcher.h"
#include "native/sched/record.h"
#include "native/sim/look.h"

namespace veltair::sim::devices {

// How a query ended.
enum class Outcome : uint8_t {
  kAnswered,   // perhaps late
  kDeadline,   // dropped: it could not end in time any more
  kQueueFull,  // refused: its model's queue was full
  kGivenUp,    // dropped for a larger batch
};

struct Arrivals {
  std::span<const int64_t> arrival_ns;  // [queries], ascending
  std::span<const int32_t> model;       // [queries]
};

// One batch, in the order in which they began.
struct BatchRecord {
  int64_t start_ns;
  int64_t end_ns;
  int32_t model;
  int32_t device;
  int32_t size;
  sched::Moment moment;
  sched::Match match;
};

struct DeviceRun {
  std::vector<Outcome> outcome;  // [queries]
  std::vector<int64_t> end_ns;   // [queries]: when answered or dropped
  std::vector<int32_t> batch;    // [queries]: index into `batches`, kNone where dropped
  std::vector<BatchRecord> batches;
  int64_t events = 0;  // that the batcher saw
};

// Runs the batcher over the arrivals until the last query has ended. `costs` and `slo_ns` are by
// model; an SLO of 0 says: no deadline. A batch takes exactly what its cost says.
//
// Events are ordered by (time, sequence number). Arrivals have the first numbers, so at the same
// instant a query comes before a batch ends, and both before a timer; batches that end together
// are taken in the order in which they began. Throws std::invalid_argument where the arrays
// contradict each other. Each event is noted by the recorder, where there is one, as epoch 0.
//
// Thread-safety: the batcher must be fresh, and no one else's.
DeviceRun run_devices(sched::Batcher& batcher, std::span<const sched::BatchCost> costs,
                      std::span<const int64_t> slo_ns, const Arrivals& arrivals,
                      const Look& look = {}, sched::Recorder* recorder = nullptr);

}  // namespace veltair::sim::devices
