#include "native/sched/recorded_view.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace veltair::sched {
namespace {

void require(bool holds, const char* what, int64_t value) {
  if (!holds) throw std::invalid_argument(what + (": " + std::to_string(value)));
}

bool is_within(int32_t value, int64_t low, int64_t high) { return low <= value && value <= high; }

}  // namespace

RecordedView::RecordedView(std::vector<ModelProfile> models, int32_t total_cores, int32_t workers)
    : models_(std::move(models)), total_cores_(total_cores) {
  require(total_cores >= 1, "a machine has at least one core", total_cores);
  require(workers >= 1, "a machine has at least one worker", workers);
  workers_.resize(workers);
  busy_ = IdSet(workers);
}

void RecordedView::set(const ViewParts& parts) {
  require(is_within(parts.free_cores, 0, total_cores_), "free cores beyond the machine's",
          parts.free_cores);
  require(parts.level >= 0, "a level below 0", parts.level);
  require(parts.slowdown >= kNone, "a slow-down below 0", parts.slowdown);
  require(parts.pace > 0, "a pace below 1", parts.pace);
  require(parts.queue_length >= static_cast<int64_t>(parts.queue.size()),
          "a queue with more tasks than its length", parts.queue_length);
  require(parts.queue_length == 0 || !parts.queue.empty(), "a queue without its head",
          parts.queue_length);
  queue_length_ = parts.queue_length;
  free_cores_ = parts.free_cores;
  level_ = parts.level;
  slowdown_ = parts.slowdown;
  pace_ = parts.pace;
  set_tasks(parts);
  set_queue(parts);
  set_workers(parts);
}

void RecordedView::set_tasks(const ViewParts& parts) {
  ids_.clear();
  for (const auto& known : {parts.queue, parts.tasks}) {
    for (const NamedTask& each : known) ids_.push_back(each.id);
  }
  std::sort(ids_.begin(), ids_.end());
  const auto twice = std::adjacent_find(ids_.begin(), ids_.end());
  if (twice != ids_.end()) require(false, "a task that is named twice", *twice);
  tasks_.resize(ids_.size());
  for (const NamedTask& each : parts.queue) put(each, 1);
  for (const NamedTask& each : parts.tasks) put(each, 0);  // one may have run its last layer
}

void RecordedView::put(const NamedTask& named, int32_t least_layers) {
  const Task& task = named.task;
  require(named.id >= 0, "a task's id below 0", named.id);
  require(is_within(task.model, 0, std::ssize(models_) - 1), "a task of no model", task.model);
  const int32_t most = models_[task.model].layers() - least_layers;
  require(is_within(task.next_layer, 0, most), "a task's layer beyond its model", task.next_layer);
  require(task.arrival_ns >= 0, "a task that arrived before 0", task.arrival_ns);
  require(task.deadline_ns >= 0, "a deadline before 0", task.deadline_ns);
  require(task.lead_ns >= 0, "a lead below 0", task.lead_ns);
  tasks_[place_of(named.id)] = task;
}

void RecordedView::set_queue(const ViewParts& parts) {
  int32_t* link = &queue_head_;
  for (const NamedTask& each : parts.queue) {
    *link = place_of(each.id);
    link = &tasks_[*link].next;
  }
  *link = kNone;
  for (const NamedTask& each : parts.tasks) tasks_[place_of(each.id)].next = kNone;
}

void RecordedView::set_workers(const ViewParts& parts) {
  std::fill(workers_.begin(), workers_.end(), Running{});
  int64_t cores = free_cores_;
  for (const NamedWorker& each : parts.workers) {
    Running running = each.running;
    require(is_within(each.index, 0, std::ssize(workers_) - 1), "no such worker", each.index);
    require(workers_[each.index].task == kNone, "a worker that is named twice", each.index);
    running.task = place_of(running.task);
    require(running.task != kNone, "a worker with a task that isn't told", each.running.task);
    const int32_t layers = models_[tasks_[running.task].model].layers();
    require(0 <= running.layer_begin && running.layer_begin <= running.layer_end &&
                running.layer_end <= layers,
            "a block beyond its model's layers, of worker", each.index);
    require(running.cores_held >= 0 && running.cores_wanted >= 0, "cores below 0, of worker",
            each.index);
    cores += running.cores_held;
    workers_[each.index] = running;
  }
  find_busy(view().workers, busy_);
  require(cores <= total_cores_, "more cores, free and held, than there are", cores);
}

int32_t RecordedView::place_of(int32_t id) const {
  const auto found = std::lower_bound(ids_.begin(), ids_.end(), id);
  if (found == ids_.end() || *found != id) return kNone;
  return static_cast<int32_t>(found - ids_.begin());
}

View RecordedView::view() const {
  return {.models = models_,
          .tasks = {tasks_.data(), sizeof(Task), static_cast<int32_t>(tasks_.size())},
          .queue_head = queue_head_,
          .queue_length = queue_length_,
          .workers = {workers_.data(), sizeof(Running), static_cast<int32_t>(workers_.size())},
          .busy = &busy_,
          .total_cores = total_cores_,
          .free_cores = free_cores_,
          .level = level_,
          .slowdown = slowdown_,
          .pace = pace_};
}

Decision RecordedView::decide(const Policy& policy, const Event& event, int64_t now_ns) const {
  require(now_ns >= 0, "a time before 0", now_ns);
  require(is_within(event.worker, 0, std::ssize(workers_) - 1), "an event of no worker",
          event.worker);
  const int32_t own = workers_[event.worker].task;
  if (event.kind == EventKind::kBlockEnd) {
    require(own != kNone, "a block ends on an idle worker", event.worker);
    require(tasks_[own].next_layer < models_[tasks_[own].model].layers(),
            "a decision about a task that has no layer left", ids_[own]);
  } else {
    require(own == kNone, "a worker that has a task asks for one", event.worker);
  }
  Decision decision = policy.decide(view(), event, now_ns);
  if (is_within(decision.task, 0, std::ssize(ids_) - 1)) decision.task = ids_[decision.task];
  return decision;
}

}  // namespace veltair::sched
