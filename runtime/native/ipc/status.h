// Copies of the segment's state and counters, for whoever reports them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "native/ipc/segment.h"

namespace veltair::ipc {

struct ModelStatus {
  std::string name;
  int64_t version = 0;
  ModelState state = ModelState::kLoading;
  std::string reason;
  int64_t qos_ns = 0;
  int64_t expected_ns = 0;
  int32_t needed_cores = 0;
  int32_t slots = 0;
  std::string metadata;
};

// The fields are read one after the other while the server goes on: each is right by itself, sums
// over several may be off by the queries that end meanwhile.
struct ModelCounts {
  uint64_t accepted = 0;
  uint64_t succeeded = 0;
  std::array<uint64_t, kFailures> failed{};
  uint64_t within_qos = 0;
  uint64_t executions = 0;
  uint64_t queue_ns = 0;
  uint64_t compute_ns = 0;
  uint64_t request_ns = 0;
  int32_t pending = 0;   // queries that wait or run now
  int32_t lateness = 0;  // in millionths of a target
  std::vector<uint64_t> latency;
};

struct WorkerStatus {
  int32_t pid = 0;  // 0: absent
  bool busy = false;
  int32_t cores = 0;
  int64_t beat_ns = 0;
  int64_t progress_ns = 0;
};

// Thread-safe: they read constants and atomics, and counts that may be a moment old.
std::vector<ModelStatus> model_statuses(const Segment& segment);
ModelCounts model_counts(const Segment& segment, int32_t model);
std::vector<WorkerStatus> worker_statuses(const Segment& segment);
std::vector<int32_t> client_pids(const Segment& segment);  // by client; 0: free
int32_t cores_in_use(const Segment& segment);

}  // namespace veltair::ipc
