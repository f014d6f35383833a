// Many threads, then many processes that are killed at random: every query is answered once.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "ipc_harness.h"
#include "native/ipc/futex.h"

namespace {

using namespace harness;
using ipc::kNone;

// A worker that copies the first input byte to the output instead of running kernels.
void serve(Server& server, int32_t worker) {
  const ipc::Segment& segment = *server.segment;
  ipc::WorkerRecord& record = segment.workers()[worker];
  server.board->join(worker, getpid(), ipc::monotonic_ns());
  while (true) {
    const ipc::Step step = server.board->take(worker, server.scheduler(), ipc::monotonic_ns());
    if (step.stop) break;
    const int32_t task = step.decision.task;
    if (task == kNone) {
      ipc::futex_wait(record.work, step.seen, 100 * kMs);
      continue;
    }
    const ipc::ModelRecord& model = segment.models()[segment.tasks()[task].task.model];
    const int32_t slot = task - model.first_slot;
    *segment.tensor(model, 2, slot) = *segment.tensor(model, 0, slot);
    server.board->next_block(worker, server.scheduler(), 1, ipc::monotonic_ns());
    server.board->complete(worker, "", ipc::monotonic_ns());
  }
  server.board->remove_worker(worker, ipc::monotonic_ns());
}

// Whether a query has so near a deadline that it may have to make room for others.
bool is_urgent(int64_t tag) { return tag % 5 == 0; }

// Sends `queries`, keeping as many under way as it gets slots for, and checks every answer. Where
// workers are killed, a few queries meet so many deaths that they fail. Returns how many made room.
int ask(Server& server, int queries, unsigned seed, bool workers_die = false) {
  ipc::Client client(server.segment);
  std::mt19937 random(seed);
  std::vector<int> answers(queries);
  int sent = 0;
  int answered = 0;
  int failed = 0;
  int late = 0;
  while (answered < queries) {
    while (sent < queries) {
      const auto model = static_cast<int32_t>(random() % server.profiles.size());
      int32_t query = kNone;
      if (!client.allocate(model, &query, ipc::monotonic_ns()).ok) break;
      const ipc::ModelRecord& record = server.segment->models()[model];
      *server.segment->tensor(record, 0, query - record.first_slot) =
          static_cast<std::byte>(sent % 251);
      const int64_t now_ns = ipc::monotonic_ns();
      const int64_t left_ns = is_urgent(sent) ? record.fastest_ns : 60'000 * kMs;
      CHECK(client.submit(query, now_ns, now_ns + left_ns, sent, now_ns).ok);
      ++sent;
    }
    client.wait(50 * kMs);
    for (const ipc::Ended& ended : client.poll(64)) {
      const bool is_late = !ended.ok && ended.why == ipc::Failure::kDeadline;
      CHECK(ended.ok || (is_late && is_urgent(ended.tag)) ||
            (workers_die && ended.why == ipc::Failure::kError));
      CHECK(++answers[ended.tag] == 1);
      const ipc::ModelRecord& record =
          server.segment->models()[server.segment->queries()[ended.query].model];
      CHECK(!ended.ok || *server.segment->tensor(record, 2, ended.query - record.first_slot) ==
                             static_cast<std::byte>(ended.tag % 251));
      late += is_late ? 1 : 0;
      failed += ended.ok || is_late ? 0 : 1;
      CHECK(client.release(ended.query));
      ++answered;
    }
  }
  CHECK(sent == queries);
  CHECK(failed < queries / 10);
  return late;
}

void check_empty(Server& server) {
  server.check();
  CHECK(server.board->pending() == 0);
  for (const ipc::ModelRecord& model : server.segment->models()) {
    CHECK(model.free_slots == model.slots);
  }
}

void test_threads(int queries) {
  Server server(3, 3, {{.cores = 2, .slots = 5}, {.slots = 3}});
  std::vector<std::thread> workers;
  workers.reserve(3);
  for (int32_t w = 0; w < 3; ++w) workers.emplace_back([&server, w] { serve(server, w); });
  std::atomic<uint64_t> late = 0;
  std::vector<std::thread> clients;
  clients.reserve(3);
  for (unsigned c = 0; c < 3; ++c) {
    clients.emplace_back([&server, &late, queries, c] { late += ask(server, queries, c); });
  }
  for (int i = 0; i < 50; ++i) {
    server.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread& client : clients) client.join();
  server.board->set_state(ipc::ServerState::kStopped);
  for (std::thread& worker : workers) worker.join();
  check_empty(server);
  const ipc::Counters& first = server.segment->models()[0].counters;
  const ipc::Counters& second = server.segment->models()[1].counters;
  CHECK(first.succeeded + second.succeeded + late == uint64_t{3} * queries);
  std::printf("%lu queries were late and made room\n", late.load());
  CHECK(late > 0);
}

// Workers are processes; one is killed every few milliseconds, buried and replaced.
void test_processes_killed(int queries) {
  Server server(3, 3, {{.cores = 2, .slots = 5}, {.slots = 3}});
  std::array<pid_t, 3> workers{};
  const auto start = [&](int32_t w) {
    workers[w] = fork();
    CHECK(workers[w] >= 0);
    if (workers[w] == 0) {
      serve(server, w);
      _exit(0);
    }
  };
  for (int32_t w = 0; w < 3; ++w) start(w);
  const pid_t client = fork();
  CHECK(client >= 0);
  if (client == 0) {
    ask(server, queries, 7, /*workers_die=*/true);
    _exit(0);
  }
  std::mt19937 random(1);
  int status = 0;
  int deaths = 0;
  while (waitpid(client, &status, WNOHANG) == 0) {
    usleep(500 + random() % 1000);
    const auto w = static_cast<int32_t>(random() % 3);
    kill(workers[w], SIGKILL);
    CHECK(waitpid(workers[w], nullptr, 0) == workers[w]);
    server.board->remove_worker(w, ipc::monotonic_ns());
    server.check();
    start(w);
    ++deaths;
  }
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  server.board->set_state(ipc::ServerState::kStopped);
  for (const pid_t worker : workers) {
    CHECK(waitpid(worker, &status, 0) == worker);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  check_empty(server);
  std::printf("%d workers killed, %lu repairs\n", deaths,
              static_cast<unsigned long>(server.segment->header().repairs));
  CHECK(deaths > 0);
}

// The eventfd is readable exactly while completions wait.
void test_descriptor() {
  Server server(1, 1, {{}});
  ipc::Client client(server.segment);
  const int fd = client.descriptor();
  CHECK(client.descriptor() == fd);
  std::thread worker([&server] { serve(server, 0); });
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 2; ++i) {
      int32_t query = kNone;
      CHECK(client.allocate(0, &query, ipc::monotonic_ns()).ok);
      const int64_t now_ns = ipc::monotonic_ns();
      CHECK(client.submit(query, now_ns, 0, i, now_ns).ok);
    }
    int taken = 0;
    while (taken < 2) {
      pollfd poll{fd, POLLIN, 0};
      CHECK(::poll(&poll, 1, 10'000) == 1);
      for (const ipc::Ended& ended : client.poll(1)) {  // leaves the second: still readable
        CHECK(client.release(ended.query));
        ++taken;
      }
    }
    CHECK(client.poll(8).empty());
  }
  server.board->set_state(ipc::ServerState::kStopped);
  worker.join();
}

}  // namespace

int main() {
  // Processes first: a forked child of a process with threads may not do much.
  test_processes_killed(20000);
  test_threads(2000);
  test_descriptor();
}
