// The simulated machine: times worked out by hand, and what a policy may not do to it.
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "native/sim/machine_pace.h"
#include "native/sim/simulator.h"

namespace {

using namespace veltair::sched;
using veltair::sim::MachineOptions, veltair::sim::MachinePace, veltair::sim::PaceOptions,
    veltair::sim::Outcome, veltair::sim::Simulator;

// `layers` equal layers of `layer_ns` on one core, with a perfect speed-up up to 4.
ModelProfile even(int64_t qos_ns, int32_t layers, int64_t layer_ns) {
  ModelProfile made;
  made.qos_ns = qos_ns;
  made.cores = {1, 2, 4};
  made.model_ns = {layers * layer_ns, layers * layer_ns / 2, layers * layer_ns / 4};
  made.variants.assign(layers, 1);
  for (int32_t l = 0; l < layers; ++l) {
    made.layer_ns.insert(made.layer_ns.end(), {layer_ns, layer_ns / 2, layer_ns / 4});
  }
  made.finish();
  return made;
}

MachineOptions machine(int32_t cores) {
  return {.cores = cores, .workers = 4, .conflict_ns = 100, .trace = true};
}

// Two tasks of 4 x 1000 core-ns that want 2 of 3 cores each.
void test_conflict() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {even(2000, 4, 1000)};
  const auto policy = make_policy("model", 3, models);
  Simulator simulator(machine(3), models, *policy, alone);
  const std::vector<int64_t> arrivals = {0, 500};
  simulator.run(arrivals, std::vector<int32_t>{0, 0});
  // The first takes 2000 ns on 2 cores. The second begins on 1 core, and at 2000 has 2500 of its
  // 4000 ns left: 1250 on two cores, and the cost of 100.
  CHECK(simulator.queries().end_ns == (std::vector<int64_t>{2000, 3350}));
  CHECK(simulator.queries().start_ns == (std::vector<int64_t>{0, 500}));
  const auto& totals = simulator.models()[0];
  CHECK(totals.blocks == 2 && totals.conflicts == 1 && totals.expansions == 1);
  CHECK(totals.core_ns == 2 * 2000 + 1 * 1500 + 2 * 1350 && totals.busy_ns == 2000 + 2850);
  CHECK(simulator.machine().max_cores == 3 && simulator.machine().max_cores_wanted == 4);
  CHECK(simulator.machine().last_ns == 3350 && simulator.segments().size() == 3);
}

void test_a_slow_machine() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {even(2000, 4, 1000)};
  const auto policy = make_policy("model", 3, models);
  MachineOptions slow = machine(3);
  slow.pace.pace = 2;
  Simulator simulator(slow, models, *policy, alone);
  const std::vector<int64_t> arrivals = {0, 1000};
  simulator.run(arrivals, std::vector<int32_t>{0, 0});
  // As in test_conflict, and each part of it, the cost too, takes twice as long.
  CHECK(simulator.queries().end_ns == (std::vector<int64_t>{4000, 6700}));
  CHECK(simulator.models()[0].busy_ns == 9700);
}

void test_machine_pace() {
  MachinePace even_pace({.pace = 2});
  CHECK(even_pace.work_ns(10, 110) == 50 && even_pace.end_ns(10, 50) == 110);
  CHECK_THROWS(MachinePace({.pace = 0}), std::invalid_argument);
  CHECK_THROWS(MachinePace({.spread = -1}), std::invalid_argument);
  CHECK_THROWS(MachinePace({.memory_ns = 0}), std::invalid_argument);

  constexpr int64_t kMs = 1'000'000;
  const PaceOptions options{.pace = 1.5, .spread = 0.3, .memory_ns = 10 * kMs, .seed = 7};
  MachinePace pace(options);
  double sum = 0;
  double squares = 0;
  constexpr int kMoments = 4000;
  for (int i = 0; i < kMoments; ++i) {
    const int64_t from_ns = (10 * kMs + 17) * i;
    const int64_t end_ns = pace.end_ns(from_ns, kMs);
    CHECK(std::abs(pace.work_ns(from_ns, end_ns) - kMs) <= 1);  // one is the other's inverse
    const double logarithm = std::log(static_cast<double>(end_ns - from_ns) / kMs);
    sum += logarithm;
    squares += logarithm * logarithm;
    // Whoever asks at other times, or another way round, hears the same.
    if (i % 500 == 3) CHECK(MachinePace(options).end_ns(from_ns, kMs) == end_ns);
  }
  const double mean = sum / kMoments;
  CHECK(std::abs(mean - std::log(1.5)) < 0.03);
  CHECK(std::abs(std::sqrt(squares / kMoments - mean * mean) - 0.3) < 0.03);
  const int64_t before_ns = pace.end_ns(5 * kMs, 3 * kMs);
  pace.end_ns(int64_t{1} << 60, kMs);  // no walk through all that lies between
  CHECK(pace.end_ns(5 * kMs, 3 * kMs) == before_ns);
  MachinePace other({.pace = 1.5, .spread = 0.3, .memory_ns = 10 * kMs, .seed = 8});
  CHECK(other.end_ns(5 * kMs, 3 * kMs) != before_ns);
}

