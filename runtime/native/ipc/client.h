// A client's end of the segment: its queries, and waiting for their completions.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "native/ipc/board.h"

namespace veltair::ipc {

// Ownership: shares the segment; owns its place in the client table, and, after `descriptor`, an
// eventfd with the thread that writes it. Thread-safety: all methods, from any thread; none but
// the destructor after `close`.
class Client {
 public:
  // Throws std::runtime_error where the server has no place for another client.
  explicit Client(std::shared_ptr<Segment> segment);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Leaves the server: what was queued is cancelled, all slots are given back, `wait` returns.
  // Idempotent; the destructor does it too.
  void close();

  Segment& segment() const { return board_.segment(); }
  Board& board() { return board_; }

  Verdict allocate(int32_t model, int32_t* query, int64_t now_ns) {
    return board_.allocate(id_, model, query, now_ns);
  }
  Verdict submit(int32_t query, int64_t arrival_ns, int64_t deadline_ns, int64_t tag,
                 int64_t now_ns) {
    return board_.submit(id_, query, arrival_ns, deadline_ns, tag, now_ns);
  }
  bool release(int32_t query) { return board_.release(id_, query); }
  // The text of a failed completion that has not been released.
  std::string error(int32_t query) const { return segment().queries()[query].error; }

  // Takes up to `limit` completions that are there; resets the descriptor with the last one.
  std::vector<Ended> poll(int32_t limit);
  // Sleeps until completions are there, the server has gone, or for `timeout_ns` (negative: without
  // limit). It may return early.
  void wait(int64_t timeout_ns);
  // An eventfd that is readable while completions are there or the server has gone; made, with the
  // thread that writes it, by the first call. Throws std::system_error.
  int descriptor();
  // Whether the server's process has ended.
  bool server_gone() const;

 private:
  bool waiting() const;
  void signal() const;
  void watch();

  Board board_;
  int32_t id_;
  int server_ = -1;  // pidfd of the server; -1 where this process is the server
  std::mutex descriptor_mutex_;
  std::atomic<int> descriptor_{-1};
  std::atomic<bool> closing_{false};
  std::thread watcher_;
};

// The time that all of this is measured in.
int64_t monotonic_ns();

}  // namespace veltair::ipc
