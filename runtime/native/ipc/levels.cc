// The board as what measures the interference level uses it, and what workers tell it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "native/ipc/board.h"
#include "native/ipc/futex.h"
#include "native/sched/pace.h"

namespace veltair::ipc {
namespace {

// A block that the operating system took from its cores for a while says nothing of caches: beyond
// so many times the longest that its profile knows, it counts as that.
constexpr double kMostOfHighest = 2.0;
constexpr double kHighest = 1000.0;  // levels beyond don't fit, and tell nothing more

uint64_t squares(double ns, double sensitivity_ns) {
  return static_cast<uint64_t>(static_cast<int64_t>(ns * sensitivity_ns / kSquareNs));
}

double squares_between(uint64_t before, uint64_t after) {
  return static_cast<double>(static_cast<int64_t>(after - before)) * kSquareNs;
}

BlockTotals between(const BlockSums& before, const BlockSums& after) {
  return {.blocks = static_cast<double>(after.blocks - before.blocks),
          .took_ns = static_cast<double>(after.took_ns - before.took_ns),
          .alone_ns = static_cast<double>(after.alone_ns - before.alone_ns),
          .excess = squares_between(before.excess, after.excess),
          .weight = squares_between(before.weight, after.weight)};
}

BlockTotals since_last_look(ComplexRecord& record) {
  const BlockTotals totals = between(record.looked_at, record.sums);
  record.looked_at = record.sums;
  return totals;
}

LevelEstimate estimate(std::span<const OwnModel> models, const BlockTotals& totals) {
  const OwnFeatures found = own_features(totals);
  for (const OwnModel& each : models) {
    const LevelEstimate estimated = each.estimate(found);
    if (estimated.confidence > 0) return estimated;
  }
  return {.level = found.level.value, .confidence = found.level.confidence};
}

sched::Measured measured(const LevelEstimate& estimate, int64_t now_ns) {
  const auto millionths = [](double value) {
    return static_cast<int32_t>(std::lround(value * sched::kMillion));
  };
  return {.slowdown = millionths(std::min(estimate.level, kHighest)),
          .confidence = millionths(estimate.confidence),
          .time_ns = now_ns};
}

void require_level(const sched::Measured& level) {
  if (level.slowdown < 0 || level.confidence < 0 || level.confidence > sched::kMillion ||
      level.time_ns < 0) {
    throw std::invalid_argument("a level is from 0, its confidence from 0 to 1, its time from 0");
  }
}

}  // namespace

std::unique_ptr<sched::Interference> measured_interference(const Segment& segment,
                                                           int32_t otherwise) {
  const std::span<const ComplexRecord> complexes = segment.complexes();
  return std::make_unique<sched::MeasuredInterference>(
      segment.header().level,
      sched::Table<sched::MeasuredRecord>(&complexes.data()->level, sizeof(ComplexRecord),
                                          static_cast<int32_t>(complexes.size())),
      otherwise);
}

// Of the first core that it has; else of the first that is free, which is where it would begin.
int32_t Board::complex_of(int32_t worker) const {
  if (complexes_.size() == 1) return 0;
  int32_t free = kNone;
  for (const CoreRecord& core : cores_) {
    const int32_t owner = core.owner.load(std::memory_order_relaxed);
    if (owner == worker) return core.complex;
    if (owner == kNone && free == kNone) free = core.complex;
  }
  return free == kNone ? 0 : free;
}

sched::Level Board::level(const Scheduler& scheduler, const sched::View& view, int32_t worker,
                          int64_t now_ns) {
  const sched::Level found = scheduler.interference->level(
      view, {.worker = worker, .complex = complex_of(worker)}, now_ns);
  if (header_.policies.measured != 0 && found.slowdown == kNone) ++header_.decisions_unmeasured;
  return found;
}

void Board::note_end(Critical& critical, int32_t worker, const BlockSample* sample,
                     int64_t now_ns) {
  ++header_.blocks_ended;
  const int32_t pace = header_.pace.load(std::memory_order_relaxed);
  header_.pace.store(sched::next_pace(pace, workers_[worker].running, now_ns),
                     std::memory_order_relaxed);
  if (header_.sampler_waits != 0) {
    header_.sampler_waits = 0;
    critical.wake(header_.sampler);
  }
  if (sample == nullptr) return;
  const auto sensitivity_ns = static_cast<double>(sample->expected.sensitivity_ns);
  const double most_ns = sensitivity_ns * kMostOfHighest * sample->highest_slowdown;
  const auto longer_ns = static_cast<double>(sample->took_ns - sample->expected.alone_ns);
  BlockSums& sums = complexes_[cores_[sample->core].complex].sums;
  ++sums.blocks;  // first: a process that is killed here leaves sums of some block
  sums.took_ns += static_cast<uint64_t>(sample->took_ns);
  sums.alone_ns += static_cast<uint64_t>(sample->expected.alone_ns);
  sums.excess += squares(std::min(longer_ns, most_ns), sensitivity_ns);
  sums.weight += squares(sensitivity_ns, sensitivity_ns);
  const int64_t period_ns = header_.look_period_ns;
  if (period_ns > 0 && now_ns - header_.looked_ns >= period_ns) look_now(now_ns);
}

void Board::measure_by_blocks(std::span<const OwnModel> models, int64_t period_ns, int64_t now_ns) {
  if (models.size() > kMaxOwnModels || period_ns < 0) {
    throw std::invalid_argument("at most " + std::to_string(kMaxOwnModels) +
                                " models of own blocks, and a period from 0");
  }
  const Critical critical(*this);
  header_.n_own_models = static_cast<int32_t>(models.size());
  std::copy(models.begin(), models.end(), header_.own_models);
  header_.looked_ns = now_ns;
  header_.smooth = SmoothLevel(now_ns);
  for (ComplexRecord& record : complexes_) {
    record.looked_at = record.sums;
    record.smooth = SmoothLevel(now_ns);
  }
  header_.look_period_ns = period_ns;
  if (period_ns > 0) name_source(kOwnSource);
}

LevelEstimate Board::look(int64_t now_ns) {
  const Critical critical(*this);
  return look_now(now_ns);
}

LevelEstimate Board::look_now(int64_t now_ns) {
  header_.looked_ns = now_ns;
  BlockTotals all;
  for (const ComplexRecord& record : complexes_) all += between(record.looked_at, record.sums);
  const double memory_ns = level_memory_ns(all);
  const auto n_models = static_cast<size_t>(header_.n_own_models);
  const std::span<const OwnModel> models = std::span(header_.own_models).first(n_models);
  // The node's is the complexes' by their confidence; those that say nothing aren't asked.
  LevelEstimate node;
  double told = 0;
  for (ComplexRecord& record : complexes_) {
    const LevelEstimate estimated = estimate(models, since_last_look(record));
    node.level += estimated.level * estimated.confidence;
    node.confidence += estimated.confidence;
    told += estimated.confidence > 0 ? 1 : 0;
    record.level.store(measured(record.smooth.add(estimated, now_ns, memory_ns), now_ns));
  }
  if (told > 0) {
    node = {.level = node.level / node.confidence, .confidence = node.confidence / told};
  }
  const LevelEstimate believed = header_.smooth.add(node, now_ns, memory_ns);
  header_.level.store(measured(believed, now_ns));
  return believed;
}

uint64_t Board::await_blocks(uint64_t seen, int64_t timeout_ns) {
  uint32_t word = 0;
  {
    const Critical critical(*this);
    if (header_.blocks_ended != seen) return header_.blocks_ended;
    header_.sampler_waits = 1;
    word = header_.sampler.load(std::memory_order_acquire);
  }
  futex_wait(header_.sampler, word, timeout_ns);
  const Critical critical(*this);
  header_.sampler_waits = 0;
  return header_.blocks_ended;
}

void Board::wake_sampler() {
  Critical critical(*this);
  critical.wake(header_.sampler);
}

std::vector<BlockTotals> Board::read_blocks() {
  std::vector<BlockTotals> found;
  found.reserve(complexes_.size());
  const Critical critical(*this);
  for (ComplexRecord& record : complexes_) found.push_back(since_last_look(record));
  return found;
}

void Board::tell_levels(const sched::Measured& node, std::span<const sched::Measured> complexes,
                        std::string_view source) {
  if (complexes.size() != complexes_.size()) {
    throw std::invalid_argument("one level for each core complex");
  }
  require_level(node);
  for (const sched::Measured& level : complexes) require_level(level);
  const Critical critical(*this);
  header_.level.store(node);
  for (size_t c = 0; c < complexes.size(); ++c) complexes_[c].level.store(complexes[c]);
  name_source(source);
}

void Board::name_source(std::string_view source) {
  const size_t length = std::min(source.size(), sizeof header_.source - 1);
  std::memcpy(header_.source, source.data(), length);
  header_.source[length] = '\0';
}

LevelReport Board::level_report() {
  const Critical critical(*this);
  return {.measured = header_.policies.measured != 0,
          .source = header_.source,
          .decisions = header_.decisions,
          .unmeasured = header_.decisions_unmeasured};
}

}  // namespace veltair::ipc
