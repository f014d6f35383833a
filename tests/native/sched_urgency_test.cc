// The policies that choose among tasks: `prema`, `deadline`, `veltair-deadline`.
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.h"
#include "count_allocations.h"
#include "native/sched/policy.h"
#include "native/sched/prema_policy.h"

namespace {

using namespace veltair::sched;

// `layers` equal layers of `layer_ns` on one core, `both_ns` on two.
ModelProfile even(int64_t qos_ns, int32_t layers, int64_t layer_ns, int64_t both_ns) {
  ModelProfile made;
  made.qos_ns = qos_ns;
  made.cores = {1, 2};
  made.model_ns = {layers * layer_ns, layers * both_ns};
  made.variants.assign(layers, 1);
  for (int32_t l = 0; l < layers; ++l) {
    made.layer_ns.insert(made.layer_ns.end(), {layer_ns, both_ns});
  }
  made.finish();
  return made;
}

// Two cores; model 0 is long (20 layers, 20 ms on both), model 1 short (10 layers, 5 ms on both).
struct State {
  std::vector<ModelProfile> models = {even(50'000'000, 20, 2'000'000, 1'000'000),
                                      even(20'000'000, 10, 1'000'000, 500'000)};
  std::vector<Task> tasks;
  std::vector<Running> workers = std::vector<Running>(3);
  mutable IdSet busy{64};
  int32_t queue_head = kNone;
  int32_t queue_length = 0;
  int32_t total_cores = 2;
  int32_t free_cores = 2;

  int32_t add(int32_t model, int64_t arrival_ns, int32_t next_layer = 0) {
    const auto id = static_cast<int32_t>(tasks.size());
    tasks.push_back({.model = model,
                     .next_layer = next_layer,
                     .arrival_ns = arrival_ns,
                     .deadline_ns = arrival_ns + models[model].qos_ns,
                     .order = id});
    return id;
  }
  void enqueue(int32_t task) {
    tasks[task].next = queue_head;
    queue_head = task;
    ++queue_length;
  }
  void run(int32_t worker, int32_t task, int32_t cores) {
    workers[worker] = {.task = task, .cores_wanted = cores, .cores_held = cores};
    free_cores -= cores;
  }
  View view() const {
    const Table table(workers.data(), sizeof(Running), static_cast<int32_t>(workers.size()));
    find_busy(table, busy);
    return {.models = models,
            .tasks = {tasks.data(), sizeof(Task), static_cast<int32_t>(tasks.size())},
            .queue_head = queue_head,
            .queue_length = queue_length,
            .workers = table,
            .busy = &busy,
            .total_cores = total_cores,
            .free_cores = free_cores,
            .level = 0};
  }
};

// Blocks of two layers of the long model on both cores.
constexpr PolicyOptions kTwoLayers = {.max_block_ns = 2'000'000};

Decision ask(const char* policy, const State& state, EventKind kind, int32_t worker, int64_t now_ns,
             const PolicyOptions& options = kTwoLayers) {
  return make_policy(policy, state.total_cores, state.models, options)
      ->decide(state.view(), {kind, worker}, now_ns);
}

void test_deadline_begins() {
  State state;
  const int32_t long_task = state.add(0, 0);
  Decision decision = ask("deadline", state, EventKind::kWorkerIdle, 0, 0);
  CHECK(decision.task == kNone && decision.reason == Reason::kQueueEmpty);
  state.enqueue(long_task);
  // Alone: all cores, and a boundary every 2 ms.
  decision = ask("deadline", state, EventKind::kWorkerIdle, 0, 0);
  CHECK(decision.task == long_task && decision.cores == 2 && decision.layer_end == 2);
  CHECK(decision.reason == Reason::kSpareCores && decision.expected_ns == 2'000'000);
  decision = ask("deadline", state, EventKind::kWorkerIdle, 0, 0, {.max_block_ns = 5'500'000});
  CHECK(decision.layer_end == 5);
  // Of two that wait the one with the earlier deadline (20 ms against 50), though it is younger.
  const int32_t short_task = state.add(1, 0);
  state.enqueue(short_task);
  decision = ask("deadline", state, EventKind::kWorkerIdle, 0, 0);
  CHECK(decision.task == short_task && decision.reason == Reason::kEarliestDeadline);
  CHECK(decision.cores == 1);  // 10 ms on one core are within 75 % of 20 ms
  // Also where the other has less to spare: 1 ms against 15.
  state.tasks[long_task].deadline_ns = 21'000'000;
  decision = ask("deadline", state, EventKind::kWorkerIdle, 0, 0);
  CHECK(decision.task == short_task);
  state.tasks[long_task].deadline_ns = 20'000'000;  // a tie is the older one's
  decision = ask("deadline", state, EventKind::kWorkerIdle, 0, 0);
  CHECK(decision.task == long_task);
}

constexpr PolicyOptions kRefusing = {.max_block_ns = 2'000'000, .refuse_late = true};

void test_deadline_refuses() {
  State state;
  const int32_t task = state.add(1, 0);
  state.enqueue(task);
  // 5 ms on both cores: at 15 ms it can just be made, a nanosecond later it can't.
  CHECK(ask("deadline", state, EventKind::kWorkerIdle, 0, 15'000'000, kRefusing).action ==
        Action::kRun);
  const Decision refused = ask("deadline", state, EventKind::kWorkerIdle, 0, 15'000'001, kRefusing);
  CHECK(refused.task == task && refused.action == Action::kRefuse);
  CHECK(refused.reason == Reason::kHopeless);
  // Amid its layers too.
  State late;
  late.run(0, late.add(1, 0, 5), 1);
  CHECK(ask("deadline", late, EventKind::kBlockEnd, 0, 17'500'000, kRefusing).action ==
        Action::kRun);
  CHECK(ask("deadline", late, EventKind::kBlockEnd, 0, 17'500'001, kRefusing).action ==
        Action::kRefuse);
  CHECK(make_policy("deadline", 2, state.models, kRefusing)->needs().refusing);
  CHECK(!make_policy("deadline", 2, state.models)->needs().refusing);
}

// `layers` equal layers of the given times on one, four and eight cores.
ModelProfile on_eight(int64_t qos_ns, int32_t layers, const std::vector<int64_t>& layer_ns) {
  ModelProfile made;
  made.qos_ns = qos_ns;
  made.cores = {1, 4, 8};
  for (int64_t time_ns : layer_ns) made.model_ns.push_back(layers * time_ns);
  made.variants.assign(layers, 1);
  for (int32_t l = 0; l < layers; ++l) {
    made.layer_ns.insert(made.layer_ns.end(), layer_ns.begin(), layer_ns.end());
  }
  made.finish();
  return made;
}

// The long model takes 10 ms on four cores and 8 ms on eight, which it uses at 62 %: too dear for
// who has others beside it.
void test_what_most_of_the_machine_would_save_is_late() {
  for (const char* policy : {"deadline", "veltair-deadline"}) {
    State state;
    state.total_cores = state.free_cores = 8;
    state.models = {on_eight(50'000'000, 20, {2'000'000, 500'000, 400'000}),
                    on_eight(20'000'000, 10, {1'000'000, 250'000, 200'000})};
    const int32_t dear = state.add(0, 0);
    const int32_t cheap = state.add(1, 0);
    state.enqueue(dear);
    state.enqueue(cheap);
    state.tasks[dear].deadline_ns = 9'000'000;
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 0).task == dear);  // all are free
    state.run(1, state.add(1, 0), 5);
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 0).task == cheap);
    state.tasks[dear].deadline_ns = 10'000'000;
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 0).task == dear);
    // It is refused when no core could help it any more.
    state.tasks[dear].deadline_ns = 7'900'000;
    const Decision refused = ask(policy, state, EventKind::kWorkerIdle, 0, 0, kRefusing);
    CHECK(refused.action == Action::kRefuse && refused.task == dear);
    state.tasks[dear].deadline_ns = 8'000'000;
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 0, kRefusing).task == dear);
    // Its network's target needs all cores: then they are worth it.
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 0).task == cheap);
    state.models[0].qos_ns = 8'500'000;
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 0).task == dear);
  }
}

