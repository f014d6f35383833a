// How fast a simulated machine is from moment to moment, for what its profiles predict.
#pragma once

#include <cstdint>
#include <vector>

namespace veltair::sim {

struct PaceOptions {
  double pace = 1.0;                // all takes so many times what is predicted, by the median
  double spread = 0.0;              // standard deviation of its logarithm over time
  int64_t memory_ns = 200'000'000;  // after which 1/e of what it was is left
  uint64_t seed = 1;
  // By what the pace is multiplied from moment to moment, as it was measured: each of these for
  // `known_step_ns`, from time 0, and the last from there on; empty: by 1.
  std::vector<double> known = {};
  int64_t known_step_ns = 10'000'000;
};

// Work is predicted time. The logarithm of the pace is a moving average of independent draws with
// exponential weights, in steps of a twentieth of its memory: a host's neighbours come and stay for
// a while. What it is at a moment depends on the options alone, so that all policies meet the same.
//
// Ownership: owns the steps that it has worked out last. Thread-safety: none.
class MachinePace {
 public:
  // Throws std::invalid_argument for a pace, a memory or a step that isn't above 0, and a spread
  // below 0.
  explicit MachinePace(const PaceOptions& options);

  // The work that is done between two moments, from 0.
  int64_t work_ns(int64_t from_ns, int64_t to_ns);
  // When work that begins at `from_ns` is done.
  int64_t end_ns(int64_t from_ns, int64_t work_ns);

 private:
  bool is_even() const { return options_.spread == 0 && options_.known.empty(); }
  double known_at(int64_t time_ns) const;
  double pace_of(int64_t step) const;
  void begin_at(int64_t step);
  void append();
  void know(int64_t time_ns);
  double done_at(int64_t time_ns);

  const PaceOptions options_;
  const int64_t step_ns_;
  std::vector<double> weights_;  // of this step's draw and those before
  int64_t first_ = 0;            // step
  std::vector<double> pace_;     // of `first_` and the following
  std::vector<double> done_ns_;  // work from `first_` to the begin of each, and of one more
};

}  // namespace veltair::sim
