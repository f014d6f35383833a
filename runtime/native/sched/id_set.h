// A set of small ids that knows its smallest.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace veltair::sched {

// Ids 0 .. n-1 as bits; each level above says which words below have any. `insert`, `erase` and
// `first` take one step a level, so log n to base 64. Nothing allocates after construction.
// Thread-safety: none; one owner.
class IdSet {
 public:
  explicit IdSet(int32_t ids) {
    auto words = static_cast<size_t>(ids);
    do {
      words = (words + 63) / 64;
      levels_.emplace_back(words > 0 ? words : 1, 0);
    } while (words > 1);
  }

  bool empty() const { return levels_.back()[0] == 0; }
  bool contains(int32_t id) const { return (levels_[0][id / 64] >> (id % 64) & 1) != 0; }

  void insert(int32_t id) {
    for (std::vector<uint64_t>& level : levels_) {
      level[id / 64] |= uint64_t{1} << (id % 64);
      id /= 64;
    }
  }

  void erase(int32_t id) {
    for (std::vector<uint64_t>& level : levels_) {
      level[id / 64] &= ~(uint64_t{1} << (id % 64));
      if (level[id / 64] != 0) return;
      id /= 64;
    }
  }

  // The smallest id in the set; only where it isn't empty.
  int32_t first() const {
    int32_t id = 0;
    for (size_t level = levels_.size(); level-- > 0;) {
      id = id * 64 + std::countr_zero(levels_[level][id]);
    }
    return id;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;
};

}  // namespace veltair::sched