// The second core saves a quarter of the time; but it is half of the machine.
void test_few_cores_are_always_worth_it() {
  State state;
  state.models[0] = even(50'000'000, 20, 2'000'000, 1'500'000);
  const int32_t dear = state.add(0, 0);
  state.enqueue(dear);
  state.enqueue(state.add(1, 15'000'000));
  state.tasks[dear].deadline_ns = 30'000'000;
  state.run(1, state.add(1, 0), 1);
  CHECK(ask("veltair-deadline", state, EventKind::kWorkerIdle, 0, 0).task == dear);
}

void test_late_runs_after_the_others() {
  for (const char* policy : {"deadline", "veltair-deadline"}) {
    State state;
    const int32_t late = state.add(0, 0);
    state.enqueue(late);
    // 20 ms on both cores, 50 ms after its arrival: nobody else wants the cores.
    Decision decision = ask(policy, state, EventKind::kWorkerIdle, 0, 31'000'000);
    CHECK(decision.task == late && decision.action == Action::kRun);
    // Another that can be in time goes first, though it is younger and has laxity to spare.
    const int32_t timely = state.add(1, 31'000'000);
    state.enqueue(timely);
    decision = ask(policy, state, EventKind::kWorkerIdle, 0, 31'000'000);
    CHECK(decision.task == timely);
    // A nanosecond before it was hopeless it was the most urgent.
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 30'000'000).task == late);
  }
}

