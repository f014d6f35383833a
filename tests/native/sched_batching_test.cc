// The batching and placement policies alone: candidates, moments, ids.
#include <stdexcept>

#include "check.h"
#include "native/sched/batching.h"
#include "native/sched/id_set.h"
#include "native/sched/indexed_heap.h"
#include "native/sched/placement.h"

namespace {

using namespace veltair::sched;

// Symphony §3.3: l(b) = b + 5, SLO 12. A unit is 100 ns.
constexpr BatchCost kExample{.alpha_ns = 100, .beta_ns = 500};

void test_deferred_moments() {
  const auto policy = make_batching("deferred");
  // R1 to R3 arrived at 0, 0.75, 1.5: frontrun 12 - l(4) = 3, latest 12 - l(3) = 4.
  Candidate c = policy->candidate({&kExample, 3, 0, 1200}, 150);
  CHECK(c.queries == 3 && c.exec_ns == 300 && c.latest_ns == 400);
  CHECK(c.moment == Moment::kFrontrun && !c.is_cut);
  // R4 arrives at 2.25: frontrun 2 has passed, latest 3.
  c = policy->candidate({&kExample, 4, 0, 1200}, 225);
  CHECK(c.queries == 4 && c.exec_ns == 225 && c.latest_ns == 300);
  // At its frontrun a query more would just fit; a moment later not.
  CHECK(policy->candidate({&kExample, 5, 0, 1200}, 200).queries == 5);
  c = policy->candidate({&kExample, 5, 0, 1200}, 201);
  CHECK(c.queries == 4 && c.is_cut && c.exec_ns == 201);
  // Alone it takes 6: at 6 just in time, then lost.
  CHECK(policy->candidate({&kExample, 1, 0, 1200}, 600).queries == 1);
  CHECK(policy->candidate({&kExample, 1, 0, 1200}, 601).queries == 0);
}

void test_bounds_of_deferral() {
  const auto policy = make_batching("deferred");
  const BatchCost small{.alpha_ns = 100, .beta_ns = 500, .max_batch = 2};
  Candidate c = policy->candidate({&small, 5, 0, 1200}, 10);
  CHECK(c.queries == 2 && c.exec_ns == 10 && c.moment == Moment::kFull && !c.is_cut);
  c = policy->candidate({&kExample, 5, 0, 0}, 10);
  CHECK(c.queries == 5 && c.exec_ns == 10 && c.latest_ns == kNever);
  CHECK(c.moment == Moment::kNoDeadline);
}

void test_others() {
  const BatchView view{&kExample, 3, 50, 1200};
  Candidate c = make_batching("eager")->candidate(view, 60);
  CHECK(c.queries == 3 && c.exec_ns == 60 && c.latest_ns == 400 && c.moment == Moment::kAtOnce);
  c = make_batching("none")->candidate(view, 60);
  CHECK(c.queries == 1 && c.exec_ns == 60 && c.latest_ns == 600 && !c.is_cut);
  const BatchCost timed{.alpha_ns = 100, .beta_ns = 500, .max_batch = 4, .timeout_ns = 200};
  const auto timeout = make_batching("timeout");
  c = timeout->candidate({&timed, 3, 50, 1200}, 60);
  CHECK(c.queries == 3 && c.exec_ns == 250 && c.moment == Moment::kTimeout);
  CHECK(timeout->candidate({&timed, 3, 50, 1200}, 260).exec_ns == 260);
  c = timeout->candidate({&timed, 6, 50, 1200}, 60);
  CHECK(c.queries == 4 && c.exec_ns == 60 && c.moment == Moment::kFull);
  CHECK_THROWS(make_batching("defered"), std::invalid_argument);
}

void test_moments() {
  const auto none = make_batching("none");
  const BatchView alone{.waiting = 1, .oldest_arrival_ns = 5, .earliest_deadline_ns = 6};
  Candidate c = none->candidate(alone, 1'000);  // without a cost nothing is ever too late
  CHECK(c.queries == 1 && c.exec_ns == 1'000);
  const auto deferred = make_batching("deferred");
  c = deferred->candidate({&kExample, 3, 0, 1200}, 150);
  CHECK(c.queries == 3 && c.exec_ns == 300);
  c = deferred->candidate({&kExample, 3, 0, 1200}, 300);
  CHECK(c.queries == 3 && c.exec_ns == 300);
  CHECK(deferred->candidate({&kExample, 3, 0, 1200}, 900).queries == 0);
}

void test_costs() {
  CHECK(kExample.largest(900, 10) == 4 && kExample.largest(899, 10) == 3);
  CHECK(kExample.largest(900, 2) == 2 && kExample.largest(599, 10) == 0);
  const BatchCost flat{.alpha_ns = 0, .beta_ns = 10};
  CHECK(flat.largest(10, 7) == 7 && flat.largest(9, 7) == 0);
  // Symphony Table 2: staggered over 8 GPUs, and without coordination.
  const BatchCost resnet{.alpha_ns = 1'053'000, .beta_ns = 5'072'000};
  const BatchCost inception{.alpha_ns = 5'090'000, .beta_ns = 18'368'000};
  CHECK(staggered_batch(resnet, 25'000'000, 8) == 16);
  CHECK(staggered_batch(resnet, 25'000'000, 1) == 7);
  CHECK(staggered_batch(inception, 70'000'000, 8) == 8);
  CHECK(staggered_batch(inception, 70'000'000, 1) == 3);
  CHECK_THROWS((BatchCost{.alpha_ns = -1, .beta_ns = 5}.check()), std::invalid_argument);
  CHECK_THROWS((BatchCost{.alpha_ns = 0, .beta_ns = 0}.check()), std::invalid_argument);
  CHECK_THROWS((BatchCost{.alpha_ns = 1, .beta_ns = kNever}.check()), std::invalid_argument);
  CHECK_THROWS((BatchCost{.alpha_ns = 1, .max_batch = 0}.check()), std::invalid_argument);
  CHECK_THROWS((BatchCost{.alpha_ns = 1, .timeout_ns = -1}.check()), std::invalid_argument);
  CHECK_THROWS((BatchCost{.alpha_ns = 1, .least_percent = 101}.check()), std::invalid_argument);
}

void test_placement() {
  const std::vector<Executor> executors = {{.kind = ExecutorKind::kDevice},
                                           {.kind = ExecutorKind::kLocalCores},
                                           {.kind = ExecutorKind::kDevice}};
  IdSet free(3);
  const auto local = make_placement("local");
  const auto first = make_placement("first-fit");
  CHECK(local->decide({.executors = executors}, {}, 0) == 1);  // busy or not: nobody says
  CHECK(local->decide({executors, &free}, {}, 0) == kNone);
  CHECK(first->decide({executors, &free}, {}, 0) == kNone);
  free.insert(2);
  CHECK(first->decide({executors, &free}, {}, 0) == 2);
  CHECK(local->decide({executors, &free}, {}, 0) == kNone);
  free.insert(1);
  CHECK(local->decide({executors, &free}, {}, 0) == 1);
  free.insert(0);
  CHECK(first->decide({executors, &free}, {}, 0) == 0);
  CHECK(first->decide({.executors = executors}, {}, 0) == kNone);
  CHECK(local->decide({.executors = std::span(executors).first(1)}, {}, 0) == kNone);
  CHECK_THROWS(make_placement("last-fit"), std::invalid_argument);
}

void test_id_set() {
  for (const int32_t ids : {1, 64, 65, 4096, 5000}) {
    IdSet set(ids);
    CHECK(set.empty());
    for (int32_t id = 0; id < ids; ++id) set.insert(id);
    for (int32_t id = 0; id < ids; ++id) {
      CHECK(set.first() == id && set.contains(id));
      set.erase(id);
      CHECK(!set.contains(id));
    }
    CHECK(set.empty());
    set.insert(ids - 1);
    CHECK(set.first() == ids - 1);
  }
}

void test_id_set_is_walked_in_order() {
  const auto walk = [](const IdSet& set) {
    std::vector<int32_t> ids;
    for (int32_t id : set) ids.push_back(id);
    return ids;
  };
  for (const int32_t ids : {0, 1, 64, 65, 5000}) {
    IdSet set(ids);
    CHECK(walk(set).empty() && set.size() == 0);
    std::vector<int32_t> inserted;
    for (int32_t id = ids - 1; id >= 0; id -= 3) {
      set.insert(id);
      inserted.insert(inserted.begin(), id);
    }
    CHECK(walk(set) == inserted && set.size() == static_cast<int32_t>(inserted.size()));
    set.clear();
    CHECK(walk(set).empty() && set.empty());
  }
  IdSet far(200);
  for (const int32_t id : {0, 63, 64, 199}) far.insert(id);
  std::vector<int32_t> seen;
  for (int32_t id : far) {  // an id may be erased once it has come
    seen.push_back(id);
    far.erase(id);
  }
  CHECK(seen == std::vector<int32_t>({0, 63, 64, 199}) && far.empty());
}

void test_indexed_heap() {
  IndexedHeap heap(5);
  heap.set(3, 30);
  heap.set(1, 30);
  heap.set(4, 10);
  CHECK(heap.top() == 4 && heap.top_key() == 10);
  heap.set(4, 40);
  CHECK(heap.top() == 1);  // equal keys: the smaller id
  heap.remove(1);
  CHECK(heap.top() == 3 && !heap.contains(1));
  heap.remove(1);
  heap.set(4, 5);
  CHECK(heap.top() == 4);
  heap.remove(4);
  heap.set(0, 30);
  CHECK(heap.top() == 0);
  heap.remove(0);
  heap.remove(3);
  CHECK(heap.empty());
}

}  // namespace

int main() {
  test_deferred_moments();
  test_bounds_of_deferral();
  test_others();
  test_moments();
  test_costs();
  test_placement();
  test_id_set();
  test_id_set_is_walked_in_order();
  test_indexed_heap();
}
