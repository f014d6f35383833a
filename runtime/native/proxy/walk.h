// In which order a bubble visits its pages.
#pragma once

#include <cstdint>
#include <numeric>

namespace veltair::proxy {

// Visits each of `pages` once a round, neighbours far apart in time: a step of about the golden
// section of the round, made coprime to it. No table of the order takes room in the caches.
//
// Thread-safety: none.
class Walk {
 public:
  // `pages` is at least 1.
  explicit Walk(int64_t pages) : pages_(pages), step_(step_of(pages)) {}

  int64_t next() {
    const int64_t here = place_;
    place_ += step_;
    if (place_ >= pages_) place_ -= pages_;
    return here;
  }

 private:
  static int64_t step_of(int64_t pages) {
    auto step = static_cast<int64_t>(static_cast<double>(pages) * 0.6180339887498949);
    while (std::gcd(step, pages) != 1) ++step;  // ends at pages - 1, or at 1 of 1
    return step;
  }

  const int64_t pages_;
  const int64_t step_;
  int64_t place_ = 0;
};

}  // namespace veltair::proxy