void test_late_ones_run_in_their_order() {
  State state;
  const int32_t older = state.add(1, 0);
  const int32_t younger = state.add(0, 1'000'000);
  const int32_t endless = state.add(0, 2'000'000);
  state.tasks[endless].deadline_ns = 0;
  for (const int32_t task : {older, younger, endless}) state.enqueue(task);
  CHECK(ask("deadline", state, EventKind::kWorkerIdle, 0, 90'000'000).task == older);
  // One that has cores keeps them until it has ended.
  State running;
  running.run(0, running.add(0, 1'000'000, 3), 2);
  running.enqueue(running.add(1, 0));
  const Decision decision = ask("deadline", running, EventKind::kBlockEnd, 0, 90'000'000);
  CHECK(decision.action == Action::kRun && decision.task == 0);
}

void test_late_gives_its_cores_up() {
  State state;
  const int32_t late = state.add(0, 0, 10);
  state.run(0, late, 2);
  const int32_t first = state.add(1, 60'000'000);
  state.enqueue(first);
  // One core is enough for the other in its first moments: 10 ms of 20.
  Decision decision = ask("deadline", state, EventKind::kBlockEnd, 0, 60'000'000);
  CHECK(decision.action == Action::kRun && decision.cores == 1);
  // Later it needs both.
  decision = ask("deadline", state, EventKind::kBlockEnd, 0, 70'000'000);
  CHECK(decision.action == Action::kWait && decision.reason == Reason::kLessUrgent);
  // It takes no cores from a running block.
  State full;
  full.run(1, full.add(0, 60'000'000, 1), 2);
  full.enqueue(full.add(0, 0));
  CHECK(ask("deadline", full, EventKind::kWorkerIdle, 0, 60'000'000).task == kNone);
}

void test_cores_that_the_queue_can_not_use() {
  // Three wait, and there is one worker for them: the first has both cores.
  State state;
  state.workers.resize(1);
  for (int i = 0; i < 3; ++i) state.enqueue(state.add(0, 0));
  for (Task& task : state.tasks) task.deadline_ns = 0;
  for (const char* policy : {"deadline", "veltair-deadline"}) {
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 0).cores == 2);
  }
  // With another one to come each has one core.
  state.workers.resize(2);
  CHECK(ask("deadline", state, EventKind::kWorkerIdle, 0, 0).cores == 1);
}

// A short task amid its layers on one core, with `block_ns` of its block left at 70 ms and 9 layers
// after it; its deadline is at 80 ms.
void run_lacking(State& state, int64_t block_ns) {
  state.run(1, state.add(1, 60'000'000), 1);
  Running& running = state.workers[1];
  running.layer_end = 1;
  running.block_started_ns = 70'000'000 + block_ns - 1'000'000;
  running.block_expected_ns = 1'000'000;
}

