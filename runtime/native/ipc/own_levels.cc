#include "native/ipc/own_levels.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "native/ipc/client.h"
#include "native/ipc/futex.h"
#include "native/ipc/status.h"

namespace veltair::ipc {
namespace {

constexpr double kNoise = 0.05;  // of a block's time, with nothing beside it
// Of all blocks' times alike, since the profile was measured: a layer alone takes 2 to 5 % more or
// less some minutes later, on virtual machines that nobody else seems to use.
constexpr double kDrift = 0.03;
constexpr double kNear = 0.1;       // an error of the level that is worth half the confidence
constexpr double kMemoryNs = 15e6;  // so that a step is followed within 50 ms
constexpr double kLongestMemoryNs = 1e9;
constexpr double kEnoughBlocks = 8;  // to know a slow-down
constexpr double kStep = 0.05;       // a change of the level that is followed closely
constexpr int64_t kSteadyPeriods = 3;
constexpr double kHighest = 1000.0;  // levels beyond don't fit, and tell nothing more

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

sched::Measured measured(const LevelEstimate& estimate, int64_t now_ns) {
  const auto millionths = [](double value) {
    return static_cast<int32_t>(std::lround(value * sched::kMillion));
  };
  return {.slowdown = millionths(std::min(estimate.level, kHighest)),
          .confidence = millionths(estimate.confidence),
          .time_ns = now_ns};
}

}  // namespace

BlockTotals& BlockTotals::operator+=(const BlockTotals& other) {
  blocks += other.blocks;
  took_ns += other.took_ns;
  alone_ns += other.alone_ns;
  excess += other.excess;
  weight += other.weight;
  return *this;
}

double level_confidence(const BlockTotals& totals) {
  if (totals.weight <= 0 || totals.blocks <= 0) return 0;
  const double sensitivity = std::sqrt(totals.blocks * totals.weight) / totals.alone_ns;
  const double error = std::hypot(kNoise / std::sqrt(totals.blocks), kDrift) / sensitivity;
  return 1 / (1 + std::pow(error / kNear, 2));
}

OwnFeatures own_features(const BlockTotals& totals) {
  OwnFeatures found;
  const double confidence = level_confidence(totals);
  if (confidence > 0) {
    found.level = {.value = totals.excess / totals.weight, .confidence = confidence};
  }
  if (totals.blocks > 0) {
    found.slowdown = {.value = totals.took_ns / totals.alone_ns - 1,
                      .confidence = std::min(1.0, totals.blocks / kEnoughBlocks)};
  }
  return found;
}

double level_memory_ns(const BlockTotals& totals) {
  const double block_ns = totals.blocks > 0 ? totals.took_ns / totals.blocks : 0;
  return std::clamp(block_ns, kMemoryNs, kLongestMemoryNs);
}

int64_t next_look_ns(double change, int64_t period_ns) {
  return std::abs(change) > kStep ? period_ns : kSteadyPeriods * period_ns;
}

LevelEstimate SmoothLevel::add(const LevelEstimate& estimate, int64_t now_ns, double memory_ns) {
  const double kept = weight_ * std::exp(static_cast<double>(time_ns_ - now_ns) / memory_ns);
  time_ns_ = now_ns;
  weight_ = kept + estimate.confidence;
  if (estimate.confidence > 0) {
    level_ += (estimate.level - level_) * estimate.confidence / weight_;
  }
  return {.level = std::max(level_, 0.0), .confidence = std::min(1.0, weight_)};
}

std::vector<BlockTotals> BlockReader::read() {
  std::vector<BlockSums> sums = board_.block_sums();
  std::vector<BlockTotals> found;
  found.reserve(sums.size());
  for (size_t c = 0; c < sums.size(); ++c) found.push_back(between(last_[c], sums[c]));
  last_ = std::move(sums);
  return found;
}

OwnLevels::OwnLevels(Board& board, int64_t now_ns, std::vector<OwnModel> models)
    : board_(board),
      reader_(board),
      models_(std::move(models)),
      smooth_(1 + board.segment().complexes().size(), SmoothLevel(now_ns)) {}

LevelEstimate OwnLevels::estimate(const BlockTotals& totals) const {
  const OwnFeatures found = own_features(totals);
  std::vector<LevelFeature> features;
  for (const OwnModel& each : models_) {
    features.clear();
    for (const OwnModel::Feature feature : each.features) {
      features.push_back(feature == OwnModel::Feature::kLevel ? found.level : found.slowdown);
    }
    const LevelEstimate estimate = each.model.estimate(features);
    if (estimate.confidence > 0) return estimate;
  }
  return {.level = found.level.value, .confidence = found.level.confidence};
}

LevelEstimate OwnLevels::sample(int64_t now_ns) {
  const std::vector<BlockTotals> totals = reader_.read();
  BlockTotals all;
  for (const BlockTotals& each : totals) all += each;
  const double memory_ns = level_memory_ns(all);
  // The node's is the complexes' by their confidence; those that say nothing aren't asked.
  LevelEstimate node;
  double told = 0;
  std::vector<sched::Measured> complexes;
  complexes.reserve(totals.size());
  for (size_t c = 0; c < totals.size(); ++c) {
    const LevelEstimate estimated = estimate(totals[c]);
    node.level += estimated.level * estimated.confidence;
    node.confidence += estimated.confidence;
    told += estimated.confidence > 0 ? 1 : 0;
    complexes.push_back(measured(smooth_[1 + c].add(estimated, now_ns, memory_ns), now_ns));
  }
  if (told > 0) {
    node = {.level = node.level / node.confidence, .confidence = node.confidence / told};
  }
  const LevelEstimate believed = smooth_[0].add(node, now_ns, memory_ns);
  board_.tell_levels(measured(believed, now_ns), complexes, kSource);
  return believed;
}

void OwnLevels::follow(int64_t period_ns, int64_t idle_ns) {
  uint64_t ended = 0;
  double level = 0;
  while (stopped_.load() == 0) {
    const bool busy = cores_in_use(board_.segment()) > 0;
    const uint64_t before = ended;
    ended = board_.await_blocks(ended, busy ? period_ns : idle_ns);
    if (stopped_.load() != 0) return;
    if (ended == before && !busy) continue;
    const double before_level = level;
    level = sample(monotonic_ns()).level;
    futex_wait(stopped_, 0, next_look_ns(level - before_level, period_ns));
  }
}

void OwnLevels::stop() {
  stopped_.store(1);
  futex_wake_all(stopped_);
  board_.wake_sampler();
}

}  // namespace veltair::ipc
