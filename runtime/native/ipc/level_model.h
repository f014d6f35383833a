// Linear models from what is counted to the interference level.
#pragma once

#include <span>

namespace veltair::ipc {

struct LevelEstimate {
  double level = 0;       // of one moment; below 0 where noise is all there is
  double confidence = 0;  // from 0, nothing is known, to 1
};

// One value that a model sees, and how far it can be trusted.
struct LevelFeature {
  double value = 0;
  double confidence = 0;  // from 0 to 1
};

// coefficient * (value - mean) / scale is added to the intercept.
struct LevelTerm {
  double mean = 0;
  double scale = 1;  // above 0
  double coefficient = 0;
  double low = 0;   // least value in training
  double high = 0;  // largest value in training
};

// What a model has beside its terms. Reference: VELTAIR, section 4.3.
struct LevelLine {
  double intercept = 0;
  double highest = 0;  // it estimates no level above
  double trust = 0;    // share of the level's variance that it explains, from 0 to 1
};

// Of one feature for each term. The confidence is that of the least of them times the trust, and
// less where a feature is beyond what was seen in training: half at one scale. Without confidence
// the level is 0. Throws std::invalid_argument for another number of features.
LevelEstimate estimate_level(const LevelLine& line, std::span<const LevelTerm> terms,
                             std::span<const LevelFeature> features);

}  // namespace veltair::ipc