void test_cores_are_kept_for_one_that_lacks_them() {
  const int64_t now_ns = 70'000'000;
  // 9 layers take 9 ms on its core: just in time, or a nanosecond late.
  for (const auto& [late_ns, waits] : {std::pair{int64_t{0}, false}, {1, true}}) {
    State queued;
    run_lacking(queued, 1'000'000);
    queued.tasks[0].deadline_ns -= late_ns;
    State amid = queued;
    queued.enqueue(queued.add(0, now_ns));
    Decision decision = ask("deadline", queued, EventKind::kWorkerIdle, 0, now_ns);
    CHECK((decision.action == Action::kWait) == waits);
    CHECK((decision.reason == Reason::kLessUrgent) == waits);
    amid.run(0, amid.add(0, now_ns, 10), 1);
    decision = ask("deadline", amid, EventKind::kBlockEnd, 0, now_ns);
    CHECK((decision.action == Action::kWait) == waits);
    // Not for one that is less urgent.
    amid.tasks[1].deadline_ns = now_ns + 10'000'000;
    CHECK(ask("deadline", amid, EventKind::kBlockEnd, 0, now_ns).action == Action::kRun);
  }
  // A block that ends only after half of max_block_ns, or that is its task's last.
  State far;
  run_lacking(far, 1'000'001);
  far.tasks[0].deadline_ns -= 1'000'000;
  far.enqueue(far.add(0, now_ns));
  CHECK(ask("deadline", far, EventKind::kWorkerIdle, 0, now_ns).action == Action::kRun);
  State patient = far;
  patient.tasks[1].deadline_ns = 0;  // it can wait for any block's end
  CHECK(ask("deadline", patient, EventKind::kWorkerIdle, 0, now_ns).action == Action::kWait);
  const PolicyOptions longer = {.max_block_ns = 2'000'002};
  CHECK(ask("deadline", far, EventKind::kWorkerIdle, 0, now_ns, longer).action == Action::kWait);
  far.workers[1].layer_end = 10;
  CHECK(ask("deadline", far, EventKind::kWorkerIdle, 0, now_ns, longer).action == Action::kRun);
}

// Two tasks at a layer of 20, without a target or late from 50 ms on, on the only two workers, and
// one in the queue that has until 80 ms.
State held_workers(bool has_target, int32_t next_layer) {
  State state;
  state.workers.resize(2);
  for (int32_t worker = 0; worker < 2; ++worker) {
    state.run(worker, state.add(0, 0, next_layer), 1);
    if (!has_target) state.tasks[worker].deadline_ns = 0;
  }
  state.enqueue(state.add(1, 60'000'000));
  return state;
}

void check_both(const State& state, int64_t now_ns, Action action) {
  for (const char* policy : {"deadline", "veltair-deadline"}) {
    CHECK(ask(policy, state, EventKind::kBlockEnd, 0, now_ns).action == action);
  }
}

void test_the_untargeted_free_their_worker() {
  State state = held_workers(false, 10);
  // No worker is idle: the urgent one can begin only when one of these has ended.
  check_both(state, 74'000'000, Action::kRun);
  // One that waits at its boundary goes on for the same reason.
  state.workers[0] = {.task = 0};
  state.free_cores = 1;
  check_both(state, 74'000'000, Action::kRun);
  // With a worker to spare both wait.
  state.workers.resize(3);
  check_both(state, 74'000'000, Action::kWait);
}

void test_late_returns() {
  State state = held_workers(true, 10);
  check_both(state, 74'000'000, Action::kReturn);
  const Decision decision = ask("deadline", state, EventKind::kBlockEnd, 0, 74'000'000);
  CHECK(decision.task == 0 && decision.reason == Reason::kReturned);
  // So does one that waits at its boundary, and none where a worker is idle.
  state.workers[0] = {.task = 0};
  state.free_cores = 1;
  check_both(state, 74'000'000, Action::kReturn);
  state.workers.resize(3);
  check_both(state, 74'000'000, Action::kWait);
  // 2 ms are left, no more than a block; then a layer more.
  check_both(held_workers(true, 18), 74'000'000, Action::kRun);
  check_both(held_workers(true, 17), 74'000'000, Action::kReturn);
  // Not for one that is late too.
  check_both(held_workers(true, 10), 76'000'000, Action::kRun);
}

// One in time leaves its cores to a more urgent one of the queue where a late one can go back.
void test_late_makes_room_for_the_queue() {
  State state;
  state.workers.resize(2);
  state.run(0, state.add(0, 60'000'000, 2), 2);
  state.workers[1] = {.task = state.add(0, 0, 10)};
  state.enqueue(state.add(1, 60'000'000));
  check_both(state, 74'000'000, Action::kWait);
  state.tasks[1].deadline_ns = 0;  // its worker can't be had
  check_both(state, 74'000'000, Action::kRun);
}

