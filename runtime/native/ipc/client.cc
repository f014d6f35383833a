#include "native/ipc/client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <stdexcept>
#include <system_error>

#include "native/ipc/futex.h"

namespace veltair::ipc {
namespace {

// How often a sleeping client looks whether the server still lives, which can't say so itself, and
// for answers whose worker died before it woke the client.
constexpr int64_t kLookNs = 500'000'000;

}  // namespace

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Client::Client(std::shared_ptr<Segment> segment) : board_(std::move(segment)) {
  const int32_t server_pid = board_.segment().header().server_pid;
  if (server_pid != getpid()) {
    server_ = static_cast<int>(syscall(SYS_pidfd_open, server_pid, 0));
    if (server_ < 0) throw std::runtime_error("the server has gone");
  }
  id_ = board_.add_client(getpid());
  if (id_ == kNone) {
    if (server_ >= 0) ::close(server_);
    throw std::runtime_error("the server has its " + std::to_string(kMaxClients) +
                             " local clients already; close one");
  }
}

Client::~Client() {
  close();
  if (descriptor_ >= 0) ::close(descriptor_);
  if (server_ >= 0) ::close(server_);
}

void Client::close() {
  if (closing_.exchange(true)) return;
  std::atomic<uint32_t>& done = segment().clients()[id_].done;
  done.fetch_add(1, std::memory_order_release);
  futex_wake_all(done);
  if (watcher_.joinable()) watcher_.join();
  board_.remove_client(id_, monotonic_ns());
}

bool Client::server_gone() const {
  if (server_ < 0) return false;
  pollfd poll{server_, POLLIN, 0};
  return ::poll(&poll, 1, 0) > 0;
}

bool Client::waiting() const {
  // Without the mutex: at worst a wait is cut short or made once more.
  const ClientRecord& record = segment().clients()[id_];
  return record.head != record.tail;
}

void Client::signal() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(descriptor_, &one, sizeof one);
}

std::vector<Ended> Client::poll(int32_t limit) {
  if (descriptor_ >= 0) {
    // Before looking: what comes after the look sets it again.
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(descriptor_, &count, sizeof count);
  }
  std::vector<Ended> ended(limit);
  ended.resize(board_.collect(id_, ended));
  if (descriptor_ >= 0 && (waiting() || server_gone())) signal();
  return ended;
}

void Client::wait(int64_t timeout_ns) {
  std::atomic<uint32_t>& done = segment().clients()[id_].done;
  const int64_t end_ns = timeout_ns < 0 ? INT64_MAX : monotonic_ns() + timeout_ns;
  while (true) {
    const uint32_t seen = done.load(std::memory_order_acquire);
    if (waiting() || closing_ || server_gone()) return;
    const int64_t left_ns = end_ns - monotonic_ns();
    if (left_ns <= 0) return;
    futex_wait(done, seen, std::min(left_ns, kLookNs));
  }
}

int Client::descriptor() {
  const std::scoped_lock lock(descriptor_mutex_);
  if (descriptor_ >= 0) return descriptor_;
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  descriptor_ = fd;
  watcher_ = std::thread([this] { watch(); });
  return fd;
}

void Client::watch() {
  std::atomic<uint32_t>& done = segment().clients()[id_].done;
  uint32_t seen = done.load(std::memory_order_acquire);
  if (waiting()) signal();
  while (!closing_) {
    futex_wait(done, seen, kLookNs);
    const uint32_t now = done.load(std::memory_order_acquire);
    if (now != seen) {
      seen = now;
      signal();
    } else if (server_gone()) {
      signal();
      return;
    }
  }
}

}  // namespace veltair::ipc
