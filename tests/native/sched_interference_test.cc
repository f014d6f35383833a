// The interference level: given, by occupancy, measured; and what policies make of a measured one.
#include <array>
#include <vector>

#include "check.h"
#include "native/sched/block_times.h"
#include "native/sched/interference.h"
#include "native/sched/policy.h"
#include "native/sched/recorded_view.h"

namespace {

using namespace veltair::sched;  // NOLINT: short names for tests

constexpr ExpectedBlock kNothing{.alone_ns = -1, .sensitivity_ns = -1};
constexpr int64_t kMs = 1'000'000;

struct State {
  std::vector<ModelProfile> models;
  std::vector<Task> tasks;
  std::vector<Running> workers;
  mutable IdSet busy{64};
  int32_t queue_head = kNone;
  int32_t level = 0;
  int32_t slowdown = kNone;

  View view() const {
    const Table table(workers.data(), sizeof(Running), static_cast<int32_t>(workers.size()));
    find_busy(table, busy);
    return {.models = models,
            .tasks = {tasks.data(), sizeof(Task), static_cast<int32_t>(tasks.size())},
            .queue_head = queue_head,
            .queue_length = queue_head == kNone ? 0 : 1,
            .workers = table,
            .busy = &busy,
            .total_cores = 64,
            .free_cores = 2,
            .level = level,
            .slowdown = slowdown};
  }
};

// One layer whose versions are faster at one level each.
ModelProfile profile_at(std::vector<double> slowdowns) {
  ModelProfile profile;
  profile.qos_ns = 1'000;
  profile.cores = {1, 2};
  profile.levels = static_cast<int32_t>(slowdowns.size());
  profile.slowdowns = std::move(slowdowns);
  profile.variants = {profile.levels};
  for (int32_t v = 0; v < profile.levels; ++v) {
    for (int32_t c = 1; c <= 2; ++c) {
      for (int32_t l = 0; l < profile.levels; ++l) profile.layer_ns.push_back(l == v ? 100 : 200);
    }
  }
  for (int32_t i = 0; i < 2 * profile.levels; ++i) profile.model_ns.push_back(200);
  profile.finish();
  return profile;
}

void test_soon_to_finish() {
  Running running{.task = 0, .cores_wanted = 10, .cores_held = 10};
  running.block_started_ns = 1000;
  running.block_expected_ns = 100;
  CHECK(!soon_to_finish(running, 1089));
  CHECK(soon_to_finish(running, 1090));  // a tenth is left
  running.cores_held = 5;                // takes twice as long
  CHECK(!soon_to_finish(running, 1179));
  CHECK(soon_to_finish(running, 1180));
  running.block_expected_ns = 0;
  CHECK(!soon_to_finish(running, 1'000'000));
}

// Worker 1 holds 32 cores for 100 ns, worker 2 holds 16 for 1000.
State busy() {
  State state{
      .models = {profile_at({0, 0.5})}, .tasks = {{.model = 0}, {.model = 0}}, .workers = {}};
  state.workers = {{},
                   {.task = 0, .cores_wanted = 32, .cores_held = 32},
                   {.task = 1, .cores_wanted = 16, .cores_held = 16}};
  state.workers[1].block_expected_ns = 100;
  state.workers[2].block_expected_ns = 1000;
  return state;
}

void test_given_and_by_occupancy() {
  const State state = busy();
  CHECK(others_cores(state.view(), 0, 50).held == 48);
  CHECK(others_cores(state.view(), 0, 50).disturbing == 48);
  CHECK(others_cores(state.view(), 0, 95).held == 48);
  CHECK(others_cores(state.view(), 0, 95).disturbing == 16);
  CHECK(others_cores(state.view(), 1, 95).held == 16);  // not by itself
  CHECK(OccupancyInterference(5).level(state.view(), {.worker = 0}, 50).index == 3);
  CHECK(OccupancyInterference(5).level(state.view(), {.worker = 0}, 95).index == 1);
  CHECK(OccupancyInterference(5).level(state.view(), {.worker = 0}, 50).slowdown == kNone);
  const Level given = ConstantInterference(3).level(state.view(), {.worker = 0}, 50);
  CHECK(given.index == 3 && given.slowdown == kNone);
}

void test_measured() {
  MeasuredRecord node;
  std::array<MeasuredRecord, 2> complexes;
  const MeasuredInterference interference(node, {complexes.data(), sizeof(MeasuredRecord), 2}, 1);
  State state = busy();
  const auto ask = [&](int32_t complex, int64_t now_ns) {
    return interference.level(state.view(), {.worker = 0, .complex = complex}, now_ns);
  };
  // Never measured: what is given.
  CHECK(ask(0, 50).slowdown == kNone && ask(0, 50).index == 1);
  // The node's, then the complex's own.
  node.store({.slowdown = 480'000, .confidence = kMillion, .time_ns = 40});
  CHECK(ask(0, 50).slowdown == 480'000 && ask(1, 50).slowdown == 480'000);
  complexes[1].store({.slowdown = 96'000, .confidence = kLeastConfidence, .time_ns = 40});
  CHECK(ask(0, 50).slowdown == 480'000 && ask(1, 50).slowdown == 96'000);
  // Of 48 cores of others 32 are soon to finish.
  CHECK(ask(0, 95).slowdown == 160'000 && ask(1, 95).slowdown == 32'000);
  // Others than we disturb where no other block of ours runs.
  for (Running& running : state.workers) running.task = kNone;
  CHECK(ask(0, 95).slowdown == 480'000);
  // Too little confidence, too old.
  complexes[1].store({.slowdown = 96'000, .confidence = kLeastConfidence - 1, .time_ns = 40});
  CHECK(ask(1, 50).slowdown == 480'000);
  CHECK(ask(1, 40 + kStaleNs).slowdown == 480'000);
  CHECK(ask(1, 41 + kStaleNs).slowdown == kNone && ask(1, 41 + kStaleNs).index == 1);
}

void test_record_keeps_what_is_stored() {
  MeasuredRecord record;
  CHECK(!record.load().is_known(0));
  record.store({.slowdown = 2'000'000'000, .confidence = kMillion, .time_ns = 7 * kMs});
  const Measured found = record.load();
  CHECK(found.slowdown == 2'000'000'000 && found.confidence == kMillion);
  CHECK(found.time_ns == 7 * kMs);
}

// Each model compares what is measured with its own levels.
void test_level_of_each_model() {
  const ModelPlan fine(profile_at({0, 0.2, 0.4}), 2);
  const ModelPlan coarse(profile_at({0, 0.9}), 2);
  CHECK(fine.level(9, 0) == 0 && fine.level(9, 99'999) == 0);
  CHECK(fine.level(9, 100'000) == 0);  // between two: the lower
  CHECK(fine.level(9, 100'001) == 1 && fine.level(9, 301'000) == 2);
  CHECK(fine.level(9, 2'000'000'000) == 2);
  CHECK(coarse.level(9, 301'000) == 0 && coarse.level(9, 460'000) == 1);
  // Not measured: the index that is given.
  CHECK(fine.level(1, kNone) == 1 && coarse.level(9, kNone) == 1);
  ModelProfile unknown = profile_at({0, 0.2});
  unknown.slowdowns.clear();
  CHECK(ModelPlan(unknown, 2).level(1, 0) == 1);
}

void test_policies_take_the_measured_level() {
  State state{.models = {profile_at({0, 0.2, 0.4}), profile_at({0, 0.9})},
              .tasks = {{.model = 0}},
              .workers = {{}}};
  state.queue_head = 0;
  state.slowdown = 380'000;
  for (const char* name : {"veltair", "veltair-ac", "veltair-deadline"}) {
    const auto policy = make_policy(name, 64, state.models);
    state.tasks[0].model = 0;
    CHECK(policy->decide(state.view(), {}, 0).level == 2);
    state.tasks[0].model = 1;
    CHECK(policy->decide(state.view(), {}, 0).level == 0);
  }
  CHECK(make_policy("veltair-as", 64, state.models)->decide(state.view(), {}, 0).level == 0);
}

// A record has what was measured, so that a replay decides the same.
void test_replay() {
  const std::vector<ModelProfile> models = {profile_at({0, 0.2, 0.4})};
  const auto policy = make_policy("veltair-ac", 64, models);
  RecordedView view(models, 64, 1);
  const std::vector<NamedTask> queue = {{.id = 5, .task = {.model = 0}}};
  const auto decided = [&](int32_t slowdown) {
    view.set({.queue = queue,
              .tasks = {},
              .workers = {},
              .queue_length = 1,
              .free_cores = 64,
              .level = 1,
              .slowdown = slowdown});
    return view.decide(*policy, {}, 0).level;
  };
  CHECK(decided(400'000) == 2 && decided(0) == 0 && decided(kNone) == 1);
  CHECK_THROWS(decided(-2), std::invalid_argument);
}

// Two layers on 1 and 2 cores, at a slow-down of 0 and of 0.5; each has two versions, of which the
// second is the better one on two cores.
ModelProfile versions() {
  ModelProfile profile;
  profile.qos_ns = 1'000'000;
  profile.cores = {1, 2};
  profile.levels = 2;
  profile.slowdowns = {0, 0.5};
  profile.variants = {2, 1};
  // [variant][cores][level]
  profile.layer_ns = {1000, 1300, 800, 900, 1100, 1400, 600, 700, 2000, 4000, 1000, 2000};
  profile.model_ns = {3000, 5300, 1800, 2900};
  profile.finish();
  return profile;
}

void test_block_times() {
  const BlockTimes times(versions(), 2);
  const auto whole = times.expected(0, 2, 0, 1, 1);
  CHECK(whole && whole->alone_ns == 3000 && whole->sensitivity_ns == 4600);
  CHECK(whole->at(0) == 3000 && whole->at(500'000) == 5300);
  const auto second = times.expected(1, 2, 1, 2, 2);
  CHECK(second && second->alone_ns == 1000 && second->sensitivity_ns == 2000);
  const auto other = times.expected(0, 1, 0, 2, 2);
  CHECK(other && other->alone_ns == 600 && other->sensitivity_ns == 200);
  // On one core the second version of the first layer isn't known; the second layer has only one.
  CHECK(!times.expected(0, 2, 0, 2, 1));
  CHECK(times.expected(1, 2, 0, 2, 1).value_or(kNothing).alone_ns == 2000);
  // Beyond the highest level.
  CHECK(times.expected(1, 2, 9, 2, 1).value_or(kNothing).alone_ns == 2000);
  CHECK(times.highest_slowdown() == 0.5);
}

void test_block_times_of_what_is_not_sensitive() {
  ModelProfile profile = versions();
  for (size_t i = 1; i < profile.layer_ns.size(); i += 2) profile.layer_ns[i] = 100;  // noise
  for (size_t i = 1; i < profile.model_ns.size(); i += 2) profile.model_ns[i] = 200;
  CHECK(BlockTimes(profile, 2).expected(0, 2, 0, 1, 1).value_or(kNothing).sensitivity_ns == 0);
  profile.slowdowns.clear();
  const BlockTimes unknown(profile, 2);
  CHECK(unknown.highest_slowdown() == 0);
  CHECK(unknown.expected(0, 2, 0, 1, 1).value_or(kNothing).alone_ns == 3000);
  CHECK(unknown.expected(0, 2, 0, 1, 1).value_or(kNothing).sensitivity_ns == 0);
}

}  // namespace

int main() {
  test_soon_to_finish();
  test_given_and_by_occupancy();
  test_measured();
  test_record_keeps_what_is_stored();
  test_level_of_each_model();
  test_policies_take_the_measured_level();
  test_replay();
  test_block_times();
  test_block_times_of_what_is_not_sensitive();
  return 0;
}