void test_deadline_waits() {
  State state;
  const int32_t long_task = state.add(0, 0, 2);
  state.run(0, long_task, 2);
  const int32_t short_task = state.add(1, 7'000'000);
  state.enqueue(short_task);
  // At 18 ms the short one has 4 ms of laxity, the long one 14: it waits, for it can afford 5 ms.
  Decision decision = ask("deadline", state, EventKind::kBlockEnd, 0, 18'000'000);
  CHECK(decision.task == long_task && decision.action == Action::kWait);
  CHECK(decision.reason == Reason::kLessUrgent);
  // With an early arrival there is room for both, one core each.
  decision = ask("deadline", state, EventKind::kBlockEnd, 0, 7'000'000);
  CHECK(decision.action == Action::kRun && decision.cores == 1);
  // At 29 ms it has 3 ms left and no more to give: nobody is helped if both are lost.
  state.tasks[short_task].arrival_ns = 16'000'000;
  state.tasks[short_task].deadline_ns = 36'000'000;
  state.tasks[long_task].deadline_ns = 29'000'000 + 18'000'000 + 4'900'000;
  decision = ask("deadline", state, EventKind::kBlockEnd, 0, 29'000'000);
  CHECK(decision.action == Action::kRun && decision.cores == 2);
  // Once more than a block has to go before it can be afforded it waits again.
  state.tasks[long_task].deadline_ns += 200'000;
  decision = ask("deadline", state, EventKind::kBlockEnd, 0, 29'000'000);
  CHECK(decision.action == Action::kWait);
}

void test_deadline_waiter_is_asked() {
  State state;
  const int32_t waiter = state.add(0, 0, 4);
  state.workers[0] = {.task = waiter};
  CHECK(state.workers[0].waits());
  CHECK(ask("deadline", state, EventKind::kBlockEnd, 0, 0).action == Action::kRun);
  state.run(1, state.add(1, 0), 2);
  const Decision none = ask("deadline", state, EventKind::kBlockEnd, 0, 0);
  CHECK(none.action == Action::kWait && none.reason == Reason::kNoCores);
}

void test_deadline_revokes() {
  State state;
  state.run(0, state.add(0, 0, 1), 2);
  const int32_t short_task = state.add(1, 0);
  state.enqueue(short_task);
  Decision decision = ask("deadline", state, EventKind::kWorkerIdle, 1, 0);
  CHECK(decision.task == short_task && decision.cores == 1);
  CHECK(decision.revoke_worker == 0 && decision.revoke_keep == 1);
  // Not from a task whose deadline is hardly later, and never the last core.
  state.tasks[0].deadline_ns = 20'000'000 + 1'999'999;
  decision = ask("deadline", state, EventKind::kWorkerIdle, 1, 0);
  CHECK(decision.task == kNone && decision.reason == Reason::kNoCores);
  State spread;
  spread.run(0, spread.add(0, 0, 1), 1);
  spread.run(1, spread.add(0, 0, 1), 1);
  spread.enqueue(spread.add(1, 0));
  CHECK(ask("deadline", spread, EventKind::kWorkerIdle, 2, 0).task == kNone);
}

