// How long blocks take for what is predicted: followed, and used by the deadline policies.
#include <vector>

#include "check.h"
#include "native/sched/pace.h"
#include "native/sched/policy.h"

namespace {

using namespace veltair::sched;

constexpr int32_t kDouble = 2 * kAsPredicted;

Running block(int64_t expected_ns, int32_t wanted = 1, int32_t held = 1) {
  return {.cores_wanted = wanted,
          .cores_held = held,
          .block_started_ns = 1000,
          .block_expected_ns = expected_ns};
}

int32_t after(int32_t pace, const Running& ended, int64_t took_ns) {
  return next_pace(pace, ended, ended.block_started_ns + took_ns);
}

void test_times() {
  CHECK(at_pace(3000, kAsPredicted) == 3000);
  CHECK(at_pace(3000, kDouble) == 6000 && at_pace(3000, kAsPredicted / 2) == 1500);
  CHECK(per_pace(3000, kDouble) == 1500);
  CHECK(present_pace(kDouble, /*runs=*/true) == kDouble);
  CHECK(present_pace(kDouble, /*runs=*/false) == kAsPredicted);
}

void test_it_follows_blocks() {
  // A 2 ms block is a 25th of what is remembered.
  CHECK(after(kAsPredicted, block(2'000'000), 2'000'000) == kAsPredicted);
  CHECK(after(kAsPredicted, block(2'000'000), 4'000'000) == 1'040'000);
  CHECK(after(kDouble, block(2'000'000), 2'000'000) == kDouble - 40'000);
  int32_t pace = kAsPredicted;
  for (int i = 0; i < 100; ++i) pace = after(pace, block(2'000'000), 3'000'000);
  CHECK(pace > 1'480'000 && pace <= 1'500'000);
  // One long block is all that is remembered.
  CHECK(after(kAsPredicted, block(80'000'000), 120'000'000) == 1'500'000);
}

void test_what_says_nothing() {
  CHECK(after(kDouble, block(0), 1000) == kDouble);
  CHECK(after(kDouble, block(1000, 2, 1), 1000) == kDouble);  // it lost a core
  // A block that was held up for a second counts as four times its time, a sudden one as half.
  CHECK(after(kAsPredicted, block(2'000'000), 1'000'000'000) == 1'120'000);
  CHECK(after(kAsPredicted, block(2'000'000), 1) == 980'000);
}

// Blocks of two layers on one core.
constexpr PolicyOptions kTwoLayers = {.max_block_ns = 2'000'000};

// Ten layers that take 1 ms each on one core and 0.5 on two, to be done in 20 ms.
Decision ask(const char* policy, int32_t pace, int64_t now_ns,
             const PolicyOptions& options = kTwoLayers) {
  ModelProfile model;
  model.qos_ns = 20'000'000;
  model.cores = {1, 2};
  model.model_ns = {10'000'000, 5'000'000};
  model.variants.assign(10, 1);
  for (int layer = 0; layer < 10; ++layer) {
    model.layer_ns.insert(model.layer_ns.end(), {1'000'000, 500'000});
  }
  model.finish();
  const std::vector<ModelProfile> models = {model};
  // Two wait, so that nobody has the machine alone; one worker more is idle.
  const std::vector<Task> tasks = {{.model = 0, .next = 1, .deadline_ns = 20'000'000},
                                   {.model = 0, .deadline_ns = 40'000'000, .order = 1}};
  const std::vector<Running> workers(3);
  const IdSet busy(3);
  const View view{.models = models,
                  .tasks = {tasks.data(), sizeof(Task), 2},
                  .queue_head = 0,
                  .queue_length = 2,
                  .workers = {workers.data(), sizeof(Running), 3},
                  .busy = &busy,
                  .total_cores = 2,
                  .free_cores = 2,
                  .pace = pace};
  return make_policy(policy, 2, models, options)->decide(view, {EventKind::kWorkerIdle, 0}, now_ns);
}

void test_a_slow_machine_takes_more_cores() {
  // 75 % of 20 ms less half of a block, 14.25, are to be used: one core takes 10, at half the pace
  // 20.
  CHECK(ask("deadline", kAsPredicted, 0).cores == 1);
  CHECK(ask("deadline", 1'424'000, 0).cores == 1);
  CHECK(ask("deadline", 1'426'000, 0).cores == 2);
  // What is told of a block stays what its profile says.
  CHECK(ask("deadline", kDouble, 0).expected_ns == 2'000'000);
}

void test_late_sooner() {
  const PolicyOptions refusing = {.max_block_ns = 2'000'000, .refuse_late = true};
  for (const char* policy : {"deadline", "veltair-deadline"}) {
    CHECK(ask(policy, kAsPredicted, 15'000'000, refusing).action == Action::kRun);
    CHECK(ask(policy, kDouble, 10'000'000, refusing).action == Action::kRun);
    CHECK(ask(policy, kDouble, 10'000'001, refusing).action == Action::kRefuse);
    // Where it isn't refused the other, which can be in time, goes first.
    CHECK(ask(policy, kDouble, 10'000'000).task == 0);
    CHECK(ask(policy, kDouble, 10'000'001).task == 1);
  }
}

}  // namespace

int main() {
  test_times();
  test_it_follows_blocks();
  test_what_says_nothing();
  test_a_slow_machine_takes_more_cores();
  test_late_sooner();
}
