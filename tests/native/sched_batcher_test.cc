// The batcher: the paper's worked example, matchmaking, drops, and that deciding allocates nothing.
#include <stdexcept>

#include "check.h"
#include "count_allocations.h"
#include "native/sched/batcher.h"

namespace {

using namespace veltair::sched;

constexpr BatchCost kExample{.alpha_ns = 100, .beta_ns = 500};  // a unit is 100 ns

Batcher make(std::string_view policy, std::vector<BatchCost> models, int32_t devices,
             int32_t queue_limit = 64) {
  const std::vector<Executor> executors(devices, {.kind = ExecutorKind::kDevice});
  return {make_batching(policy), make_placement("first-fit"), models, executors, queue_limit};
}

const Decisions& arrive(Batcher& batcher, int32_t model, int64_t query, int64_t now_ns,
                        int64_t slo_ns = 1200) {
  return batcher.on_arrival(model, query, now_ns, slo_ns == 0 ? 0 : now_ns + slo_ns, now_ns);
}

// Symphony §3.3: three GPUs, l(b) = b + 5, SLO 12, a query every 0.75.
void test_worked_example() {
  Batcher batcher = make("deferred", {kExample}, 3);
  // As queries come, the candidate grows and its moments move forward.
  const int64_t exec[] = {500, 400, 300};
  for (int64_t i = 0; i < 3; ++i) {
    CHECK(arrive(batcher, 0, i + 1, 75 * i).dispatches.empty());
    CHECK(batcher.candidate(0).queries == i + 1);
    CHECK(batcher.candidate(0).exec_ns == exec[i]);
    CHECK(batcher.candidate(0).latest_ns == exec[i] + 100);
    CHECK(batcher.next_timer_ns() == exec[i]);
  }
  // t = 2.25: R4 arrives, frontrun 2, latest 3: the first four go to GPU 0.
  const Decisions& first = arrive(batcher, 0, 4, 225);
  CHECK(first.dispatches.size() == 1);
  CHECK(first.dispatches[0].executor == 0 && first.dispatches[0].size == 4);
  CHECK(first.dispatches[0].expected_ns == 225 + 900);
  CHECK(first.dispatches[0].moment == Moment::kFrontrun);
  CHECK(first.dispatches[0].match == Match::kModelReady);
  CHECK((first.queries == std::vector<int64_t>{1, 2, 3, 4}));
  CHECK(batcher.waiting(0) == 0 && batcher.next_timer_ns() == kNever);
  // The rest "can be reasoned about in a similar way": four more every 3, on the next GPU.
  for (int64_t i = 5; i <= 12; ++i) {
    const Decisions& next = arrive(batcher, 0, i, 75 * (i - 1));
    CHECK(next.dispatches.size() == (i % 4 == 0 ? 1 : 0));
    if (i % 4 == 0) CHECK(next.dispatches[0].executor == i / 4 - 1 && next.dispatches[0].size == 4);
  }
  // R16 arrives at 11.25, just as GPU 0 ends: ready, then matched with it.
  for (int64_t i = 13; i <= 16; ++i) CHECK(arrive(batcher, 0, i, 75 * (i - 1)).dispatches.empty());
  CHECK(batcher.is_ready(0));
  const Decisions& fourth = batcher.on_executor_free(0, 1125);
  CHECK(fourth.dispatches.size() == 1 && fourth.dispatches[0].size == 4);
  CHECK(fourth.dispatches[0].executor == 0);
  CHECK(fourth.dispatches[0].match == Match::kExecutorFree);
}

void test_timer_takes_the_smallest_free_executor() {
  Batcher batcher = make("deferred", {kExample, kExample}, 3);
  arrive(batcher, 0, 1, 0);
  CHECK(batcher.next_timer_ns() == 500);
  CHECK(batcher.on_timer(499).dispatches.empty());
  CHECK(batcher.on_timer(500).dispatches[0].executor == 0);
  arrive(batcher, 1, 2, 510);
  CHECK(batcher.on_timer(1010).dispatches[0].executor == 1);
  batcher.on_executor_free(0, 1100);
  arrive(batcher, 0, 3, 1120);
  CHECK(batcher.on_timer(1620).dispatches[0].executor == 0);
}

void test_free_executor_takes_the_nearest_latest() {
  Batcher batcher = make("deferred", {kExample, kExample, kExample}, 1);
  arrive(batcher, 2, 9, 0);
  CHECK(batcher.on_timer(500).dispatches.size() == 1);  // the only executor, until 1100
  arrive(batcher, 0, 1, 510, 1290);                     // latest 1200
  arrive(batcher, 1, 2, 520, 1180);                     // latest 1100
  arrive(batcher, 2, 3, 530, 1500);                     // exec 1330: not ready
  CHECK(batcher.on_timer(1100).dispatches.empty());
  CHECK(batcher.is_ready(0) && batcher.is_ready(1) && !batcher.is_ready(2));
  const Decisions& decisions = batcher.on_executor_free(0, 1100);
  CHECK(decisions.dispatches.size() == 1 && decisions.dispatches[0].model == 1);
  CHECK(decisions.dispatches[0].match == Match::kExecutorFree);
  // Model 0 can no longer make it after its latest moment; the driver learns at once.
  CHECK(batcher.next_timer_ns() == 1201);
  CHECK(batcher.on_timer(1200).drops.empty());
  const Decisions& late = batcher.on_timer(1201);
  CHECK(late.drops.size() == 1 && late.drops[0].query == 1);
  CHECK(late.drops[0].reason == DropReason::kDeadline);
}

void test_a_batch_shrinks_while_it_waits() {
  Batcher batcher = make("eager", {kExample, kExample}, 1);
  arrive(batcher, 1, 0, 0);
  for (int64_t i = 1; i <= 4; ++i) arrive(batcher, 0, i, i);
  CHECK(batcher.candidate(0).queries == 4 && batcher.candidate(0).latest_ns == 301);
  batcher.on_timer(batcher.next_timer_ns());
  CHECK(batcher.candidate(0).queries == 3 && batcher.candidate(0).latest_ns == 401);
  // The executor comes free at 600, when only the first still fits, and it alone.
  const Decisions& decisions = batcher.on_executor_free(0, 600);
  CHECK(decisions.queries == std::vector<int64_t>{1} && batcher.waiting(0) == 3);
}

// Staggered, one executor reaches batches of 5 within 1200; 80 % of that is 4.
Batcher make_overloaded() {
  const BatchCost cost{.alpha_ns = 100, .beta_ns = 100, .least_percent = 80};
  const BatchCost other{.alpha_ns = 0, .beta_ns = 5'000};
  return make("eager", {cost, other}, 1);
}

void test_overload_gives_up_the_first() {
  Batcher batcher = make_overloaded();
  arrive(batcher, 1, 0, 0, 0);  // the executor has other work
  for (int64_t i = 1; i <= 4; ++i) CHECK(arrive(batcher, 0, i, 200 * i - 190).drops.empty());
  // At 711 the first has time for two beside it; but with it gone only three would be left.
  CHECK(batcher.on_timer(711).drops.empty() && batcher.candidate(0).queries == 3);
  // A fifth comes: without the first the other four are a batch, in time.
  const Decisions& decisions = arrive(batcher, 0, 5, 810);
  CHECK(decisions.drops.size() == 1 && decisions.drops[0].query == 1);
  CHECK(decisions.drops[0].reason == DropReason::kGivenUp);
  CHECK(batcher.candidate(0).queries == 4 && !batcher.candidate(0).is_cut);
}

void test_none_is_given_up_in_vain() {
  Batcher batcher = make_overloaded();
  arrive(batcher, 1, 0, 0, 0);  // the executor has other work
  for (int64_t i = 1; i <= 6; ++i) arrive(batcher, 0, i, 10 * i);
  // The third, behind which a batch of four waits, is as late as the first.
  CHECK(batcher.on_timer(740).drops.empty());
  CHECK(batcher.candidate(0).queries == 3 && batcher.candidate(0).is_cut);
}

void test_order_and_bounds() {
  Batcher batcher = make("eager", {kExample}, 1, 3);
  arrive(batcher, 0, 0, 0);
  arrive(batcher, 0, 1, 1, 0);     // no deadline: last
  arrive(batcher, 0, 2, 2, 3000);  // before it
  arrive(batcher, 0, 3, 3, 2000);  // before both
  const Decisions& full = arrive(batcher, 0, 4, 4);
  CHECK(full.drops.size() == 1 && full.drops[0].query == 4);
  CHECK(full.drops[0].reason == DropReason::kQueueFull);
  CHECK_THROWS(batcher.on_timer(3), std::invalid_argument);
  const Decisions& decisions = batcher.on_executor_free(0, 600);
  CHECK((decisions.queries == std::vector<int64_t>{3, 2, 1}));
  CHECK(decisions.dispatches[0].deadline_ns == 2003);
  CHECK(batcher.on_executor_free(0, 1400).dispatches.empty());
  CHECK_THROWS(batcher.on_executor_free(0, 1500), std::invalid_argument);
  CHECK_THROWS(make("eager", {kExample}, 0), std::invalid_argument);
  CHECK_THROWS(make("eager", {}, 1), std::invalid_argument);
  CHECK_THROWS(make("eager", {kExample}, 1, 0), std::invalid_argument);
}

void test_equal_deadlines_keep_the_order_of_arrival() {
  Batcher batcher = make("deferred", {kExample}, 1);
  for (int64_t i = 1; i <= 3; ++i) batcher.on_arrival(0, i, i, 2000, i);
  CHECK((batcher.on_timer(batcher.next_timer_ns()).queries == std::vector<int64_t>{1, 2, 3}));
}

void test_a_timeout_beyond_the_deadline_drops_in_time() {
  BatchCost cost = kExample;
  cost.timeout_ns = 900;
  Batcher batcher = make("timeout", {cost}, 1);
  arrive(batcher, 0, 1, 0);
  CHECK(batcher.candidate(0).exec_ns == 900 && batcher.next_timer_ns() == 601);
  CHECK(batcher.on_timer(601).drops.size() == 1);
}

void test_local_placement() {
  const std::vector<BatchCost> models{kExample};
  const std::vector<Executor> device{{.kind = ExecutorKind::kDevice}};
  CHECK_THROWS(Batcher(make_batching("none"), make_placement("local"), models, device, 4),
               std::invalid_argument);
  const std::vector<Executor> node{{.kind = ExecutorKind::kDevice}, {}};
  Batcher batcher(make_batching("none"), make_placement("local"), models, node, 4);
  CHECK(arrive(batcher, 0, 1, 0).dispatches[0].executor == 1);
  CHECK(arrive(batcher, 0, 2, 1).dispatches.empty());  // waits for its node, not for another
  CHECK(batcher.on_executor_free(1, 600).queries == std::vector<int64_t>{2});
}

void test_no_allocation() {
  std::vector<BatchCost> models(16, kExample);
  for (BatchCost& cost : models) cost.least_percent = 60;
  Batcher batcher = make("deferred", models, 4, 32);
  std::vector<std::pair<int64_t, int32_t>> ends;
  ends.reserve(16);
  const int64_t before = allocations;
  int64_t dispatched = 0;
  int64_t dropped = 0;
  int64_t now_ns = 0;
  const auto note = [&](const Decisions& decisions) {
    dropped += static_cast<int64_t>(decisions.drops.size());
    for (const Dispatch& each : decisions.dispatches) {
      dispatched += each.size;
      ends.emplace_back(each.expected_ns, each.executor);
    }
  };
  for (int64_t query = 0; query < 20'000; ++query) {
    now_ns += 7 + (query * 7919) % 31;  // more than the executors can take
    for (size_t e = 0; e < ends.size();) {
      if (ends[e].first > now_ns) {
        ++e;
        continue;
      }
      const int32_t executor = ends[e].second;
      ends[e] = ends.back();
      ends.pop_back();
      note(batcher.on_executor_free(executor, now_ns));
    }
    note(batcher.on_timer(now_ns));
    note(arrive(batcher, static_cast<int32_t>(query * 31 % 16), query, now_ns));
  }
  CHECK(allocations == before);
  CHECK(dispatched > 1'000 && dropped > 1'000);
}

}  // namespace

int main() {
  test_worked_example();
  test_timer_takes_the_smallest_free_executor();
  test_free_executor_takes_the_nearest_latest();
  test_a_batch_shrinks_while_it_waits();
  test_overload_gives_up_the_first();
  test_none_is_given_up_in_vain();
  test_order_and_bounds();
  test_equal_deadlines_keep_the_order_of_arrival();
  test_a_timeout_beyond_the_deadline_drops_in_time();
  test_local_placement();
  test_no_allocation();
}
