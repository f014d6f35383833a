#include "native/ipc/status.h"

#include <cstring>

#include "native/ipc/board.h"

namespace veltair::ipc {

std::vector<ModelStatus> model_statuses(const Segment& segment) {
  std::vector<ModelStatus> statuses;
  for (const ModelRecord& model : segment.models()) {
    ModelStatus status{.name = model.name,
                       .version = model.version,
                       .state = static_cast<ModelState>(model.state.load()),
                       .reason = {},
                       .qos_ns = model.qos_ns,
                       .expected_ns = model.expected_ns,
                       .needed_cores = model.needed_cores,
                       .slots = model.slots,
                       .metadata = segment.metadata(model)};
    if (status.state == ModelState::kUnavailable) status.reason = model.reason;
    statuses.push_back(std::move(status));
  }
  return statuses;
}

ModelCounts model_counts(const Segment& segment, int32_t model) {
  const ModelRecord& record = segment.models()[model];
  const Counters& counters = record.counters;
  ModelCounts counts{.accepted = counters.accepted,
                     .succeeded = counters.succeeded,
                     .within_qos = counters.within_qos,
                     .executions = counters.executions,
                     .queue_ns = counters.queue_ns,
                     .compute_ns = counters.compute_ns,
                     .request_ns = counters.request_ns,
                     .lateness = record.lateness,
                     .latency = {}};
  for (int f = 0; f < kFailures; ++f) counts.failed[f] = counters.failed[f];
  for (const std::atomic<uint64_t>& bucket : counters.latency) counts.latency.push_back(bucket);
  for (int32_t slot = 0; slot < record.slots; ++slot) {
    const QueryRecord& query = segment.queries()[record.first_slot + slot];
    const bool waits = is(query.state, QueryState::kWaits);
    counts.pending += waits || is(query.state, QueryState::kInTask) ? 1 : 0;
  }
  return counts;
}

std::vector<WorkerStatus> worker_statuses(const Segment& segment) {
  std::vector<WorkerStatus> statuses;
  std::vector<int32_t> held(segment.workers().size());
  for (const CoreRecord& core : segment.cores()) {
    const int32_t owner = core.owner;
    if (owner != kNone) ++held[owner];
  }
  for (size_t w = 0; w < held.size(); ++w) {
    const WorkerRecord& worker = segment.workers()[w];
    if (is(worker.state, WorkerState::kAbsent)) {
      statuses.emplace_back();
      continue;
    }
    statuses.push_back({.pid = worker.pid,
                        .busy = is(worker.state, WorkerState::kBusy),
                        .cores = held[w],
                        .beat_ns = worker.beat_ns,
                        .progress_ns = worker.progress_ns});
  }
  return statuses;
}

std::vector<int32_t> client_pids(const Segment& segment) {
  std::vector<int32_t> pids;
  for (const ClientRecord& client : segment.clients()) {
    pids.push_back(is(client.state, ClientState::kLive) ? client.pid.load() : 0);
  }
  return pids;
}

int32_t cores_in_use(const Segment& segment) {
  int32_t used = 0;
  for (const CoreRecord& core : segment.cores()) used += core.owner == kNone ? 0 : 1;
  return used;
}

}  // namespace veltair::ipc
