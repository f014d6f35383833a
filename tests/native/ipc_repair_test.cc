// A process dies inside a critical section, at every place where it can: the next one to enter
// finds the state whole, and no query is lost or answered twice.
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <set>

#include "ipc_harness.h"

namespace {

using namespace harness;
using ipc::kNone;

constexpr int kMostSteps = 1000;

// Runs `act` in a child that dies at its `step`-th store; returns false where it came to its end.
bool dies_at(Server& server, int step, const std::function<void()>& act) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    server.board->die_at_step(step);
    act();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) {
    CHECK(WTERMSIG(status) == SIGKILL);
    return true;
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return false;
}

// Serves all that waits on worker `worker`, which must be absent.
void serve_rest(Server& server, int32_t worker) {
  server.board->join(worker, getpid(), 0);
  while (server.board->take(worker, server.scheduler(), 50).decision.task != kNone) {
    server.check();
    server.board->complete(worker, "", 60);
    server.check();
  }
}

// A survivor's queries wait, one of them runs on worker 1; a worker 0 dies anywhere in taking,
// moving on and completing.
void test_a_worker_dies_inside() {
  int deaths = 0;
  for (int step = 1; step < kMostSteps; ++step) {
    Server server(3, 3, {{.cores = 2}, {}});
    ipc::Board& board = *server.board;
    const int32_t client = board.add_client(getpid());
    std::multiset<int64_t> expected;
    for (int64_t tag = 0; tag < 5; ++tag) {
      post(board, client, tag % 2 == 0 ? 0 : 1, tag, tag);
      expected.insert(tag);
    }
    board.join(1, getpid(), 0);
    CHECK(board.take(1, server.scheduler(), 5).decision.task != kNone);
    const bool died = dies_at(server, step, [&] {
      board.join(0, getpid(), 0);
      while (board.take(0, server.scheduler(), 10).decision.task != kNone) {
        board.next_block(0, server.scheduler(), 1, 15);
        board.complete(0, "", 20);
      }
      board.remove_worker(0, 30);
    });
    server.check();  // enters, and so repairs
    if (died) CHECK(server.segment->header().repairs == 1);
    board.remove_worker(0, 40);  // as rank 0 does when the process has ended
    server.check();
    board.complete(1, "", 45);
    board.remove_worker(1, 45);
    serve_rest(server, 2);
    ipc::Ended ended[16];
    const int32_t count = board.collect(client, ended);
    std::multiset<int64_t> answered;
    for (int32_t i = 0; i < count; ++i) {
      CHECK(ended[i].ok);
      answered.insert(ended[i].tag);
      CHECK(board.release(client, ended[i].query));
    }
    CHECK(answered == expected);
    server.check();
    CHECK(board.pending() == 0 && server.segment->header().free_cores == 3);
    CHECK(server.segment->models()[0].free_slots == 8 &&
          server.segment->models()[1].free_slots == 8);
    if (!died) {
      std::printf("a worker died at %d places\n", deaths);
      std::fflush(stdout);
      CHECK(deaths > 40);
      return;
    }
    ++deaths;
  }
  CHECK(false);  // it never came to its end
}

// A worker dies anywhere in putting its task back and in beginning another.
void test_a_worker_dies_in_a_return() {
  const ReturningPolicy policy;
  for (int step = 1; step < kMostSteps; ++step) {
    Server server(1, 2, {{}});
    const ipc::Scheduler scheduler{policy, server.profiles, nullptr, 0};
    ipc::Board& board = *server.board;
    const int32_t client = board.add_client(getpid());
    post(board, client, 0, 1, 0);
    board.join(0, getpid(), 0);
    CHECK(board.take(0, scheduler, 5).decision.task != kNone);
    post(board, client, 0, 2, 0);
    const bool died = dies_at(server, step, [&] { board.next_block(0, scheduler, 1, 10); });
    server.check();
    board.remove_worker(0, 30);
    server.check();
    serve_rest(server, 1);
    // Whichever the worker held when it died: both begin again, the older one first.
    CHECK(collect_one(board, client).tag == 1);
    CHECK(collect_one(board, client).tag == 2);
    CHECK(board.pending() == 0 && server.segment->header().free_cores == 1);
    if (!died) {
      CHECK(step > 10);
      return;
    }
  }
  CHECK(false);
}

