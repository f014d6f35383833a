// Workspaces are aligned, never shared, and come from the pool the second time.
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "native/engine/workspace.h"

namespace veltair::engine {
namespace {

void blocks_are_aligned_and_apart() {
  WorkspacePool pool;
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (size_t bytes : {0UL, 1UL, 63UL, 64UL, 65UL, 4096UL, 5000UL, 1UL << 20}) {
    auto* block = static_cast<unsigned char*>(pool.allocate(bytes));
    CHECK(block != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(block) % WorkspacePool::kAlignment == 0);
    std::memset(block, static_cast<int>(blocks.size()), bytes);
    blocks.emplace_back(block, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t byte = 0; byte < blocks[i].second; ++byte) CHECK(blocks[i].first[byte] == i);
    pool.free(blocks[i].first);
  }
}

void freed_blocks_are_used_again() {
  WorkspacePool pool;
  void* first = pool.allocate(5000);
  pool.free(first);
  CHECK(pool.idle_bytes() == 8192);
  CHECK(pool.allocate(8000) == first);
  CHECK(pool.idle_bytes() == 0);
  void* second = pool.allocate(8000);
  CHECK(second != first);
  pool.free(second);
  pool.free(first);
  CHECK(pool.idle_bytes() == 16384);
  CHECK(pool.allocate(8001) == first);  // the last one freed: still in the cache
  pool.free(first);
}

void a_larger_block_serves_a_smaller_request() {
  WorkspacePool pool;
  void* large = pool.allocate(1 << 20);
  void* small = pool.allocate(1 << 12);
  pool.free(large);
  pool.free(small);
  CHECK(pool.allocate(1 << 12) == small);  // the smallest that is large enough
  CHECK(pool.allocate(1 << 12) == large);
  pool.free(large);
  pool.free(small);
  CHECK(pool.idle_bytes() == (1 << 20) + (1 << 12));
}

void idle_blocks_make_room_for_a_larger_one() {
  WorkspacePool pool;
  void* held = pool.allocate(1 << 12);
  void* idle = pool.allocate(1 << 12);
  pool.free(idle);
  void* large = pool.allocate(1 << 20);
  CHECK(pool.idle_bytes() == 0);
  std::memset(held, 1, 1 << 12);  // what is in use stays
  std::memset(large, 2, 1 << 20);
  CHECK(static_cast<unsigned char*>(held)[(1 << 12) - 1] == 1);
  pool.free(held);
  pool.free(large);
  CHECK(pool.idle_bytes() == (1 << 20) + (1 << 12));
}

void impossible_sizes_are_refused() {
  WorkspacePool pool;
  CHECK(pool.allocate(UINT64_MAX) == nullptr);
  CHECK(pool.allocate(uint64_t{1} << 62) == nullptr);
  pool.free(nullptr);
  CHECK(pool.idle_bytes() == 0);
}

void blocks_may_move_between_threads() {
  void* block = WorkspacePool::of_this_thread().allocate(100);
  std::thread([block] {
    WorkspacePool& pool = WorkspacePool::of_this_thread();
    void* own = pool.allocate(100);
    CHECK(own != block);
    pool.free(own);
    pool.free(block);
    CHECK(pool.allocate(100) == block);
    pool.free(block);
  }).join();
  CHECK(WorkspacePool::of_this_thread().idle_bytes() == 0);
}

}  // namespace
}  // namespace veltair::engine

int main() {
  using namespace veltair::engine;
  blocks_are_aligned_and_apart();
  freed_blocks_are_used_again();
  a_larger_block_serves_a_smaller_request();
  idle_blocks_make_room_for_a_larger_one();
  impossible_sizes_are_refused();
  blocks_may_move_between_threads();
  return 0;
}
