// The block policies: the paper's worked examples, and each reason that a decision can have.
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "native/sched/partition_policy.h"
#include "native/sched/plan.h"
#include "native/sched/policy.h"
#include "native/sched/veltair_policy.h"

namespace {

using namespace veltair::sched;

// Layers of the given work (ns on one core) with a perfect speed-up, on 1 to `cores` cores.
ModelProfile perfect(int64_t qos_ns, const std::vector<int64_t>& work_ns, int32_t cores) {
  ModelProfile made;
  made.qos_ns = qos_ns;
  for (int32_t c = 1; c <= cores; ++c) {
    made.cores.push_back(c);
    made.model_ns.push_back(0);
    for (int64_t work : work_ns) made.model_ns.back() += work / c;
  }
  made.variants.assign(work_ns.size(), 1);
  made.layer_flops.assign(work_ns.size(), 1);  // equal shares, so that demands differ
  for (int64_t work : work_ns) {
    for (int32_t c = 1; c <= cores; ++c) made.layer_ns.push_back(work / c);
  }
  made.finish();
  return made;
}

// A state with one task of each model that is amid its work, and one that waits.
struct State {
  std::vector<ModelProfile> models;
  std::vector<Task> tasks;
  std::vector<Running> workers = {};
  mutable IdSet busy{64};
  int32_t queue_head = kNone;
  int32_t total_cores = 64;
  int32_t free_cores = 64;
  int32_t level = 0;

