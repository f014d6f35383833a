#include "native/ipc/own_levels.h"

#include <algorithm>
#include <cmath>
#include <span>

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

LevelEstimate OwnModel::estimate(const OwnFeatures& found) const {
  LevelFeature seen[kMostTerms];
  for (int i = 0; i < n_terms; ++i) {
    seen[i] = features[i] == Feature::kLevel ? found.level : found.slowdown;
  }
  const auto count = static_cast<size_t>(n_terms);
  return estimate_level(line, std::span(terms).first(count), std::span(seen).first(count));
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

}  // namespace veltair::ipc
