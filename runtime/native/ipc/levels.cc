// The board as what measures the interference level uses it, and what workers tell it.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "native/ipc/board.h"
#include "native/ipc/futex.h"
#include "native/sched/pace.h"

namespace veltair::ipc {
namespace {

// A block that the operating system took from its cores for a while says nothing of caches: beyond
// so many times the longest that its profile knows, it counts as that.
constexpr double kMostOfHighest = 2.0;

uint64_t squares(double ns, double sensitivity_ns) {
  return static_cast<uint64_t>(static_cast<int64_t>(ns * sensitivity_ns / kSquareNs));
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

std::vector<BlockSums> Board::block_sums() {
  std::vector<BlockSums> sums;
  sums.reserve(complexes_.size());
  const Critical critical(*this);
  for (const ComplexRecord& record : complexes_) sums.push_back(record.sums);
  return sums;
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
