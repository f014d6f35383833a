#include "native/ipc/level_model.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace veltair::ipc {

LevelEstimate estimate_level(const LevelLine& line, std::span<const LevelTerm> terms,
                             std::span<const LevelFeature> features) {
  if (features.size() != terms.size()) {
    throw std::invalid_argument("a model of " + std::to_string(terms.size()) +
                                " features was given " + std::to_string(features.size()));
  }
  double level = line.intercept;
  double confidence = 1;
  double beyond = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const LevelTerm& term = terms[i];
    const double value = features[i].value;
    level += term.coefficient * (value - term.mean) / term.scale;
    confidence = std::min(confidence, features[i].confidence);
    beyond = std::max({beyond, (term.low - value) / term.scale, (value - term.high) / term.scale});
  }
  confidence *= line.trust / (1 + beyond);
  if (confidence <= 0) return {};
  return {.level = std::min(level, line.highest), .confidence = confidence};
}

}  // namespace veltair::ipc
