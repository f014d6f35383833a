// The pure policies: what they decide, and that deciding allocates nothing.
#include <stdexcept>
#include <vector>

#include "check.h"
#include "count_allocations.h"
#include "native/sched/admission.h"
#include "native/sched/batching.h"
#include "native/sched/placement.h"
#include "native/sched/policy.h"

namespace {

using namespace veltair::sched;

// Two layers; `model_ns` for 1, 2, 4 cores.
ModelProfile profile(int64_t qos_ns, std::vector<int64_t> model_ns) {
  ModelProfile made;
  made.qos_ns = qos_ns;
  made.cores = {1, 2, 4};
  made.model_ns = std::move(model_ns);
  made.variants = {1, 2};
  made.layer_ns = {10, 6, 4, 90, 50, 30, 95, 52, 31};
  made.finish();
  return made;
}

void test_profile() {
  const ModelProfile made = profile(100, {100, 56, 34});
  CHECK(made.layers() == 2);
  CHECK(made.layer_time(0, 0, 2, 0) == 4);
  CHECK(made.layer_time(1, 0, 1, 0) == 50);
  CHECK(made.layer_time(1, 1, 2, 0) == 31);
  ModelProfile wrong = made;
  wrong.layer_ns.pop_back();
  CHECK_THROWS(wrong.finish(), std::invalid_argument);
  wrong = made;
  wrong.cores = {2, 4};
  CHECK_THROWS(wrong.finish(), std::invalid_argument);
}

void test_needed_cores() {
  NeededCores needed = needed_cores(profile(100, {100, 56, 34}), 4);
  CHECK(needed.cores == 1 && needed.expected_ns == 100 && needed.need == CoreNeed::kMeetsTarget);
  needed = needed_cores(profile(99, {100, 56, 34}), 4);
  CHECK(needed.cores == 2 && needed.expected_ns == 56 && needed.need == CoreNeed::kMeetsTarget);
  needed = needed_cores(profile(33, {100, 56, 34}), 8);
  CHECK(needed.cores == 8 && needed.expected_ns == 34 && needed.need == CoreNeed::kOutOfReach);
  // Four cores would do, but there are three.
  needed = needed_cores(profile(40, {100, 56, 34}), 3);
  CHECK(needed.cores == 3 && needed.expected_ns == 56 && needed.need == CoreNeed::kOutOfReach);
  needed = needed_cores(profile(0, {100, 56, 57}), 4);
  CHECK(needed.cores == 2 && needed.expected_ns == 56 && needed.need == CoreNeed::kNoTarget);
}

void test_model_policy() {
  const std::vector<ModelProfile> models = {profile(100, {100, 56, 34}),
                                            profile(40, {100, 56, 34})};
  const auto policy = make_policy("model", 4, models);
  CHECK(policy->name() == "model");
  CHECK_THROWS(make_policy("modle", 4, models), std::invalid_argument);

  std::vector<Task> tasks(3);
  tasks[0] = {.model = 0, .order = 5};
  tasks[1] = {.model = 1, .next = 0, .order = 4};
  tasks[2] = {.model = 0, .next_layer = 1};
  std::vector<Running> workers(2);
  workers[1].task = 2;
  IdSet busy(2);
  busy.insert(1);
  View view{.models = models,
            .tasks = {tasks.data(), sizeof(Task), 3},
            .queue_head = 1,
            .queue_length = 2,
            .workers = {workers.data(), sizeof(Running), 2},
            .busy = &busy,
            .total_cores = 4,
            .free_cores = 1};

  const int64_t before = allocations;
  const Decision first = policy->decide(view, {EventKind::kWorkerIdle, 0}, 0);
  const Decision next = policy->decide(view, {EventKind::kBlockEnd, 1}, 0);
  view.queue_head = kNone;
  const Decision none = policy->decide(view, {EventKind::kWorkerIdle, 0}, 0);
  CHECK(allocations == before);

  CHECK(first.task == 1 && first.layer_begin == 0 && first.layer_end == 2 && first.cores == 4);
  CHECK(first.reason == Reason::kMeetsTarget && first.level == 0);
  CHECK(next.task == 2 && next.layer_begin == 1 && next.layer_end == 2 && next.cores == 1);
  CHECK(none.task == kNone && none.reason == Reason::kQueueEmpty);
}

void test_admission() {
  // One worker, two cores, a task of 100 ahead: the next one starts at 100 exactly.
  Backlog backlog{.cores = 2, .workers = 1};
  backlog.add(100, 1);
  CHECK(admit(backlog, 50, 1150, 1000).admitted);
  CHECK(!admit(backlog, 50, 1149, 1000).admitted);
  CHECK(admit(backlog, 50, 1149, 1000).expected_end_ns == 1150);
  CHECK(admit(backlog, 50, 0, 1000).admitted);  // no deadline
  // A second worker has a core of its own: nothing to wait for.
  backlog.workers = 2;
  CHECK(admit(backlog, 50, 1050, 1000).admitted);
  // Two more tasks: 300 of work on two workers, at most 100 of it still running elsewhere.
  backlog.add(100, 1);
  backlog.add(100, 1);
  CHECK(admit(backlog, 50, 1150, 1000).admitted);
  CHECK(!admit(backlog, 50, 1149, 1000).admitted);
  // The same on all cores each: they run one after the other, whatever the workers.
  Backlog wide{.cores = 2, .workers = 2};
  for (int i = 0; i < 3; ++i) wide.add(100, 2);
  CHECK(admit(wide, 50, 0, 1000).expected_end_ns == 1250);
}

void test_batching_and_placement() {
  const auto batching = make_batching("none");
  CHECK(batching->candidate({.waiting = 3}, 0).queries == 1);
  CHECK_THROWS(make_batching("all"), std::invalid_argument);
  const auto placement = make_placement("local");
  const Executor local{};
  CHECK(placement->decide({.executors = {&local, 1}}, {}, 0) == 0);
  CHECK(placement->decide({}, {}, 0) == kNone);
  CHECK_THROWS(make_placement("remote"), std::invalid_argument);
}

}  // namespace

int main() {
  test_profile();
  test_needed_cores();
  test_model_policy();
  test_admission();
  test_batching_and_placement();
}