void test_deadline_without_target() {
  State state;
  const int32_t endless = state.add(0, 0);
  state.tasks[endless].deadline_ns = 0;
  state.enqueue(endless);
  CHECK(ask("deadline", state, EventKind::kWorkerIdle, 0, 1'000'000'000).task == endless);
  const int32_t short_task = state.add(1, 1'000'000'000);
  state.enqueue(short_task);
  CHECK(ask("deadline", state, EventKind::kWorkerIdle, 0, 1'000'000'000).task == short_task);
}

void test_deadline_options() {
  const State state;
  CHECK_THROWS(make_policy("deadline", 2, state.models, {.max_block_ns = 0}),
               std::invalid_argument);
  CHECK_THROWS(make_policy("deadline", 2, state.models, {.margin_percent = 0}),
               std::invalid_argument);
  CHECK_THROWS(make_policy("deadline", 2, state.models, {.margin_percent = 101}),
               std::invalid_argument);
  CHECK_THROWS(make_policy("deadline", 2, state.models, {.late_percent = 0}),
               std::invalid_argument);
  CHECK_THROWS(make_policy("deadline", 2, state.models, {.late_percent = 101}),
               std::invalid_argument);
  CHECK(make_policy("deadline", 2, state.models)->needs().late_percent == 5);
  CHECK(make_policy("veltair", 2, state.models)->needs().late_percent == kNone);
}

// A lead says who goes first, and not what a task needs or when it is late.
void test_leads_order() {
  for (const char* policy : {"deadline", "veltair-deadline"}) {
    State state;
    const int32_t ahead = state.add(0, 0);  // due at 50 ms
    const int32_t other = state.add(1, 0);  // due at 20 ms
    state.enqueue(ahead);
    state.enqueue(other);
    state.tasks[ahead].lead_ns = 29'000'000;
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 0).task == other);
    state.tasks[ahead].lead_ns = 31'000'000;
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 0).task == ahead);
    // It takes 20 ms on both cores: after 30 it would be late, and goes behind who isn't.
    state.tasks[other].deadline_ns = 90'000'000;
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 30'000'000).task == ahead);
    CHECK(ask(policy, state, EventKind::kWorkerIdle, 0, 30'000'001).task == other);
  }
  // As many cores as without one.
  for (const int64_t lead_ns : {0, 20'000'000}) {
    State state;
    state.enqueue(state.add(0, 0));
    state.enqueue(state.add(0, 0));
    for (Task& task : state.tasks) task.lead_ns = lead_ns;
    CHECK(ask("deadline", state, EventKind::kWorkerIdle, 0, 0).cores == 2);
    for (Task& task : state.tasks) task.deadline_ns = 90'000'000;
    CHECK(ask("deadline", state, EventKind::kWorkerIdle, 0, 0).cores == 1);
  }
}

// One that can be in time shares with others that can, and not with those that can't.
void test_the_late_make_nobody_save_cores() {
  const int64_t now_ns = 100'000'000;
  for (const auto& [age_ns, cores] : {std::pair{int64_t{0}, 1}, {100'000'000, 2}}) {
    State queued;
    queued.enqueue(queued.add(0, now_ns - age_ns));
    const int32_t task = queued.add(1, now_ns);
    State amid = queued;
    queued.enqueue(task);
    Decision decision = ask("deadline", queued, EventKind::kWorkerIdle, 0, now_ns);
    CHECK(decision.task == task && decision.cores == cores);
    CHECK(decision.reason == (cores == 1 ? Reason::kEarliestDeadline : Reason::kSpareCores));
    amid.run(0, task, 1);
    decision = ask("deadline", amid, EventKind::kBlockEnd, 0, now_ns);
    CHECK(decision.cores == cores);
  }
  // Among themselves they share.
  State late;
  for (int i = 0; i < 2; ++i) late.enqueue(late.add(0, 0));
  CHECK(ask("deadline", late, EventKind::kWorkerIdle, 0, now_ns).cores == 1);
}

// What has no deadline gets no core that another needs to end within its margin.
void test_the_late_leave_the_margin() {
  const int64_t now_ns = 70'000'000;
  // 9 layers take 9 ms on the core that it holds: 75 % of the time left, or a nanosecond more.
  for (const auto& [less_ns, waits] : {std::pair{int64_t{0}, false}, {1, true}}) {
    State state;
    run_lacking(state, 1'000'000);
    state.tasks[0].deadline_ns += 3'000'000 - less_ns;
    state.enqueue(state.add(0, 0));  // late
    const Decision decision = ask("deadline", state, EventKind::kWorkerIdle, 0, now_ns);
    CHECK((decision.action == Action::kWait) == waits);
    state.tasks[1].deadline_ns = now_ns + 100'000'000;  // can be in time
    CHECK(ask("deadline", state, EventKind::kWorkerIdle, 0, now_ns).action == Action::kRun);
  }
}

// Another task that waits, and takes no core from anybody.
void add_patient(State& state) {
  const int32_t task = state.add(0, 0);
  state.tasks[task].deadline_ns = 0;
  state.enqueue(task);
}

