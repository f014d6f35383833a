// The part of a view that a decision can depend on, as plain data that outlives the view.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "native/sched/id_set.h"
#include "native/sched/policy.h"
#include "native/sched/profile.h"
#include "native/sched/view.h"

namespace veltair::sched {

struct NamedTask {
  int32_t id = kNone;
  Task task;
};

struct NamedWorker {
  int32_t index = 0;
  Running running;
};

// What a record keeps of a view: of the queue as much as the policy reads, the workers that have a
// task, and their tasks. Models, cores and the number of workers are the record's.
struct ViewParts {
  std::span<const NamedTask> queue;  // in its order, from the head
  std::span<const NamedTask> tasks;  // of the workers, in their order
  std::span<const NamedWorker> workers;
  int32_t queue_length = 0;
  int32_t free_cores = 0;
  int32_t level = 0;
  int32_t slowdown = kNone;
  int32_t pace = kAsPredicted;
};

// A view made again from its record, to ask a policy.
//
// Tasks get other ids, in the same order, so that memory is bounded by what the record names and
// not by its numbers; decisions are given with the ids of the record.
// Ownership: keeps all that it is given. Thread-safety: none; one owner.
class RecordedView {
 public:
  // Throws std::invalid_argument for counts below one. A model that isn't served has no layers.
  RecordedView(std::vector<ModelProfile> models, int32_t total_cores, int32_t workers);

  const std::vector<ModelProfile>& models() const { return models_; }
  int32_t total_cores() const { return total_cores_; }

  // Throws std::invalid_argument where the parts contradict each other, so that no policy reads
  // beyond its tables whatever a file says. Its state is unspecified then until the next `set`.
  void set(const ViewParts& parts);

  // Throws std::invalid_argument for an event that can't be of this view.
  Decision decide(const Policy& policy, const Event& event, int64_t now_ns) const;

 private:
  View view() const;
  int32_t place_of(int32_t id) const;
  void set_tasks(const ViewParts& parts);
  void put(const NamedTask& named, int32_t least_layers);
  void set_queue(const ViewParts& parts);
  void set_workers(const ViewParts& parts);

  const std::vector<ModelProfile> models_;
  const int32_t total_cores_;
  std::vector<int32_t> ids_;  // as the record has them, ascending
  std::vector<Task> tasks_;   // by place in `ids_`
  std::vector<Running> workers_;
  IdSet busy_{0};
  int32_t queue_head_ = kNone;
  int32_t queue_length_ = 0;
  int32_t free_cores_ = 0;
  int32_t level_ = 0;
  int32_t slowdown_ = kNone;
  int32_t pace_ = kAsPredicted;
};

}  // namespace veltair::sched
