#include "native/sim/machine_pace.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "native/sim/normal.h"

namespace veltair::sim {
namespace {

constexpr int kStepsOfMemory = 20;
constexpr int kWeights = 4 * kStepsOfMemory;  // the next would be below 2 % of the first
constexpr size_t kMostSteps = 1 << 20;

// What is known may change amid a step, so steps are no longer than its own; then they are as long
// where nothing is drawn.
int64_t step_of(const PaceOptions& options) {
  const int64_t drawn_ns = std::max<int64_t>(options.memory_ns / kStepsOfMemory, 1);
  if (options.known.empty()) return drawn_ns;
  return options.spread == 0 ? options.known_step_ns : std::min(drawn_ns, options.known_step_ns);
}

}  // namespace

MachinePace::MachinePace(const PaceOptions& options)
    : options_(options), step_ns_(step_of(options)) {
  if (!(options.pace > 0) || !(options.spread >= 0) || options.memory_ns < 1 ||
      options.known_step_ns < 1 ||
      std::ranges::any_of(
          options.known, [](double each) { return !(each > 0 && std::isfinite(each)); })) {
    throw std::invalid_argument("paces, memory and steps are above 0, a spread is from 0");
  }
  double squares = 0;
  for (int back = 0; back < kWeights; ++back) {
    weights_.push_back(std::exp(-static_cast<double>(back) / kStepsOfMemory));
    squares += weights_.back() * weights_.back();
  }
  for (double& weight : weights_) weight *= options.spread / std::sqrt(squares);
  begin_at(0);
}

double MachinePace::known_at(int64_t time_ns) const {
  if (options_.known.empty()) return 1;
  const auto last = static_cast<int64_t>(options_.known.size()) - 1;
  return options_.known[std::clamp<int64_t>(time_ns / options_.known_step_ns, 0, last)];
}

double MachinePace::pace_of(int64_t step) const {
  double deviation = 0;
  for (int back = 0; back < kWeights; ++back) {
    const auto draw = static_cast<uint64_t>(step + kWeights - back);
    deviation += weights_[back] * normal((options_.seed << 40) + draw);
  }
  return options_.pace * known_at(step * step_ns_) * std::exp(deviation);
}

void MachinePace::begin_at(int64_t step) {
  first_ = step;
  pace_.clear();
  done_ns_.assign(1, 0.0);
}

void MachinePace::append() {
  pace_.push_back(pace_of(first_ + static_cast<int64_t>(pace_.size())));
  done_ns_.push_back(done_ns_.back() + static_cast<double>(step_ns_) / pace_.back());
}

// Sees to it that the steps from this moment on are in reach.
void MachinePace::know(int64_t time_ns) {
  const int64_t step = time_ns / step_ns_;
  const bool known = step >= first_ && step <= first_ + std::ssize(pace_);
  if (!known || pace_.size() > kMostSteps) begin_at(step);
}

// Not before `first_`.
double MachinePace::done_at(int64_t time_ns) {
  const auto number = static_cast<size_t>(time_ns / step_ns_ - first_);
  while (pace_.size() <= number) append();
  return done_ns_[number] + static_cast<double>(time_ns % step_ns_) / pace_[number];
}

int64_t MachinePace::work_ns(int64_t from_ns, int64_t to_ns) {
  if (is_even()) return std::llround(static_cast<double>(to_ns - from_ns) / options_.pace);
  know(from_ns);
  const double before_ns = done_at(from_ns);
  return std::llround(done_at(to_ns) - before_ns);
}

int64_t MachinePace::end_ns(int64_t from_ns, int64_t work_ns) {
  if (is_even()) return from_ns + std::llround(static_cast<double>(work_ns) * options_.pace);
  know(from_ns);
  const double goal_ns = done_at(from_ns) + static_cast<double>(work_ns);
  while (done_ns_.back() <= goal_ns) append();
  const auto after = std::upper_bound(done_ns_.begin(), done_ns_.end(), goal_ns);
  const int64_t number = after - done_ns_.begin() - 1;
  const double within_ns = (goal_ns - done_ns_[number]) * pace_[number];
  return std::max<int64_t>(from_ns, (first_ + number) * step_ns_ + std::llround(within_ns));
}

}  // namespace veltair::sim