void test_veltair_deadline() {
  State state;
  state.models[0] = even(50'000'000, 20, 2'000'000, 1'100'000);  // a tenth of two cores is lost
  const int32_t task = state.add(0, 0, 10);
  state.run(0, task, 1);
  // Nobody waits: two cores, though that costs more.
  Decision decision = ask("veltair-deadline", state, EventKind::kBlockEnd, 0, 10'000'000);
  CHECK(decision.cores == 2 && decision.reason == Reason::kSpareCores);
  State wasteful = state;
  wasteful.models[0] = even(50'000'000, 20, 2'000'000, 1'700'000);  // two fifths of them are lost
  CHECK(ask("veltair-deadline", wasteful, EventKind::kBlockEnd, 0, 10'000'000).cores == 1);
  add_patient(state);
  // Half of its layers in time: one core is enough for the other half (20 ms of 40).
  decision = ask("veltair-deadline", state, EventKind::kBlockEnd, 0, 10'000'000);
  CHECK(decision.action == Action::kRun && decision.cores == 1);
  CHECK(decision.reason == Reason::kEarliestDeadline);
  // It has little time: two cores.
  decision = ask("veltair-deadline", state, EventKind::kBlockEnd, 0, 30'000'000);
  CHECK(decision.cores == 2 && decision.layer_end == 11);
}

void test_veltair_deadline_takes_cores_that_cost_nothing() {
  State state;
  state.models[0] = even(50'000'000, 20, 2'000'000, 1'050'000);
  const int32_t task = state.add(0, 0, 10);
  state.run(0, task, 1);
  add_patient(state);
  Decision decision = ask("veltair-deadline", state, EventKind::kBlockEnd, 0, 10'000'000);
  CHECK(decision.cores == 2);
  // Another has the second core.
  state.run(1, state.add(1, 0), 1);
  decision = ask("veltair-deadline", state, EventKind::kBlockEnd, 0, 10'000'000);
  CHECK(decision.cores == 1);
}

// A block that uses eight cores at 62 % gets them while nobody waits, and four where somebody does
// or half of the machine is in use.
void test_veltair_deadline_uses_what_is_idle() {
  State state;
  state.total_cores = state.free_cores = 16;
  state.models = {on_eight(50'000'000, 20, {2'000'000, 500'000, 400'000}),
                  on_eight(20'000'000, 10, {1'000'000, 250'000, 200'000})};
  state.enqueue(state.add(0, 0));
  CHECK(ask("veltair-deadline", state, EventKind::kWorkerIdle, 0, 0).cores == 8);
  state.run(1, state.add(1, 0), 6);
  const Decision decision = ask("veltair-deadline", state, EventKind::kWorkerIdle, 0, 0);
  CHECK(decision.cores == 8 && decision.reason == Reason::kSpareCores);
  State crowded = state;
  crowded.workers.resize(4);  // one to spare for who waits
  add_patient(crowded);
  CHECK(ask("veltair-deadline", crowded, EventKind::kWorkerIdle, 0, 0).cores == 4);
  state.run(2, state.add(1, 0), 2);
  CHECK(ask("veltair-deadline", state, EventKind::kWorkerIdle, 0, 0).cores == 4);
}

