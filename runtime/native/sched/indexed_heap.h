// A binary heap of small ids by key, in which any id's key can be changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace veltair::sched {

// Ids 0 .. n-1, each in the heap or not, ordered by (key, id): equal keys leave in the order of
// their ids, so the order is a function of the contents alone.
//
// `set` and `remove` are O(log n); nothing allocates after construction.
// Thread-safety: none; one owner.
class IndexedHeap {
 public:
  explicit IndexedHeap(int32_t ids) : place_(static_cast<size_t>(ids), kAbsent) {
    heap_.reserve(static_cast<size_t>(ids));
  }

  bool empty() const { return heap_.empty(); }
  bool contains(int32_t id) const { return place_[id] != kAbsent; }
  // The least entry; only where the heap isn't empty.
  int32_t top() const { return heap_.front().id; }
  int64_t top_key() const { return heap_.front().key; }

  // Puts `id` in, or changes its key.
  void set(int32_t id, int64_t key) {
    int32_t at = place_[id];
    if (at == kAbsent) {
      at = static_cast<int32_t>(heap_.size());
      heap_.push_back({key, id});
      rise(at);
      return;
    }
    const bool earlier = key < heap_[at].key;
    heap_[at].key = key;
    if (earlier) {
      rise(at);
    } else {
      sink(at);
    }
  }

  void remove(int32_t id) {
    const int32_t at = place_[id];
    if (at == kAbsent) return;
    place_[id] = kAbsent;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (last.id == id) return;
    heap_[at] = last;
    place_[last.id] = at;
    rise(at);
    sink(place_[last.id]);
  }

 private:
  static constexpr int32_t kAbsent = -1;
  struct Entry {
    int64_t key;
    int32_t id;
    bool before(const Entry& other) const {
      return key != other.key ? key < other.key : id < other.id;
    }
  };

  void rise(int32_t at) {
    const Entry moving = heap_[at];
    while (at > 0) {
      const int32_t parent = (at - 1) / 2;
      if (!moving.before(heap_[parent])) break;
      put(at, heap_[parent]);
      at = parent;
    }
    put(at, moving);
  }

  void sink(int32_t at) {
    const Entry moving = heap_[at];
    const auto size = static_cast<int32_t>(heap_.size());
    while (true) {
      int32_t child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && heap_[child + 1].before(heap_[child])) ++child;
      if (!heap_[child].before(moving)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, moving);
  }

  void put(int32_t at, const Entry& entry) {
    heap_[at] = entry;
    place_[entry.id] = at;
  }

  std::vector<Entry> heap_;
  std::vector<int32_t> place_;  // by id, in heap_
};

}  // namespace veltair::sched
