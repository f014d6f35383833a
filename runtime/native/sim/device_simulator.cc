#include "native/sim/device_simulator.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <stdexcept>
#include <string>
#include <tuple>

namespace veltair::sim::devices {
namespace {

using sched::kNever;
using sched::kNone;

struct Ending {
  int64_t at_ns;
  int64_t sequence;
  int32_t device;
  bool operator>(const Ending& other) const {
    return std::tie(at_ns, sequence) > std::tie(other.at_ns, other.sequence);
  }
};

using Endings = std::priority_queue<Ending, std::vector<Ending>, std::greater<>>;

void check(const sched::Batcher& batcher, std::span<const sched::BatchCost> costs,
           std::span<const int64_t> slo_ns, const Arrivals& arrivals) {
  const auto models = static_cast<size_t>(batcher.models());
  if (costs.size() != models || slo_ns.size() != models) {
    throw std::invalid_argument("costs and slo_ns must have one entry for each model");
  }
  if (std::any_of(slo_ns.begin(), slo_ns.end(), [](int64_t slo) { return slo < 0; })) {
    throw std::invalid_argument("an slo_ns must not be negative");
  }
  if (arrivals.arrival_ns.size() != arrivals.model.size()) {
    throw std::invalid_argument("arrival_ns and model must have one entry for each query");
  }
  int64_t last_ns = 0;
  for (size_t q = 0; q < arrivals.arrival_ns.size(); ++q) {
    if (arrivals.arrival_ns[q] < last_ns) {
      throw std::invalid_argument("arrival_ns[" + std::to_string(q) +
                                  "]: must be ascending and not negative");
    }
    last_ns = arrivals.arrival_ns[q];
    if (arrivals.model[q] < 0 || arrivals.model[q] >= batcher.models()) {
      throw std::invalid_argument("model[" + std::to_string(q) +
                                  "] = " + std::to_string(arrivals.model[q]) + ": no such model");
    }
  }
}

Outcome outcome_of(sched::DropReason reason) {
  switch (reason) {
    case sched::DropReason::kDeadline:
      return Outcome::kDeadline;
    case sched::DropReason::kQueueFull:
      return Outcome::kQueueFull;
    case sched::DropReason::kGivenUp:
      return Outcome::kGivenUp;
  }
  return Outcome::kDeadline;
}

void record(const sched::Decisions& decisions, std::span<const sched::BatchCost> costs,
            int64_t now_ns, DeviceRun& run, Endings& endings) {
  for (const sched::Drop& drop : decisions.drops) {
    run.outcome[drop.query] = outcome_of(drop.reason);
    run.end_ns[drop.query] = now_ns;
  }
  for (const sched::Dispatch& each : decisions.dispatches) {
    const int64_t end_ns = now_ns + costs[each.model].time(each.size);
    const auto batch = static_cast<int32_t>(run.batches.size());
    for (int32_t i = 0; i < each.size; ++i) {
      const int64_t query = decisions.queries[each.first + i];
      run.outcome[query] = Outcome::kAnswered;
      run.end_ns[query] = end_ns;
      run.batch[query] = batch;
    }
    endings.push({end_ns, batch, each.executor});
    run.batches.push_back({.start_ns = now_ns,
                           .end_ns = end_ns,
                           .model = each.model,
                           .device = each.executor,
                           .size = each.size,
                           .moment = each.moment,
                           .match = each.match});
  }
}

const sched::Decisions& tell(sched::Batcher& batcher, const sched::BatchEvent& event,
                             int64_t now_ns) {
  switch (event.kind) {
    case sched::BatchEventKind::kArrival:
      return batcher.on_arrival(event.model, event.query, event.arrival_ns, event.deadline_ns,
                                now_ns);
    case sched::BatchEventKind::kExecutorFree:
      return batcher.on_executor_free(event.executor, now_ns);
    case sched::BatchEventKind::kTimer:
      break;
  }
  return batcher.on_timer(now_ns);
}

}  // namespace

DeviceRun run_devices(sched::Batcher& batcher, std::span<const sched::BatchCost> costs,
                      std::span<const int64_t> slo_ns, const Arrivals& arrivals, const Look& look,
                      sched::Recorder* recorder) {
  check(batcher, costs, slo_ns, arrivals);
  const size_t queries = arrivals.arrival_ns.size();
  DeviceRun run;
  run.outcome.assign(queries, Outcome::kDeadline);
  run.end_ns.assign(queries, 0);
  run.batch.assign(queries, kNone);
  run.batches.reserve(queries / 4);
  Endings endings;
  size_t next = 0;
  while (true) {
    const int64_t arrival_ns = next < queries ? arrivals.arrival_ns[next] : kNever;
    const int64_t ending_ns = endings.empty() ? kNever : endings.top().at_ns;
    const int64_t timer_ns = batcher.next_timer_ns();
    sched::BatchEvent event;
    int64_t now_ns = timer_ns;
    if (next < queries && arrival_ns <= std::min(ending_ns, timer_ns)) {
      const int32_t model = arrivals.model[next];
      now_ns = arrival_ns;
      event = {.kind = sched::BatchEventKind::kArrival,
               .model = model,
               .query = static_cast<int64_t>(next++),
               .arrival_ns = arrival_ns,
               .deadline_ns = slo_ns[model] == 0 ? 0 : arrival_ns + slo_ns[model]};
    } else if (!endings.empty() && ending_ns <= timer_ns) {
      now_ns = ending_ns;
      event = {.kind = sched::BatchEventKind::kExecutorFree, .executor = endings.top().device};
      endings.pop();
    } else if (timer_ns == kNever) {
      return run;
    }
    const sched::Decisions& decisions = tell(batcher, event, now_ns);
    if (recorder != nullptr) {
      recorder->note_batch(event, now_ns, decisions, {.sequence = run.events});
    }
    record(decisions, costs, now_ns, run, endings);
    if (++run.events % kLookEvery == 0 && look) look();
  }
}

}  // namespace veltair::sim::devices
