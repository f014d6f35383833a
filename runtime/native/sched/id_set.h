// A set of small ids that knows its smallest and is walked in ascending order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace veltair::sched {

// Ids 0 .. n-1 as bits; each level above says which words below have any. `insert`, `erase` and
// `first` take one step a level, so log n to base 64. Nothing allocates after construction.
//
// A walk, `for (int32_t id : set)`, takes a step for each id and each 64 that there may be; an id
// that is erased amid it may still come, one that is inserted may not.
// Thread-safety: none; one owner.
class IdSet {
 public:
  class Iterator {
   public:
    Iterator(const uint64_t* word, const uint64_t* end) : word_(word), end_(end), left_(*word) {
      skip();
    }
    int32_t operator*() const { return base_ + std::countr_zero(left_); }
    Iterator& operator++() {
      left_ &= left_ - 1;
      skip();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return left_ == 0; }

   private:
    void skip() {
      while (left_ == 0 && ++word_ != end_) {
        left_ = *word_;
        base_ += 64;
      }
    }

    const uint64_t* word_;
    const uint64_t* end_;
    uint64_t left_;  // of this word
    int32_t base_ = 0;
  };

  explicit IdSet(int32_t ids) {
    auto words = static_cast<size_t>(ids);
    do {
      words = (words + 63) / 64;
      levels_.emplace_back(words > 0 ? words : 1, 0);
    } while (words > 1);
  }

  bool empty() const { return levels_.back()[0] == 0; }
  bool contains(int32_t id) const { return (levels_[0][id / 64] >> (id % 64) & 1) != 0; }

  Iterator begin() const { return {levels_[0].data(), levels_[0].data() + levels_[0].size()}; }
  std::default_sentinel_t end() const { return {}; }

  int32_t size() const {
    int32_t count = 0;
    for (uint64_t word : levels_[0]) count += std::popcount(word);
    return count;
  }

  void clear() {
    for (std::vector<uint64_t>& level : levels_) std::fill(level.begin(), level.end(), 0);
  }

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
