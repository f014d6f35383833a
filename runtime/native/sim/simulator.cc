#include "native/sim/simulator.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "native/sched/lead.h"
#include "native/sched/pace.h"

namespace veltair::sim {

using sched::Action, sched::Decision, sched::EventKind, sched::kNone, sched::Running, sched::Task;

namespace {

// Slow-downs that differ by less give times that hardly do: of 102 GB/s it is some 4.
constexpr double kSteady = 0.1;

}  // namespace

Simulator::Simulator(const MachineOptions& options, std::vector<sched::ModelProfile> models,
                     const sched::Policy& policy, const sched::Interference& interference,
                     sched::Recorder* recorder)
    : options_(options),
      profiles_(std::move(models)),
      policy_(policy),
      interference_(interference),
      recorder_(recorder),
      needs_(policy.needs()),
      machine_pace_(options.pace),
      busy_(std::max(options.workers, 0)),
      free_cores_(options.cores) {
  if (options.cores < 1 || options.workers < 1 || options.max_queue < 1) {
    throw std::invalid_argument("a machine has cores, workers and room for a task in its queue");
  }
  if (options.conflict_ns < 0 || options.decision_ns < 0) {
    throw std::invalid_argument("a cost is at least 0 ns");
  }
  if (profiles_.empty()) throw std::invalid_argument("no model to simulate");
  const bool shared = options.memory.gbps > 0;
  for (const sched::ModelProfile& profile : profiles_) {
    if (profile.layers() == 0) throw std::invalid_argument("a model without layers");
    if (shared && (profile.layer_bytes.empty() || profile.slowdowns.empty())) {
      throw std::invalid_argument("shared memory needs profiles with layer_bytes and slowdowns");
    }
    std::vector<sched::ModelPlan>& plans = plans_.emplace_back();
    for (int32_t versions = 0; versions < profile.levels; ++versions) {
      plans.emplace_back(profile, options.cores, versions);
    }
  }
  workers_.resize(options.workers);
  lacking_.resize(options.workers);
  for (int32_t w = options.workers; w-- > 0;) idle_workers_.push_back(w);
  totals_.resize(profiles_.size());
  lateness_.resize(profiles_.size());
}

sched::View Simulator::view(int32_t worker) const {
  sched::View view{
      .models = profiles_,
      .tasks = {tasks_.data(), sizeof(Task), static_cast<int32_t>(tasks_.size())},
      .queue_head = queue_head_,
      .queue_length = queue_length_,
      .workers = {&workers_.data()->running, sizeof(Worker), static_cast<int32_t>(workers_.size())},
      .busy = &busy_,
      .total_cores = options_.cores,
      .free_cores = free_cores_,
      .level = 0,
      .pace = sched::present_pace(pace_, !busy_.empty())};
  if (options_.memory.gbps > 0) {
    const auto draw = static_cast<uint64_t>(machine_.decisions);
    view.slowdown = options_.memory.told_of(disturbance(worker), draw);
    return view;
  }
  const sched::Level level = interference_.level(view, {.worker = worker}, now_ns_);
  view.level = level.index;
  view.slowdown = level.slowdown;
  return view;
}

void Simulator::run(std::span<const int64_t> arrival_ns, std::span<const int32_t> model,
                    const Look& look) {
  if (arrival_ns.size() != model.size()) throw std::invalid_argument("an arrival has one model");
  if (!queries_.end_ns.empty()) throw std::logic_error("a simulator runs once");
  for (size_t q = 0; q < arrival_ns.size(); ++q) {
    if (arrival_ns[q] < (q == 0 ? 0 : arrival_ns[q - 1])) {
      throw std::invalid_argument("arrivals ascend, from 0");
    }
    if (model[q] < 0 || model[q] >= static_cast<int32_t>(profiles_.size())) {
      throw std::invalid_argument("an arrival of no model");
    }
  }
  arrival_ns_ = arrival_ns;
  model_ = model;
  const size_t count = arrival_ns.size();
  queries_.start_ns.assign(count, -1);
  queries_.end_ns.assign(count, -1);
  queries_.outcome.assign(count, static_cast<uint8_t>(Outcome::kServed));
  machine_.first_ns = count == 0 ? 0 : arrival_ns.front();
  size_t next = 0;
  while (next < count || !ends_.empty()) {
    if (next < count && (ends_.empty() || arrival_ns[next] <= ends_.top().time_ns)) {
      now_ns_ = arrival_ns[next];
      arrive(static_cast<int32_t>(next++));
    } else {
      const BlockEnd end = ends_.top();
      ends_.pop();
      if (end.generation != workers_[end.worker].generation) continue;
      now_ns_ = end.time_ns;
      end_block(end.worker);
    }
    if (++machine_.events % kLookEvery == 0 && look) look();
    dispatch();
  }
  machine_.last_ns = now_ns_;
  if (queue_length_ > 0 || waiting_ > 0) {
    throw std::logic_error("the policy `" + std::string(policy_.name()) + "` left " +
                           std::to_string(queue_length_ + waiting_) + " tasks waiting for ever");
  }
}

void Simulator::arrive(int32_t query) {
  if (queue_length_ >= options_.max_queue) {
    queries_.end_ns[query] = now_ns_;
    queries_.outcome[query] = static_cast<uint8_t>(Outcome::kQueueFull);
    return;
  }
  if (free_tasks_.empty()) {
    free_tasks_.push_back(static_cast<int32_t>(tasks_.size()));
    tasks_.emplace_back();
    query_of_.push_back(kNone);
    previous_.push_back(kNone);
  }
  const int32_t task = free_tasks_.back();
  free_tasks_.pop_back();
  const int64_t qos_ns = profiles_[model_[query]].qos_ns;
  tasks_[task] = {.model = model_[query],
                  .arrival_ns = now_ns_,
                  .deadline_ns = qos_ns > 0 ? now_ns_ + qos_ns : 0,
                  .order = query,
                  .lead_ns = sched::lead_ns(lateness_[model_[query]], mean_lateness_, qos_ns)};
  query_of_[task] = query;
  link(task);
}

void Simulator::link(int32_t task) {
  // By `order`, from the back: a new task is the last one, a returned one was ahead of all.
  int32_t before = queue_tail_;
  while (before != kNone && tasks_[before].order > tasks_[task].order) before = previous_[before];
  const int32_t after = before == kNone ? queue_head_ : tasks_[before].next;
  previous_[task] = before;
  tasks_[task].next = after;
  (before == kNone ? queue_head_ : tasks_[before].next) = task;
  (after == kNone ? queue_tail_ : previous_[after]) = task;
  ++queue_length_;
}

void Simulator::unlink(int32_t task) {
  const int32_t before = previous_[task];
  const int32_t after = tasks_[task].next;
  (before == kNone ? queue_head_ : tasks_[before].next) = after;
  (after == kNone ? queue_tail_ : previous_[after]) = before;
  tasks_[task].next = kNone;
  --queue_length_;
}

void Simulator::drop(int32_t task, Outcome outcome) {
  const int32_t query = query_of_[task];
  queries_.end_ns[query] = now_ns_;
  queries_.outcome[query] = static_cast<uint8_t>(outcome);
  const Task& ended = tasks_[task];
  if (ended.deadline_ns != 0) {
    const bool is_late = outcome != Outcome::kServed || now_ns_ > ended.deadline_ns;
    sched::count_query(lateness_[ended.model], mean_lateness_, is_late, needs_.late_percent);
  }
  free_tasks_.push_back(task);
}

Decision Simulator::ask(EventKind kind, int32_t worker) {
  const int64_t sequence = machine_.decisions++;
  const sched::View seen = view(worker);
  workers_[worker].place = {.level = seen.level};
  const Decision decision = policy_.decide(seen, {kind, worker}, now_ns_);
  if (recorder_ != nullptr) {
    recorder_->note(policy_, seen, {kind, worker}, now_ns_, decision, {.sequence = sequence});
    recorder_->flush();
  }
  check(decision, kind, worker);
  return decision;
}

// A policy that breaks these rules would run a layer twice, or never.
void Simulator::check(const Decision& decision, EventKind kind, int32_t worker) const {
  const auto refuse = [&](const char* why) {
    throw std::logic_error("the policy `" + std::string(policy_.name()) + "` " + why);
  };
  if (kind == EventKind::kBlockEnd && decision.task != workers_[worker].running.task) {
    refuse("decided about another worker's task");
  }
  if (decision.task == kNone || decision.action == Action::kWait) return;
  if (decision.action == Action::kRefuse) {
    if (!needs_.refusing) refuse("refuses without saying so in needs()");
    return;
  }
  if (decision.action == Action::kReturn) {
    if (!needs_.returning) refuse("returns a task without saying so in needs()");
    if (kind != EventKind::kBlockEnd) refuse("returns a task that waits in the queue");
    return;
  }
  const Task& task = tasks_[decision.task];
  if (decision.layer_begin != task.next_layer || decision.layer_end <= decision.layer_begin ||
      decision.layer_end > profiles_[task.model].layers()) {
    refuse("made a block that is empty, out of order or beyond the model");
  }
}

void Simulator::settle(int32_t worker) {
  Worker& record = workers_[worker];
  const int64_t passed_ns = now_ns_ - record.changed_ns;
  const Running& running = record.running;
  if (passed_ns > 0) {
    ModelTotals& totals = totals_[tasks_[running.task].model];
    totals.core_ns += passed_ns * running.cores_held;
    totals.busy_ns += passed_ns;
    if (options_.trace) {
      segments_.push_back({query_of_[running.task], worker, running.layer_begin, running.layer_end,
                           running.cores_wanted, running.cores_held, record.changed_ns, now_ns_});
    }
  }
  const int64_t done_ns = machine_pace_.work_ns(record.changed_ns, now_ns_);
  record.left_ns = std::max<int64_t>(record.left_ns - done_ns, 0);
  record.changed_ns = now_ns_;
}

void Simulator::foresee(int32_t worker) {
  Worker& record = workers_[worker];
  const int64_t end_ns = machine_pace_.end_ns(now_ns_, record.left_ns);
  ends_.push({end_ns, sequence_++, worker, ++record.generation});
}

const sched::ModelPlan& Simulator::plan_of(const Worker& worker) const {
  const auto& plans = plans_[tasks_[worker.running.task].model];
  return plans[plans.front().clamped(worker.running.level)];
}

double Simulator::block_ns(const Worker& worker, int32_t cores) const {
  const Running& running = worker.running;
  return plan_of(worker).time_at(running.layer_begin, running.layer_end, cores, worker.place);
}

// The level that all blocks make together.
double Simulator::slowdown() const {
  const int32_t used = options_.cores - free_cores_;
  return options_.memory.slowdown(static_cast<double>(used) / options_.cores, wanted_gbps_);
}

// The level that a block which a worker begins now will meet: that of the others' blocks that
// aren't soon to finish, if it reads as much as the worker's last.
double Simulator::disturbance(int32_t worker) const {
  int32_t cores = 0;
  double gbps = workers_[worker].gbps;
  for (int32_t w : busy_) {
    const Worker& other = workers_[w];
    if (w == worker || other.running.cores_held == 0) continue;
    if (sched::soon_to_finish(other.running, now_ns_)) continue;
    cores += other.running.cores_held;
    gbps += other.gbps;
  }
  return options_.memory.slowdown(static_cast<double>(cores) / options_.cores, gbps);
}

void Simulator::place(int32_t worker, double slowdown) {
  workers_[worker].place = plan_of(workers_[worker]).place(slowdown);
}

// Works out again what a block would read. That is its model's average: of single layers it would
// be another for each size of blocks, though the machine runs the same layers.
void Simulator::want(int32_t worker) {
  Worker& record = workers_[worker];
  wanted_gbps_ -= record.gbps;
  const sched::ModelPlan& plan = plan_of(record);
  const int32_t cores = record.running.cores_held;
  // At a level below which memory gives all.
  const sched::Place place =
      plan.place(std::min(slowdown(), options_.memory.pushed * options_.memory.highest));
  const double time_ns = std::max(plan.time_at(0, plan.layers(), cores, place), 1.0);
  record.gbps = plan.bytes_at(0, plan.layers(), cores, place) / time_ns;
  wanted_gbps_ += record.gbps;
}

// Times all running blocks by the level that holds now, if it is another.
void Simulator::spread() {
  const double slowdown = this->slowdown();
  if (std::abs(slowdown - spread_) < kSteady) return;
  spread_ = slowdown;
  for (int32_t w : busy_) {
    if (workers_[w].running.cores_held == 0) continue;
    settle(w);
    const double before_ns = block_ns(workers_[w], workers_[w].running.cores_held);
    place(w, slowdown);
    retime(w, before_ns);
    foresee(w);
  }
}

// Scales what is left of a block whose whole time was another before.
void Simulator::retime(int32_t worker, double before_ns) {
  Worker& record = workers_[worker];
  const double after_ns = block_ns(record, record.running.cores_held);
  const double ratio = before_ns > 0 ? after_ns / before_ns : 1.0;
  record.left_ns = std::llround(static_cast<double>(record.left_ns) * ratio);
}

void Simulator::take(int32_t worker, int32_t cores) {
  workers_[worker].running.cores_held += cores;
  free_cores_ -= cores;
  machine_.max_cores = std::max(machine_.max_cores, options_.cores - free_cores_);
}

void Simulator::set_cores(int32_t worker, int32_t cores, int64_t cost_ns) {
  settle(worker);
  Worker& record = workers_[worker];
  const double before_ns = block_ns(record, record.running.cores_held);
  take(worker, cores - record.running.cores_held);
  retime(worker, before_ns);
  record.left_ns += cost_ns;
  if (options_.memory.gbps > 0) want(worker);
  foresee(worker);
}

void Simulator::end_block(int32_t worker) {
  settle(worker);
  Running& running = workers_[worker].running;
  pace_ = sched::next_pace(pace_, running, now_ns_);
  Task& task = tasks_[running.task];
  if (running.cores_held < running.cores_wanted) --lacking_count_;
  wanted_cores_ -= running.cores_wanted;
  task.next_layer = running.layer_end;
  if (running.layer_end == profiles_[task.model].layers()) {
    end_task(worker, Outcome::kServed);
  } else {
    continue_task(worker);
  }
}

void Simulator::end_task(int32_t worker, Outcome outcome) {
  drop(workers_[worker].running.task, outcome);
  leave(worker);
}

void Simulator::return_task(int32_t worker) {
  const int32_t task = workers_[worker].running.task;
  leave(worker);
  tasks_[task].next_layer = 0;
  link(task);
  ++machine_.returns;
}

void Simulator::leave(int32_t worker) {
  Running& running = workers_[worker].running;
  free_cores_ += running.cores_held;
  wanted_gbps_ -= workers_[worker].gbps;
  workers_[worker].gbps = 0;
  running = {};
  idle_workers_.push_back(worker);
  busy_.erase(worker);
}

// At a boundary: the worker holds its block's cores, or none if it waits.
void Simulator::continue_task(int32_t worker) {
  Running& running = workers_[worker].running;
  const Decision decision = ask(EventKind::kBlockEnd, worker);
  switch (decision.action) {
    case Action::kRun:
      begin_block(worker, decision);
      return;
    case Action::kRefuse:
      end_task(worker, Outcome::kRefused);
      return;
    case Action::kReturn:
      return_task(worker);
      return;
    case Action::kWait:
      if (!needs_.waiting) throw std::logic_error("a policy waits without saying so in needs()");
      free_cores_ += running.cores_held;
      running.cores_held = 0;
      running.cores_wanted = 0;
      wanted_gbps_ -= workers_[worker].gbps;
      workers_[worker].gbps = 0;
      ++waiting_;
      return;
  }
}

void Simulator::begin_block(int32_t worker, const Decision& decision) {
  revoke(decision, worker);
  Worker& record = workers_[worker];
  Running& running = record.running;
  running.layer_begin = decision.layer_begin;
  running.layer_end = decision.layer_end;
  running.level = decision.level;
  running.cores_wanted = std::clamp(decision.cores, 1, options_.cores);
  running.block_started_ns = now_ns_;
  running.block_expected_ns = decision.expected_ns;
  take(worker, std::min(running.cores_wanted - running.cores_held, free_cores_));
  if (running.cores_held < 1) throw std::logic_error("a block begins without a core");
  ModelTotals& totals = totals_[tasks_[running.task].model];
  ++totals.blocks;
  if (running.cores_held < running.cores_wanted) {
    ++totals.conflicts;
    ++lacking_count_;
  }
  wanted_cores_ += running.cores_wanted;
  machine_.max_cores_wanted = std::max(machine_.max_cores_wanted, wanted_cores_);
  record.changed_ns = now_ns_;
  if (options_.memory.gbps > 0) {
    want(worker);
    place(worker, slowdown());
  }
  record.left_ns = std::llround(block_ns(record, running.cores_held)) + options_.decision_ns;
  foresee(worker);
}

void Simulator::revoke(const Decision& decision, int32_t worker) {
  const int32_t victim = decision.revoke_worker;
  if (victim == kNone) return;
  const Running& running = workers_[victim].running;
  if (!needs_.revoking || victim == worker || running.task == kNone || running.waits() ||
      decision.revoke_keep < 1) {
    throw std::logic_error("a policy revokes what it may not");
  }
  if (decision.revoke_keep >= running.cores_held) return;
  if (running.cores_held == running.cores_wanted) ++lacking_count_;
  ++machine_.revocations;
  set_cores(victim, decision.revoke_keep, 0);
}

void Simulator::dispatch() {
  if (lacking_count_ > 0 && free_cores_ > 0 && needs_.topping_up) top_up();
  if (waiting_ > 0 && free_cores_ > 0) resume_waiting();
  if (queue_length_ > 0) begin_queued();
  if (options_.memory.gbps > 0) spread();
}

void Simulator::top_up() {
  int32_t count = 0;
  for (int32_t w : busy_) {
    const Running& running = workers_[w].running;
    if (running.cores_held < running.cores_wanted) lacking_[count++] = w;
  }
  std::sort(lacking_.begin(), lacking_.begin() + count, [&](int32_t a, int32_t b) {
    return tasks_[workers_[a].running.task].order < tasks_[workers_[b].running.task].order;
  });
  for (int32_t i = 0; i < count && free_cores_ > 0; ++i) {
    const Worker& record = workers_[lacking_[i]];
    const Running& running = record.running;
    const int32_t cores = std::min(running.cores_wanted, running.cores_held + free_cores_);
    if (options_.expand_if_shorter) {
      const int64_t done_ns = machine_pace_.work_ns(record.changed_ns, now_ns_);
      const auto left_ns = static_cast<double>(record.left_ns - done_ns);
      const double ratio = block_ns(record, cores) / block_ns(record, running.cores_held);
      if (left_ns * ratio + static_cast<double>(options_.conflict_ns) >= left_ns) continue;
    }
    if (cores == running.cores_wanted) --lacking_count_;
    ++totals_[tasks_[running.task].model].expansions;
    set_cores(lacking_[i], cores, options_.conflict_ns);
  }
}

void Simulator::resume_waiting() {
  for (int32_t w : busy_) {
    if (free_cores_ == 0) return;
    if (!workers_[w].running.waits()) continue;
    --waiting_;
    continue_task(w);
  }
}

void Simulator::begin_queued() {
  while (queue_length_ > 0 && !idle_workers_.empty()) {
    if (free_cores_ == 0 && !needs_.revoking) return;
    const int32_t worker = idle_workers_.back();
    const Decision decision = ask(EventKind::kWorkerIdle, worker);
    if (decision.task == kNone || decision.action == Action::kWait) return;
    unlink(decision.task);
    if (decision.action == Action::kRefuse) {
      drop(decision.task, Outcome::kRefused);
      continue;
    }
    idle_workers_.pop_back();
    busy_.insert(worker);
    workers_[worker].running = {.task = decision.task, .started_ns = now_ns_};
    queries_.start_ns[query_of_[decision.task]] = now_ns_;
    begin_block(worker, decision);
  }
}

}  // namespace veltair::sim