  View view() const {
    const Table table(workers.data(), sizeof(Running), static_cast<int32_t>(workers.size()));
    find_busy(table, busy);
    return {.models = models,
            .tasks = {tasks.data(), sizeof(Task), static_cast<int32_t>(tasks.size())},
            .queue_head = queue_head,
            .queue_length = queue_head == kNone ? 0 : 1,
            .workers = table,
            .busy = &busy,
            .total_cores = total_cores,
            .free_cores = free_cores,
            .level = level};
  }
};

// Demands 10, 40, 20, 10, 30, 10 (shares of 100 ns each); the whole needs 20.
ModelProfile uneven() { return perfect(600, {1000, 4000, 2000, 1000, 3000, 1000}, 64); }

void test_plan() {
  const ModelPlan plan(uneven(), 64);
  CHECK(plan.share_ns(0, 6) == 600 && plan.share_ns(1, 3) == 200);
  CHECK(plan.demand(0, 0) == 10 && plan.demand(1, 0) == 40 && plan.demand(4, 0) == 30);
  CHECK(plan.average_cores(0) == 20);
  CHECK(plan.time_ns(1, 3, 10, 0) == 600);
  CHECK(plan.cores_for(1, 3, 200, 0) == 30);
  // On a smaller machine a layer out of reach asks for all cores.
  const ModelPlan small(uneven(), 32);
  CHECK(small.demand(1, 0) == 32);
  CHECK(!small.reaches(1, 2, 100, 0) && small.reaches(0, 1, 100, 0));
  CHECK(plan.cut(0, 6, 10, 0, 650) == 2);
  CHECK(plan.cut(0, 6, 10, 0, 1) == 1);  // never empty
  CHECK(plan.cut(0, 6, 10, 0, 1'000'000) == 6);
  CHECK(plan.cut(0, 6, 10, 0, 1200) == 6 && plan.cut(0, 6, 10, 0, 1199) == 5);
}

void test_plan_between_counts() {
  ModelProfile profile;
  profile.qos_ns = 0;
  profile.cores = {8, 16};
  profile.model_ns = {1600, 1000};
  profile.variants = {1};
  profile.layer_ns = {800, 500};  // half of the whole run's: scaled to it
  profile.finish();
  const ModelPlan plan(profile, 32);
  CHECK(plan.time_ns(0, 1, 8, 0) == 1600);
  CHECK(plan.time_ns(0, 1, 12, 0) == 1300);
  CHECK(plan.time_ns(0, 1, 4, 0) == 3200);   // perfect speed-up below
  CHECK(plan.time_ns(0, 1, 32, 0) == 1000);  // none above
  CHECK(!plan.has_target() && plan.target_ns() == 1000);
  // A machine that is smaller than anything measured has one count: all.
  const ModelPlan tiny(profile, 2);
  CHECK(tiny.average_cores(0) == 2 && tiny.time_ns(0, 1, 2, 0) == 6400);
  CHECK(resampled(profile, {4, 12}).model_ns == (std::vector<int64_t>{3200, 1300}));
}

// One layer whose kernel divides well by 4 and by 8: time of cores 100, 104, 120, 100, 125, 126,
// 126, 104.
void test_cheapest_cores() {
  ModelProfile profile;
  profile.qos_ns = 1000;
  profile.cores = {1, 2, 3, 4, 5, 6, 7, 8};
  profile.model_ns = {100, 52, 40, 25, 25, 21, 18, 13};
  profile.variants = {1};
  profile.layer_ns = profile.model_ns;
  profile.finish();
  const ModelPlan plan(profile, 8);
  const auto cheapest = [&](int32_t wanted, int64_t longest_ns, int32_t limit) {
    return plan.cheapest_cores(0, 1, wanted, longest_ns, limit, 0);
  };
  CHECK(cheapest(3, 40, 8) == 4);  // one more is faster and takes less together
  CHECK(cheapest(3, 40, 3) == 3);  // there is no fourth
  CHECK(cheapest(6, 21, 8) == 8);
  CHECK(cheapest(6, 21, 7) == 7);   // for as much time of cores, and sooner
  CHECK(cheapest(6, 25, 8) == 4);   // as fast as five, and a fifth less
  CHECK(cheapest(2, 100, 2) == 2);  // one core would take less, but not 5 % less
  CHECK(cheapest(3, 100, 3) == 1);  // a sixth less
  CHECK(cheapest(5, 13, 4) == 5);   // more than there are: the caller's to cut
}

void test_latency_between_levels() {
  ModelProfile profile;
  profile.cores = {1, 2};
  profile.levels = 3;
  profile.slowdowns = {0, 0.5, 1.5};
  profile.model_ns = {100, 120, 200, 60, 80, 140};
  profile.variants = {2};
  profile.layer_ns = {100, 120, 200, 60, 80, 140, 110, 110, 130, 70, 70, 90};
  profile.finish();
  CHECK(latency_ns(profile, 0, 0, 1, 0) == 100);
  CHECK(latency_ns(profile, 0, 0, 1, 0.5) == 120);
  CHECK(latency_ns(profile, 0, 0, 1, 0.25) == 110);
  CHECK(latency_ns(profile, 0, 0, 2, 1.0) == 110);
  CHECK(latency_ns(profile, 0, 1, 2, 1.25) == 85);
  CHECK(latency_ns(profile, 0, 0, 2, 7.0) == 140);  // above the highest: as there
  CHECK(latency_ns(profile, 0, 0, 9, 0) == 60);     // no more cores than were measured
  const ModelProfile made = resampled(profile, {2}, {0, 1.0, 2.0});
  CHECK(made.levels == 3 && made.slowdowns == (std::vector<double>{0, 1.0, 2.0}));
  CHECK(made.model_ns == (std::vector<int64_t>{60, 110, 140}));
  CHECK(made.layer_ns == (std::vector<int64_t>{60, 110, 140, 70, 80, 90}));
  profile.slowdowns.clear();
  CHECK_THROWS(latency_ns(profile, 0, 0, 1, 0.5),
               std::invalid_argument);  // nobody knows what the levels are
  CHECK_THROWS(latency_ns(profile, 0, 2, 1, 0), std::invalid_argument);
}

void test_versions_by_level() {
  ModelProfile profile;
  profile.qos_ns = 100;
  profile.cores = {1, 2};
  profile.levels = 2;
  profile.model_ns = {100, 400, 50, 200};
  profile.variants = {2};
  // The first variant is the best alone, the second under interference.
  profile.layer_ns = {100, 400, 50, 200, 120, 150, 60, 75};
  profile.finish();
  const ModelPlan plan(profile, 2);
  CHECK(plan.variant(0, 1, 0) == 0 && plan.variant(0, 1, 1) == 1);
  CHECK(plan.time_ns(0, 1, 1, 1) == 150);
  CHECK(plan.demand(0, 0) == 1 && plan.demand(0, 1) == 2);
  CHECK(plan.variant(0, 1, 7) == 1);  // above the highest level: the highest
}

void test_versions_by_cores() {
  ModelProfile profile;
  profile.cores = {1, 4};
  profile.levels = 1;
  profile.model_ns = {100, 60};
  profile.variants = {2};
  // The first variant is the best on one core, the second one on more than two.
  profile.layer_ns = {100, 60, 120, 30};
  profile.finish();
  const ModelPlan plan(profile, 8);
  CHECK(plan.variant(0, 1, 0) == 0 && plan.variant(0, 2, 0) == 0);
  CHECK(plan.variant(0, 3, 0) == 1 && plan.variant(0, 4, 0) == 1 && plan.variant(0, 8, 0) == 1);
  CHECK(plan.time_ns(0, 1, 1, 0) == 100 && plan.time_ns(0, 1, 4, 0) == 30);
}

void test_threshold() {
  // VELTAIR §4.3: 12, 12 and 24 cores on average, of 64.
  CHECK(threshold(64, 48, 12) == 4);
  CHECK(threshold(64, 48, 24) == 8);
  CHECK(threshold(64, 64, 12) == 0);
  CHECK(threshold(64, 80, 12) == 0);  // overload
  CHECK(threshold(64, 12, 12) == 52);
}

void test_forming_blocks() {
  const ModelPlan plan(uneven(), 64);
  // A pivot begins the next block; the first layer may be one itself.
  CHECK(form_blocks(plan, 30, 0) == (std::vector<int32_t>{1, 4, 6}));
  CHECK(form_blocks(plan, 20, 0) == (std::vector<int32_t>{1, 2, 4, 6}));
  CHECK(form_blocks(plan, 41, 0) == (std::vector<int32_t>{6}));
  // However low the limit, no block is empty and no layer is lost.
  CHECK(form_blocks(plan, 0, 0) == (std::vector<int32_t>{1, 2, 3, 4, 5, 6}));
}

void test_fixed_blocks() {
  State state{.models = {uneven()}, .tasks = {{.model = 0}}, .workers = {{}}};
  state.queue_head = 0;
  const auto layer = make_policy("layer", 64, state.models);
  Decision decision = layer->decide(state.view(), {}, 0);
  CHECK(decision.task == 0 && decision.layer_begin == 0 && decision.layer_end == 1);
  CHECK(decision.cores == 10 && decision.reason == Reason::kMeetsShare);
  state.tasks[0].next_layer = 1;
  state.workers[0] = {.task = 0};
  decision = layer->decide(state.view(), {EventKind::kBlockEnd, 0}, 0);
  CHECK(decision.layer_begin == 1 && decision.layer_end == 2 && decision.cores == 40);
  const auto four = make_policy("block-4", 64, state.models);
  CHECK(four->name() == "block-4");
  decision = four->decide(state.view(), {EventKind::kBlockEnd, 0}, 0);
  CHECK(decision.layer_begin == 1 && decision.layer_end == 4);
  state.tasks[0].next_layer = 4;
  decision = four->decide(state.view(), {EventKind::kBlockEnd, 0}, 0);
  CHECK(decision.layer_begin == 4 && decision.layer_end == 6 && decision.cores == 20);
  CHECK(decision.expected_ns == 200);
  const auto small = make_policy("layer", 8, state.models);
  CHECK(small->decide(state.view(), {EventKind::kBlockEnd, 0}, 0).reason ==
        Reason::kShareOutOfReach);
  for (const char* wrong : {"block-0", "block-", "block-x", "block-6x", "block--1", "block-01",
                            "block-99999999999", "blocks-3"}) {
    CHECK_THROWS(make_policy(wrong, 64, state.models), std::invalid_argument);
  }
}

void test_veltair() {
  State state{.models = {uneven()}, .tasks = {{.model = 0}, {.model = 0}, {.model = 0}}};
  state.workers = {{}, {.task = 1}, {.task = 2}};
  state.queue_head = 0;
  const auto policy = make_policy("veltair-as", 64, state.models);
  // Three models of 20: 4 idle cores, a threshold of 1, so pivots from 21: layers 1 and 4.
  Decision decision = policy->decide(state.view(), {EventKind::kWorkerIdle, 0}, 0);
  CHECK(decision.layer_end == 1 && decision.cores == 10 && decision.reason == Reason::kPivot);
  state.tasks[0].next_layer = 1;
  state.workers[0] = {.task = 0};
  state.queue_head = kNone;
  decision = policy->decide(state.view(), {EventKind::kBlockEnd, 0}, 0);
  CHECK(decision.layer_begin == 1 && decision.layer_end == 4);
  CHECK(decision.cores == 24);  // 7000 ns of work within 300 ns
  // On a machine that the averages fill there is no threshold, and one block.
  const auto small = make_policy("veltair-as", 60, state.models);
  CHECK(small->decide(state.view(), {EventKind::kBlockEnd, 0}, 0).layer_end == 6);
  // Alone it is one block: the threshold is 44.
  state.workers[1] = state.workers[2] = {};
  decision = policy->decide(state.view(), {EventKind::kBlockEnd, 0}, 0);
  CHECK(decision.layer_end == 6 && decision.reason == Reason::kNoPivot);
  // A threshold that is fixed holds however many run.
  const auto fixed = make_policy("veltair-as", 64, state.models, {.threshold_cores = 1});
  CHECK(fixed->decide(state.view(), {EventKind::kBlockEnd, 0}, 0).layer_end == 4);
  for (const int32_t cores : {-2, 65}) {
    CHECK_THROWS(make_policy("veltair-as", 64, state.models, {.threshold_cores = cores}),
                 std::invalid_argument);
    CHECK_THROWS(make_policy("veltair-deadline", 64, state.models, {.threshold_cores = cores}),
                 std::invalid_argument);
  }
  // Only adaptive compilation: whole models.
  state.workers[1] = {.task = 1};
  state.workers[2] = {.task = 2};
  const auto versions = make_policy("veltair-ac", 64, state.models);
  CHECK(versions->decide(state.view(), {EventKind::kBlockEnd, 0}, 0).layer_end == 6);
}

void test_veltair_levels() {
  ModelProfile profile;
  profile.qos_ns = 100;
  profile.cores = {1, 2};
  profile.levels = 2;
  profile.model_ns = {100, 200, 50, 100};
  profile.variants = {1};
  profile.layer_ns = {100, 200, 50, 100};
  profile.finish();
  State state{.models = {profile}, .tasks = {{.model = 0}}, .workers = {{}}};
  state.queue_head = 0;
  state.level = 9;
  for (const char* name : {"veltair", "veltair-ac"}) {
    const Decision decision = make_policy(name, 2, state.models)->decide(state.view(), {}, 0);
    CHECK(decision.level == 1 && decision.cores == 2);
  }
  const Decision alone = make_policy("veltair-as", 2, state.models)->decide(state.view(), {}, 0);
  CHECK(alone.level == 0 && alone.cores == 1);
}

void test_partition() {
  State state{.models = {uneven()}, .tasks = {{.model = 0}}, .workers = {{}}};
  state.queue_head = 0;
  // 20 cores are needed: three instances, widened to 21.
  const PartitionPolicy chosen(64, state.models, {});
  CHECK(chosen.instance_cores() == 21);
  state.free_cores = 21;
  Decision decision = chosen.decide(state.view(), {}, 0);
  CHECK(decision.task == 0 && decision.cores == 21 && decision.layer_end == 6);
  state.free_cores = 20;
  decision = chosen.decide(state.view(), {}, 0);
  CHECK(decision.task == kNone && decision.reason == Reason::kPartitionsBusy);
  const auto given = make_policy("partition", 64, state.models, {.partition_cores = 16});
  CHECK(given->decide(state.view(), {}, 0).cores == 16);
  CHECK_THROWS(make_policy("partition", 64, state.models, {.partition_cores = 65}),
               std::invalid_argument);
}

}  // namespace

int main() {
  test_plan();
  test_plan_between_counts();
  test_cheapest_cores();
  test_latency_between_levels();
  test_versions_by_level();
  test_versions_by_cores();
  test_threshold();
  test_forming_blocks();
  test_fixed_blocks();
  test_veltair();
  test_veltair_levels();
  test_partition();
  return 0;
}
