// Leads: where they settle, and what they do to the order of the deadline policies.
#include <cstdint>

#include "check.h"
#include "native/sched/lead.h"
#include "native/sched/view.h"

namespace {

using namespace veltair::sched;

constexpr int32_t kLate = 5;  // percent

struct Counted {
  int32_t lateness = 0;
  int32_t mean = 0;

  Counted after(int late, int in_time, int32_t late_percent = kLate) const {
    Counted counted = *this;
    for (int i = 0; i < late + in_time; ++i) {
      count_query(counted.lateness, counted.mean, i < late, late_percent);
    }
    return counted;
  }
};

void test_it_settles_where_so_many_are_late() {
  const Counted raised = Counted{}.after(1, 0);
  CHECK(raised.lateness == 192'000);
  CHECK(raised.after(1, 24).lateness == raised.lateness);  // one of 25: four fifths of one of 20
  CHECK(raised.after(1, 23).lateness > raised.lateness);
  CHECK(raised.after(1, 25).lateness < raised.lateness);
}

void test_its_ends() {
  CHECK(Counted{}.after(0, 3).lateness == 0);
  const Counted all = Counted{}.after(100, 0);
  CHECK(all.lateness == kWholeTarget);
  CHECK(all.after(0, 125).lateness == 0);
  CHECK(all.after(0, 124).lateness > 0);
}

void test_who_has_none() {
  const Counted before = Counted{}.after(100, 0);  // by another policy
  CHECK(before.mean > 0);
  CHECK(before.after(1, 0, kNone).lateness == 0 && before.after(1, 0, kNone).mean == 0);
  CHECK(before.after(1, 0, 100).lateness == 0);  // all may be late
  CHECK(Counted{}.after(1, 0, 99).lateness > 0);
}

// Two networks; the first is asked for as often as the second, or nine times as often.
void test_the_mean_is_of_queries() {
  for (const int often : {1, 9}) {
    int32_t late = 0;
    int32_t in_time = 0;
    int32_t mean = 0;
    for (int i = 0; i < 1000; ++i) {
      for (int j = 0; j < often; ++j) count_query(late, mean, true, kLate);
      count_query(in_time, mean, false, kLate);
    }
    CHECK(late == kWholeTarget && in_time == 0);
    const double part = static_cast<double>(mean) / kWholeTarget;
    CHECK(part > 0.97 * often / (often + 1) && part < 1.03 * often / (often + 1));
    CHECK(lead_ns(in_time, mean, 1000) == 0);
    CHECK(lead_ns(late, mean, 1'000'000) == kWholeTarget - mean);
  }
}

void test_times() {
  CHECK(lead_ns(0, 0, 5'000'000) == 0);
  CHECK(lead_ns(190'000, 190'000, 5'000'000) == 0);
  CHECK(lead_ns(190'000, 200'000, 5'000'000) == 0);
  CHECK(lead_ns(kWholeTarget, 0, 5'000'001) == 5'000'001);
  CHECK(lead_ns(200'000, 10'000, 106'000'001) == 20'140'000);
  const int64_t year_ns = int64_t{365} * 24 * 3600 * 1'000'000'000;
  CHECK(lead_ns(kWholeTarget / 2, 0, year_ns) == year_ns / 2);
}

}  // namespace

int main() {
  test_it_settles_where_so_many_are_late();
  test_its_ends();
  test_who_has_none();
  test_the_mean_is_of_queries();
  test_times();
  return 0;
}
