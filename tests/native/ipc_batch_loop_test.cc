// Queries that wait for the batching policy: batches, timers, drops, cancelled queries, changes of
// policy, deaths.
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "ipc_harness.h"
#include "native/ipc/batch_loop.h"
#include "native/ipc/null_executor.h"
#include "native/ipc/worker.h"

namespace {

using namespace harness;
using ipc::kNone;

constexpr int32_t kPid = 4242;

ipc::Policies batching(const std::string& name) {
  ipc::Policies policies;
  policies.batching = name;
  policies.batch.max_batch = 3;
  policies.batch.timeout_ns = 20 * kMs;
  policies.batch.executors = 2;
  return policies;
}

// The loop runs on a thread of its own: waits for what it is to do.
void await(const std::function<bool()>& done) {
  for (int i = 0; i < 5000 && !done(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(done());
}

// Counted by the states, which may be read while others change them.
template <typename Record, typename State>
int count_in(std::span<const Record> records, State state) {
  int count = 0;
  for (const Record& record : records) {
    count += record.state.load(std::memory_order_acquire) == static_cast<uint32_t>(state) ? 1 : 0;
  }
  return count;
}

int queued(const Server& server) {
  return count_in(std::span<const ipc::TaskRecord>(server.segment->tasks()),
                  ipc::TaskState::kQueued);
}

// Posts a query that arrives now, with `left_ns` until its deadline.
int32_t send(Server& server, int32_t client, int64_t tag, int64_t left_ns) {
  int32_t query = kNone;
  const int64_t now_ns = ipc::monotonic_ns();
  CHECK(server.board->allocate(client, 0, &query, now_ns).ok);
  CHECK(server.board->submit(client, query, now_ns, now_ns + left_ns, tag, now_ns).ok);
  return query;
}

// A full batch is released at once, the rest of the queries when the first has waited.
void test_timeout() {
  Server server(2, 1, {{}});
  server.board->set_policies(batching("timeout"));
  ipc::BatchLoop loop(server.segment, server.profiles);
  const int32_t client = server.board->add_client(kPid);
  for (int64_t tag = 0; tag < 4; ++tag) send(server, client, tag, 10'000 * kMs);
  server.check();
  CHECK(server.board->pending() == 4 && queued(server) == 0);  // the loop doesn't run yet
  const int64_t begin_ns = ipc::monotonic_ns();
  loop.start();
  await([&] { return queued(server) >= 1; });
  server.check();  // what the loop did comes before what is read now
  CHECK(server.segment->tasks()[0].task.queries == 3);
  await([&] { return queued(server) == 2; });
  CHECK(ipc::monotonic_ns() - begin_ns >= 10 * kMs);  // some of the timeout had passed before
  server.check();
  CHECK(server.segment->tasks()[3].task.queries == 1);
  // One worker: three passes for the first task, then all three queries end together.
  server.board->join(0, kPid, 0);
  const ipc::Scheduler scheduler = server.scheduler();
  ipc::Scheduler now = scheduler;
  server.board->policies(&now.epoch);
  int64_t time_ns = 100;
  CHECK(server.board->take(0, now, time_ns).decision.task == 0);
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(server.segment->tasks()[0].running == pass);
    const ipc::Step next = server.board->next_block(0, now, 2, ++time_ns);
    CHECK(next.decision.task == 0 && next.decision.layer_begin == 0);
    ipc::Ended none;
    CHECK(server.board->collect(client, {&none, 1}) == 0);
    server.check();
  }
  CHECK(server.segment->tasks()[0].task.passes == 1);
  server.board->complete(0, "", ++time_ns);
  for (int64_t tag = 0; tag < 3; ++tag) {
    const ipc::Ended ended = collect_one(*server.board, client);
    CHECK(ended.ok && ended.tag == tag && ended.end_ns == time_ns);
  }
  server.check();
}

// A worker that dies amid a batch: all its queries run again, from the first.
void test_a_worker_dies_amid_a_batch() {
  Server server(2, 2, {{}});
  server.board->set_policies(batching("eager"));
  const int32_t client = server.board->add_client(kPid);
  ipc::BatchLoop loop(server.segment, server.profiles);
  for (int64_t tag = 0; tag < 3; ++tag) send(server, client, tag, 10'000 * kMs);
  loop.start();
  await([&] { return queued(server) > 0; });
  loop.stop();
  ipc::Scheduler scheduler = server.scheduler();
  server.board->policies(&scheduler.epoch);
  server.board->join(0, kPid, 0);
  CHECK(server.board->take(0, scheduler, 10).decision.task == 0);
  server.board->next_block(0, scheduler, 2, 20);
  server.board->remove_worker(0, 30);
  server.check();
  const sched::Task& task = server.segment->tasks()[0].task;
  CHECK(task.passes == task.queries && task.next_layer == 0);
  CHECK(server.segment->tasks()[0].running == 0);
}

// What can't be in time is given up, with a reason; what nobody waits for any more is freed.
void test_drops() {
  Server server(2, 1, {{}});
  server.board->set_policies(batching("deferred"));
  ipc::BatchLoop loop(server.segment, server.profiles);
  const int32_t client = server.board->add_client(kPid);
  send(server, client, 1, kMs);  // a query takes 10 ms
  const int32_t released = send(server, client, 2, 500 * kMs);
  CHECK(server.board->release(client, released));
  loop.start();
  await([&] { return server.segment->models()[0].counters.failed[1] == 1; });
  const ipc::Ended ended = collect_one(*server.board, client);
  CHECK(!ended.ok && ended.tag == 1 && ended.why == ipc::Failure::kDeadline);
  CHECK(server.board->release(client, ended.query));
  await([&] {
    return count_in(std::span<const ipc::QueryRecord>(server.segment->queries()),
                    ipc::QueryState::kFree) == 8;
  });
  CHECK(server.board->pending() == 0);
  server.check();
}

// `none` makes tasks of all that wait; nothing is lost in changing.
void test_policy_changes() {
  Server server(2, 1, {{}});
  server.board->set_policies(batching("timeout"));
  ipc::BatchLoop loop(server.segment, server.profiles);
  loop.start();
  const int32_t client = server.board->add_client(kPid);
  send(server, client, 0, 10'000 * kMs);
  await([&] { return queued(server) == 1; });
  send(server, client, 1, 10'000 * kMs);
  server.board->set_policies(batching("none"));
  await([&] { return queued(server) == 2; });
  send(server, client, 2, 10'000 * kMs);
  CHECK(queued(server) == 3);
  CHECK(server.board->fail_queued("the end", 5) == 3);
  server.check();
}

// Real workers, all batching policies in turn under load: each query is answered once.
void test_under_load() {
  Server server(4, 4, {{.slots = 16, .qos_ns = 200 * kMs}, {.slots = 16, .qos_ns = 200 * kMs}});
  for (sched::ModelProfile& profile : server.profiles) {
    for (int64_t& ns : profile.layer_ns) ns = kMs / 10;
    for (int64_t& ns : profile.model_ns) ns = kMs / 5;
  }
  ipc::BatchLoop loop(server.segment, server.profiles);
  loop.start();
  std::vector<std::unique_ptr<ipc::Worker>> workers;
  std::vector<std::thread> threads;
  for (int32_t w = 0; w < 4; ++w) {
    workers.push_back(std::make_unique<ipc::Worker>(
        server.segment, w, server.profiles,
        std::make_unique<ipc::NullExecutor>(server.segment, server.profiles)));
    threads.emplace_back([&worker = *workers.back()] { worker.run(); });
  }
  ipc::Client client(server.segment);
  constexpr int kQueries = 600;
  std::vector<int> answers(kQueries);
  uint64_t executions = 0;
  int sent = 0;
  const char* names[] = {"eager", "timeout", "deferred", "none"};
  for (int answered = 0; answered < kQueries;) {
    if (answered % 50 == 0) server.board->set_policies(batching(names[answered / 50 % 4]));
    int32_t query = kNone;
    while (sent < kQueries && client.allocate(sent % 2, &query, ipc::monotonic_ns()).ok) {
      const int64_t now_ns = ipc::monotonic_ns();
      CHECK(client.submit(query, now_ns, 0, sent++, now_ns).ok);
    }
    client.wait(50 * kMs);
    for (const ipc::Ended& ended : client.poll(1)) {
      CHECK(ended.ok || ended.why == ipc::Failure::kDeadline);
      CHECK(++answers[ended.tag] == 1);
      CHECK(client.release(ended.query));
      ++answered;
    }
  }
  server.board->set_state(ipc::ServerState::kStopped);
  for (std::thread& thread : threads) thread.join();
  loop.stop();
  server.check();
  CHECK(server.board->pending() == 0);
  for (const ipc::ModelRecord& model : server.segment->models()) {
    executions += model.counters.executions;
    CHECK(model.free_slots == model.slots);
  }
  std::printf("%d queries in %lu tasks\n", kQueries, static_cast<unsigned long>(executions));
  CHECK(executions < kQueries * 9 / 10);
}

}  // namespace

int main() {
  test_timeout();
  test_a_worker_dies_amid_a_batch();
  test_drops();
  test_policy_changes();
  test_under_load();
}