// One core takes 10 ms: as long as that is within 75 % of what is left less half of a block, 1 ms,
// or by `veltair-deadline`, which saves a sixth of the cores' time with it, within 87 %.
void test_deadlines_leave_room_for_the_reply() {
  for (const auto& [policy, left_ns] :
       {std::pair{"deadline", 14'334'000}, std::pair{"veltair-deadline", 12'495'000}}) {
    State state;
    state.models[1] = even(20'000'000, 10, 1'000'000, 600'000);
    state.run(0, state.add(1, 0), 1);
    add_patient(state);
    CHECK(ask(policy, state, EventKind::kBlockEnd, 0, 20'000'000 - left_ns).cores == 1);
    CHECK(ask(policy, state, EventKind::kBlockEnd, 0, 20'000'000 - left_ns + 2'000).cores == 2);
  }
}

void test_prema() {
  State state;
  const PremaPolicy policy(2, state.models);
  const int32_t long_task = state.add(0, 0);
  const int32_t short_task = state.add(1, 0);
  CHECK(policy.token(state.tasks[long_task], 0) == 1000);
  CHECK(policy.token(state.tasks[long_task], 20'000'000) == 2000);
  CHECK(policy.token(state.tasks[short_task], 20'000'000) == 5000);
  state.enqueue(long_task);
  state.enqueue(short_task);
  // Equal tokens: the shorter one, one layer, on the whole machine.
  Decision decision = ask("prema", state, EventKind::kWorkerIdle, 0, 0);
  CHECK(decision.task == short_task && decision.cores == 2 && decision.layer_end == 1);
  // The long one has waited to a token of 3 (40 ms); a new short one has 1 and is no candidate.
  state.tasks[short_task].arrival_ns = 40'000'000;
  decision = ask("prema", state, EventKind::kWorkerIdle, 0, 40'000'000);
  CHECK(decision.task == long_task && decision.reason == Reason::kHighestToken);
  // A higher priority counts as much.
  state.models[1].priority = 9;
  decision = ask("prema", state, EventKind::kWorkerIdle, 0, 40'000'000);
  CHECK(decision.task == short_task);
}

void test_prema_preempts() {
  State state;
  const int32_t long_task = state.add(0, 0, 3);
  state.run(0, long_task, 2);
  const int32_t short_task = state.add(1, 0);
  state.enqueue(short_task);
  // One task has the machine: nothing begins beside it.
  CHECK(ask("prema", state, EventKind::kWorkerIdle, 1, 0).reason == Reason::kOtherRuns);
  // At its layer's end it waits for the shorter one.
  const Decision ended = ask("prema", state, EventKind::kBlockEnd, 0, 0);
  CHECK(ended.task == long_task && ended.action == Action::kWait);
  // No worker is free for the short one: the long one goes on.
  State full = state;
  full.workers.resize(1);
  CHECK(ask("prema", full, EventKind::kBlockEnd, 0, 0).action == Action::kRun);
  // While it waits the idle worker begins the short one.
  state.workers[0] = {.task = long_task};
  CHECK(ask("prema", state, EventKind::kWorkerIdle, 1, 0).task == short_task);
  // A waiting task that is the best is left to its own worker.
  state.tasks[short_task].model = 0;
  CHECK(ask("prema", state, EventKind::kWorkerIdle, 1, 0).task == kNone);
  CHECK(ask("prema", state, EventKind::kBlockEnd, 0, 0).action == Action::kRun);
}

// All policies, at every event: a decision is about an existing task and its next layers, and
// allocates nothing.
void test_decisions_are_valid() {
  for (const auto name : policy_names()) {
    State state;
    for (int32_t i = 0; i < 6; ++i) state.enqueue(state.add(i % 2, int64_t{1'000'000} * i));
    state.run(0, state.add(0, 0, 7), 1);
    state.workers[2] = {.task = state.add(1, 0, 2)};
    const auto policy = make_policy(name, 2, state.models);
    CHECK(policy->name() == name);
    for (int64_t now_ns = 0; now_ns < 60'000'000; now_ns += 500'000) {
      for (int32_t worker = 0; worker < 3; ++worker) {
        const EventKind kind = worker == 1 ? EventKind::kWorkerIdle : EventKind::kBlockEnd;
        const View view = state.view();
        const int64_t before = allocations;
        const Decision decision = policy->decide(view, {kind, worker}, now_ns);
        CHECK(allocations == before);
        CHECK(!reason_text(decision.reason).empty());
        if (kind == EventKind::kBlockEnd) CHECK(decision.task == state.workers[worker].task);
        if (decision.task == kNone || decision.action != Action::kRun) continue;
        const Task& task = state.tasks[decision.task];
        CHECK(decision.layer_begin == task.next_layer && decision.layer_end > task.next_layer);
        CHECK(decision.layer_end <= state.models[task.model].layers());
        CHECK(decision.cores >= 1 && decision.cores <= 2);
        if (decision.revoke_worker != kNone) CHECK(decision.revoke_keep >= 1);
      }
    }
  }
}

}  // namespace

int main() {
  test_deadline_begins();
  test_deadline_refuses();
  test_what_most_of_the_machine_would_save_is_late();
  test_few_cores_are_always_worth_it();
  test_late_runs_after_the_others();
  test_late_ones_run_in_their_order();
  test_late_gives_its_cores_up();
  test_cores_that_the_queue_can_not_use();
  test_cores_are_kept_for_one_that_lacks_them();
  test_the_late_make_nobody_save_cores();
  test_the_late_leave_the_margin();
  test_the_untargeted_free_their_worker();
  test_late_returns();
  test_late_makes_room_for_the_queue();
  test_deadline_waits();
  test_deadline_waiter_is_asked();
  test_deadline_revokes();
  test_deadline_without_target();
  test_deadline_options();
  test_leads_order();
  test_veltair_deadline();
  test_veltair_deadline_takes_cores_that_cost_nothing();
  test_veltair_deadline_uses_what_is_idle();
  test_deadlines_leave_room_for_the_reply();
  test_prema();
  test_prema_preempts();
  test_decisions_are_valid();
  return 0;
}