void test_a_pace_that_is_known() {
  MachinePace pace({.pace = 2, .known = {1, 2, 4}, .known_step_ns = 10});
  // 5 of work in the first step, 2.5 in the second, and 1.25 in each that follows.
  CHECK(pace.end_ns(0, 5) == 10 && pace.end_ns(5, 5) == 20 && pace.end_ns(10, 5) == 40);
  CHECK(pace.work_ns(0, 1020) == 133 && pace.end_ns(1'000'000, 100) == 1'000'800);
  CHECK_THROWS(MachinePace({.known = {1, 0}}), std::invalid_argument);
  CHECK_THROWS(MachinePace({.known = {1, std::numeric_limits<double>::infinity()}}),
               std::invalid_argument);
  CHECK_THROWS(MachinePace({.known_step_ns = 0}), std::invalid_argument);

  constexpr int64_t kMs = 1'000'000;
  PaceOptions uneven{.spread = 0.3, .memory_ns = 100 * kMs, .seed = 7};
  MachinePace drawn(uneven);
  uneven.known = {1, 3};  // the step is that of what is drawn
  uneven.known_step_ns = 50 * kMs;
  MachinePace both(uneven);
  CHECK(both.work_ns(0, 50 * kMs) == drawn.work_ns(0, 50 * kMs));
  CHECK(std::abs(3 * both.work_ns(50 * kMs, 90 * kMs) - drawn.work_ns(50 * kMs, 90 * kMs)) <= 3);
}

// What a look throws ends the run where it is.
void test_a_look_ends_the_run() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {even(2000, 4, 1000)};
  const auto policy = make_policy("model", 3, models);
  Simulator simulator(machine(3), models, *policy, alone);
  const std::vector<int64_t> arrivals(veltair::sim::kLookEvery * 3, 0);
  int looks = 0;
  const auto look = [&looks] {
    if (++looks == 2) throw std::runtime_error("enough");
  };
  CHECK_THROWS(simulator.run(arrivals, std::vector<int32_t>(arrivals.size(), 0), look),
               std::runtime_error);
  CHECK(looks == 2 && simulator.machine().events == 2 * veltair::sim::kLookEvery);
}

void test_expansion_that_would_not_help() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {even(2000, 4, 1000)};
  const auto policy = make_policy("model", 3, models);
  MachineOptions options = machine(3);
  options.conflict_ns = 1250;  // exactly what the second core would save
  options.expand_if_shorter = true;
  Simulator simulator(options, models, *policy, alone);
  simulator.run(std::vector<int64_t>{0, 500}, std::vector<int32_t>{0, 0});
  CHECK(simulator.queries().end_ns[1] == 4500 && simulator.models()[0].expansions == 0);
}

void test_queue_and_ties() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {even(4000, 4, 1000)};
  const auto policy = make_policy("layer", 1, models);
  MachineOptions options = machine(1);
  options.max_queue = 1;
  options.decision_ns = 10;
  Simulator simulator(options, models, *policy, alone);
  // The third finds the queue full; the fourth comes at the very end of the first: before it.
  simulator.run(std::vector<int64_t>{0, 1, 2, 4040}, std::vector<int32_t>{0, 0, 0, 0});
  CHECK(simulator.queries().end_ns == (std::vector<int64_t>{4040, 8080, 2, 4040}));
  const auto full = static_cast<uint8_t>(Outcome::kQueueFull);
  CHECK(simulator.queries().outcome == (std::vector<uint8_t>{0, 0, full, full}));
  CHECK(simulator.models()[0].blocks == 8);
}