// A client dies anywhere in attaching, allocating, submitting, collecting, releasing, leaving,
// beside a client that must not notice.
void test_a_client_dies_inside() {
  int deaths = 0;
  for (int step = 1; step < kMostSteps; ++step) {
    Server server(2, 2, {{}});
    ipc::Board& board = *server.board;
    const int32_t survivor = board.add_client(getpid());
    const int32_t doomed = survivor + 1;
    board.join(0, getpid(), 0);
    post(board, survivor, 0, 100, 0);
    const bool died = dies_at(server, step, [&] {
      CHECK(board.add_client(getpid()) == doomed);
      for (int64_t tag = 0; tag < 3; ++tag) post(board, doomed, 0, tag, tag);
      int32_t held = kNone;
      CHECK(board.allocate(doomed, 0, &held, 0).ok);
      for (int i = 0; i < 2; ++i) {
        CHECK(board.take(0, server.scheduler(), 5).decision.task != kNone);
        board.complete(0, "", 6);
      }
      const ipc::Ended ended = collect_one(board, doomed);
      board.release(doomed, ended.query);
      board.release(doomed, held);
      board.remove_client(doomed, 10);
    });
    server.check();
    board.remove_client(doomed, 20);
    // The child acted as worker 0 too: what it held goes back as well.
    board.remove_worker(0, 25);
    server.check();
    serve_rest(server, 1);
    const ipc::Ended ended = collect_one(board, survivor);
    CHECK(ended.ok && ended.tag == 100);
    CHECK(board.release(survivor, ended.query));
    server.check();
    CHECK(server.segment->models()[0].free_slots == 8 && board.pending() == 0);
    if (!died) {
      std::printf("a client died at %d places\n", deaths);
      CHECK(deaths > 40);
      return;
    }
    ++deaths;
  }
  CHECK(false);
}

// Who takes out a dead worker dies over it.
void test_a_reaper_dies() {
  for (int step = 1; step < kMostSteps; ++step) {
    Server server(2, 2, {{.cores = 2}});
    ipc::Board& board = *server.board;
    const int32_t client = board.add_client(getpid());
    post(board, client, 0, 1, 0);
    post(board, client, 0, 2, 0);
    board.join(0, getpid(), 0);
    CHECK(board.take(0, server.scheduler(), 5).decision.task != kNone);
    const bool died = dies_at(server, step, [&] { board.remove_worker(0, 10); });
    server.check();
    board.remove_worker(0, 20);
    server.check();
    CHECK(server.segment->header().free_cores == 2);
    serve_rest(server, 1);
    CHECK(collect_one(board, client).tag == 1 && collect_one(board, client).tag == 2);
    if (!died) {
      CHECK(step > 5);
      return;
    }
  }
  CHECK(false);
}

// The one that repairs dies too; the third makes it whole.
void test_repair_dies() {
  for (int step = 1; step < kMostSteps; ++step) {
    Server server(2, 2, {{}});
    ipc::Board& board = *server.board;
    const int32_t client = board.add_client(getpid());
    post(board, client, 0, 1, 0);
    post(board, client, 0, 2, 0);
    board.join(0, getpid(), 0);
    CHECK(board.take(0, server.scheduler(), 5).decision.task != kNone);
    // Step 3 of completing lies between the commit and the client's ring.
    CHECK(dies_at(server, 3, [&] { board.complete(0, "", 20); }));
    const bool died = dies_at(server, step, [&] { board.pending(); });
    server.check();
    board.remove_worker(0, 30);
    serve_rest(server, 1);
    // What had been computed is not computed again.
    const ipc::Ended first = collect_one(board, client);
    CHECK(first.tag == 1 && first.end_ns == 20);
    CHECK(collect_one(board, client).tag == 2);
    if (!died) return;
  }
  CHECK(false);
}

// A waiter that was woken is killed after somebody else has locked: the word no longer says that
// another waits, and unlocking wakes nobody. The kill's effect is made by hand.
void test_nobody_sleeps_beside_a_free_mutex() {
  Server server(1, 1, {{}});
  pthread_mutex_t& mutex = server.segment->header().mutex;
  std::atomic_ref<int> word(mutex.__data.__lock);
  CHECK(pthread_mutex_lock(&mutex) == 0);
  const pid_t waiter = fork();
  CHECK(waiter >= 0);
  if (waiter == 0) {
    server.board->pending();
    _exit(0);
  }
  while ((word.load() & static_cast<int>(FUTEX_WAITERS)) == 0) usleep(100);
  usleep(1000);  // asleep by now, or about to see that the word has changed
  word.fetch_and(~static_cast<int>(FUTEX_WAITERS));
  CHECK(pthread_mutex_unlock(&mutex) == 0);
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 10'000 && ended == 0; ++i) {
    usleep(1000);
    ended = waitpid(waiter, &status, WNOHANG);
  }
  if (ended == 0) kill(waiter, SIGKILL);
  CHECK(ended == waiter && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

int main() {
  test_a_worker_dies_inside();
  test_a_worker_dies_in_a_return();
  test_a_client_dies_inside();
  test_a_reaper_dies();
  test_repair_dies();
  test_nobody_sleeps_beside_a_free_mutex();
}