void test_deadline_waits_and_refuses() {
  const ConstantInterference alone(0);
  // A long task (16 layers, 16 us on one core) and a short, urgent one.
  const std::vector<ModelProfile> models = {even(40'000, 16, 1000), even(3000, 2, 1000)};
  const auto policy =
      make_policy("deadline", 1, models, {.max_block_ns = 2000, .refuse_late = true});
  const std::vector<int64_t> arrivals = {0, 1500, 1600};
  const std::vector<int32_t> asked = {0, 1, 1};
  Simulator simulator(machine(1), models, *policy, alone);
  simulator.run(arrivals, asked);
  // At 2000 the long one waits for the short one, until 4000. The third could not be in time then.
  CHECK(simulator.queries().end_ns == (std::vector<int64_t>{18'000, 4000, 4000}));
  const auto refused = static_cast<uint8_t>(Outcome::kRefused);
  CHECK(simulator.queries().outcome == (std::vector<uint8_t>{0, 0, refused}));
  CHECK(simulator.queries().start_ns[2] == -1);
  // Where it isn't refused it runs last.
  const auto serving = make_policy("deadline", 1, models, {.max_block_ns = 2000});
  Simulator patient(machine(1), models, *serving, alone);
  patient.run(arrivals, asked);
  CHECK(patient.queries().end_ns == (std::vector<int64_t>{18'000, 4000, 20'000}));
  CHECK(patient.queries().outcome == (std::vector<uint8_t>{0, 0, 0}));
}

void test_late_returns() {
  const ConstantInterference alone(0);
  // Model 0 can't be in time even alone: 16 us, where 3 are its target.
  const std::vector<ModelProfile> models = {even(3000, 16, 1000), even(3000, 2, 1000)};
  const auto policy = make_policy("deadline", 1, models, {.max_block_ns = 2000});
  MachineOptions options = machine(1);
  options.workers = 1;
  Simulator simulator(options, models, *policy, alone);
  simulator.run(std::vector<int64_t>{0, 1000, 1500}, std::vector<int32_t>{0, 1, 0});
  // At 2000 the first goes back for the second, and begins again before the third, which is
  // younger.
  CHECK(simulator.queries().end_ns == (std::vector<int64_t>{20'000, 4000, 36'000}));
  CHECK(simulator.machine().returns == 1);
  CHECK(simulator.queries().start_ns == (std::vector<int64_t>{4000, 2000, 20'000}));
  CHECK(simulator.queries().outcome == (std::vector<uint8_t>{0, 0, 0}));
}

void test_deadline_revokes() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {even(100'000, 16, 4000), even(9000, 2, 4000)};
  const auto policy = make_policy("deadline", 4, models, {.max_block_ns = 8000});
  Simulator simulator(machine(4), models, *policy, alone);
  simulator.run(std::vector<int64_t>{0, 100}, std::vector<int32_t>{0, 1});
  CHECK(simulator.machine().revocations == 1);
  CHECK(simulator.queries().start_ns[1] == 100);  // at once, amid the other's block
  CHECK(simulator.queries().end_ns[1] <= 9100);
}

void test_versions_and_levels() {
  ModelProfile profile;
  profile.qos_ns = 1000;
  profile.cores = {1};
  profile.levels = 2;
  profile.model_ns = {100, 400};
  profile.variants = {2};
  profile.layer_ns = {100, 400, 150, 200};
  profile.finish();
  const std::vector<ModelProfile> models = {profile};
  const ConstantInterference high(1);
  int64_t ends[2];
  int i = 0;
  for (const char* name : {"veltair-as", "veltair-ac"}) {
    const auto policy = make_policy(name, 1, models);
    Simulator simulator(machine(1), models, *policy, high);
    simulator.run(std::vector<int64_t>{0}, std::vector<int32_t>{0});
    ends[i++] = simulator.queries().end_ns[0];
  }
  CHECK(ends[0] == 400);  // the version for an empty machine, under interference
  CHECK(ends[1] == 200);  // the version for the level
}

// One layer on one core that only reads: 8 bytes a ns, of which memory gives 10.
ModelProfile reading() {
  ModelProfile made;
  made.qos_ns = 10'000;
  made.cores = {1};
  made.levels = 3;
  made.slowdowns = {0, 0.5, 1.5};  // the last: half of the bandwidth
  made.model_ns = {1000, 1000, 2000};
  made.variants = {2};
  made.layer_ns = {1000, 1000, 2000, 1500, 1500, 1500};
  made.layer_bytes = {8000, 8000, 8000, 0, 0, 0};
  made.finish();
  return made;
}

MachineOptions sharing() {
  MachineOptions options = machine(2);
  options.memory = {.gbps = 10, .pushed = 0.5, .highest = 1};
  return options;
}

void test_levels_of_shared_memory() {
  const veltair::sim::SharedMemory memory = sharing().memory;
  CHECK(memory.slowdown(0, 0) == 0 && memory.slowdown(1, 10) == 0.5);
  CHECK(memory.slowdown(0.5, 10) == 0.25);  // half of the cores
  CHECK(memory.slowdown(1, 20) == 1.5);     // twice what memory gives
  CHECK(memory.told_of(1.5, 7) == 1'500'000);
  veltair::sim::SharedMemory blind = memory;
  blind.told = false;
  CHECK(blind.told_of(1.5, 7) == 0);
  veltair::sim::SharedMemory blurred = memory;
  blurred.error = 0.1;
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 10'000;
  for (int i = 0; i < kDraws; ++i) {
    const double off = blurred.told_of(1.5, i) / 1e6 - 1.5;
    sum += off;
    squares += off * off;
  }
  CHECK(std::abs(sum / kDraws) < 0.005);
  CHECK(std::abs(std::sqrt(squares / kDraws) - 0.1) < 0.005);
  CHECK(blurred.told_of(0, 0) >= 0 && blurred.told_of(0, 1) >= 0);
}

void test_blocks_share_memory() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {reading()};
  const auto policy = make_policy("model", 2, models);
  Simulator simulator(sharing(), models, *policy, alone);
  simulator.run(std::vector<int64_t>{0, 500}, std::vector<int32_t>{0, 0});
  // From 500 the two want 16 of 10, so each takes 1.6 times as long: the first has 500 left, which
  // take 800. The second has then run for 800 of 1600; its other half takes 500 again.
  CHECK(simulator.queries().end_ns == (std::vector<int64_t>{1300, 1800}));
  CHECK(simulator.models()[0].blocks == 2);
}

void test_versions_for_what_is_told() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {reading()};
  const auto policy = make_policy("veltair-ac", 2, models);
  MachineOptions options = sharing();
  options.memory.gbps = 4;
  for (const bool told : {true, false}) {
    options.memory.told = told;
    Simulator simulator(options, models, *policy, alone);
    simulator.run(std::vector<int64_t>{0, 500}, std::vector<int32_t>{0, 0});
    // Alone the first takes the version that reads, and twice its time. Beside it the second takes
    // the one that doesn't, if it is told; else it reads too, at the highest level's time.
    const int64_t second_ns = simulator.queries().end_ns[1];
    CHECK(second_ns == (told ? 2000 : 2500));
  }
}

void test_bad_input() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {even(2000, 4, 1000)};
  const auto policy = make_policy("model", 3, models);
  MachineOptions none = machine(3);
  none.workers = 0;
  CHECK_THROWS(Simulator(none, models, *policy, alone), std::invalid_argument);
  CHECK_THROWS(Simulator(sharing(), models, *policy, alone), std::invalid_argument);
  CHECK_THROWS(Simulator(machine(3), {}, *policy, alone), std::invalid_argument);
  Simulator simulator(machine(3), models, *policy, alone);
  const std::vector<int32_t> two = {0, 0};
  CHECK_THROWS(simulator.run(std::vector<int64_t>{2, 1}, two), std::invalid_argument);
  CHECK_THROWS(simulator.run(std::vector<int64_t>{-1, 1}, two), std::invalid_argument);
  CHECK_THROWS(simulator.run(std::vector<int64_t>{1}, two), std::invalid_argument);
  CHECK_THROWS(simulator.run(std::vector<int64_t>{1, 2}, std::vector<int32_t>{0, 1}),
               std::invalid_argument);
}

// Breaks one rule each.
class BadPolicy final : public Policy {
 public:
  explicit BadPolicy(int kind) : kind_(kind) {}
  std::string_view name() const override { return "bad"; }
  Decision decide(const View& view, const Event& event, int64_t) const override {
    const int32_t task = task_of(view, event);
    const int32_t next = view.tasks[task].next_layer;
    if (kind_ == 0) return {.task = task, .layer_begin = next, .layer_end = next, .cores = 1};
    if (kind_ == 1) return {.task = task, .layer_begin = 1, .layer_end = 4, .cores = 1};
    if (kind_ == 2) return {.task = task, .layer_begin = next, .layer_end = 5, .cores = 1};
    if (kind_ == 3) return {.task = task, .action = Action::kRefuse};
    if (kind_ == 4) return {.task = task, .action = Action::kReturn};
    return {.action = Action::kWait};  // for ever
  }

 private:
  const int kind_;
};

void test_bad_policies() {
  const ConstantInterference alone(0);
  const std::vector<ModelProfile> models = {even(2000, 4, 1000)};
  for (int kind = 0; kind < 6; ++kind) {
    const BadPolicy policy(kind);
    Simulator simulator(machine(3), models, policy, alone);
    CHECK_THROWS(simulator.run(std::vector<int64_t>{0}, std::vector<int32_t>{0}), std::logic_error);
  }
}

}  // namespace

int main() {
  test_conflict();
  test_a_slow_machine();
  test_machine_pace();
  test_a_pace_that_is_known();
  test_a_look_ends_the_run();
  test_expansion_that_would_not_help();
  test_queue_and_ties();
  test_deadline_waits_and_refuses();
  test_late_returns();
  test_deadline_revokes();
  test_versions_and_levels();
  test_levels_of_shared_memory();
  test_blocks_share_memory();
  test_versions_for_what_is_told();
  test_bad_input();
  test_bad_policies();
  return 0;
}
