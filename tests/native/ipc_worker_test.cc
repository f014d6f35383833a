// Whole workers, as threads of one process: every policy over executors that watch who uses which
// core, over ones that sleep, and over a gang with kernels; policies that change meanwhile.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "cpus.h"
#include "fake_model.h"
#include "ipc_harness.h"
#include "native/ipc/futex.h"
#include "native/ipc/kernel_executor.h"
#include "native/ipc/null_executor.h"
#include "native/ipc/worker.h"

namespace {

using namespace harness;
using ipc::kNone;

constexpr int kCores = 4;
constexpr int kWorkers = 5;
constexpr int32_t kLayers = 4;
constexpr int64_t kUs = 1'000;

// Layers of 100 us on one core, less on more.
sched::ModelProfile short_profile(int64_t qos_ns) {
  sched::ModelProfile made;
  made.qos_ns = qos_ns;
  made.variants.assign(kLayers, 1);
  for (int32_t cores = 1; cores <= kCores; ++cores) {
    made.cores.push_back(cores);
    made.model_ns.push_back(100 * kUs * kLayers / cores);
  }
  for (int32_t l = 0; l < kLayers; ++l) {
    for (int32_t cores = 1; cores <= kCores; ++cores) made.layer_ns.push_back(100 * kUs / cores);
  }
  made.finish();
  return made;
}

// Which worker uses a core: checked by those that use it.
class CoreUse {
 public:
  void begin(int32_t core, int32_t worker) {
    int32_t nobody = kNone;
    CHECK(users_[core].compare_exchange_strong(nobody, worker));
  }
  void end(int32_t core, int32_t worker) {
    int32_t self = worker;
    CHECK(users_[core].compare_exchange_strong(self, kNone));
  }

 private:
  struct alignas(64) User {
    std::atomic<int32_t> value{kNone};
    bool compare_exchange_strong(int32_t& from, int32_t to) {
      return value.compare_exchange_strong(from, to);
    }
  };
  std::array<User, kCores> users_;
};

// A kernel that changes cores between its tasks, as a gang does, and says on which it runs.
class WatchedExecutor final : public ipc::Executor {
 public:
  WatchedExecutor(CoreUse& use, int32_t worker) : use_(use), worker_(worker) {}

  void begin(int32_t /*model*/, int32_t /*slot*/) override {}
  void set_cores(std::span<const int32_t> cores) override {
    uint32_t mask = 0;
    for (const int32_t core : cores) mask |= 1U << core;
    CHECK(mask != 0);
    wanted_ = mask;
  }
  bool in_use(int32_t core) const override { return ((announced_ >> core) & 1) != 0; }
  void expect_revocations(bool expected) override { expected_ = expected; }
  bool revocations_expected() const { return expected_; }
  void run(int32_t /*model*/, engine::LayerRange layers, int32_t /*cores*/,
           int32_t /*level*/) override {
    uint32_t used = 0;
    for (int task = 0; task < 4 * (layers.end - layers.begin); ++task) {
      used = change(used, wanted_);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    change(used, 0);
  }

 private:
  // Returns the cores that are used then: a core may be taken back just before it is begun, so it
  // is announced first and looked at again, as a gang does it.
  uint32_t change(uint32_t from, uint32_t to) {
    uint32_t used = from;
    for (int32_t core = 0; core < kCores; ++core) {
      const uint32_t bit = 1U << core;
      if ((from & bit) != 0 && (to & bit) == 0) {
        use_.end(core, worker_);
        used &= ~bit;
        announced_ &= ~bit;
      } else if ((from & bit) == 0 && (to & bit) != 0) {
        announced_ |= bit;
        if ((wanted_ & bit) != 0) {
          use_.begin(core, worker_);
          used |= bit;
        } else {
          announced_ &= ~bit;
        }
      }
    }
    return used;
  }

  CoreUse& use_;
  const int32_t worker_;
  std::atomic<uint32_t> wanted_{0};
  std::atomic<uint32_t> announced_{0};
  std::atomic<bool> expected_{false};
};

// Workers on threads of their own, from the constructor until `stop`.
class Workers {
 public:
  template <typename MakeExecutor>
  Workers(Server& server, int count, MakeExecutor make_executor) : server_(server) {
    for (int32_t w = 0; w < count; ++w) {
      workers_.push_back(
          std::make_unique<ipc::Worker>(server.segment, w, server.profiles, make_executor(w)));
    }
    threads_.reserve(workers_.size());
    for (auto& worker : workers_) threads_.emplace_back([&worker] { worker->run(); });
  }
  void stop() {
    server_.board->set_state(ipc::ServerState::kStopped);
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  Server& server_;
  std::vector<std::unique_ptr<ipc::Worker>> workers_;
  std::vector<std::thread> threads_;
};

// Answers by how queries ended.
struct Answers {
  int served = 0;
  int refused = 0;
};

// Sends `queries` in bursts, and checks that each is answered once.
Answers ask(Server& server, int queries, unsigned seed) {
  ipc::Client client(server.segment);
  std::mt19937 random(seed);
  std::vector<int> answers(queries);
  Answers found;
  int sent = 0;
  while (found.served + found.refused < queries) {
    for (unsigned burst = random() % 4; burst > 0 && sent < queries; --burst) {
      const auto model = static_cast<int32_t>(random() % server.profiles.size());
      int32_t query = kNone;
      if (!client.allocate(model, &query, ipc::monotonic_ns()).ok) break;
      const int64_t now_ns = ipc::monotonic_ns();
      CHECK(client.submit(query, now_ns, 0, sent++, now_ns).ok);
    }
    client.wait(sent < queries ? static_cast<int64_t>(random() % 500) * kUs : 50 * kMs);
    for (const ipc::Ended& ended : client.poll(64)) {
      CHECK(++answers[ended.tag] == 1);
      CHECK(ended.ok || ended.why == ipc::Failure::kDeadline);
      ++(ended.ok ? found.served : found.refused);
      CHECK(client.release(ended.query));
    }
  }
  return found;
}

void check_empty(Server& server) {
  server.check();
  CHECK(server.board->pending() == 0);
  CHECK(server.segment->header().free_cores == static_cast<int>(server.segment->cores().size()));
}

// One model with a short target, one with a long one.
std::unique_ptr<Server> server_with(const std::string& scheduling, int workers, int64_t qos_ns) {
  auto server = std::make_unique<Server>(kCores, workers,
                                         std::vector<ModelOptions>{{.slots = 12}, {.slots = 12}});
  server->profiles = {short_profile(qos_ns), short_profile(20 * qos_ns)};
  for (size_t m = 0; m < 2; ++m) {
    ipc::ModelRecord& model = server->segment->models()[m];
    model.qos_ns = server->profiles[m].qos_ns;
    model.expected_ns = model.fastest_ns = server->profiles[m].model_ns.back();
  }
  ipc::Policies policies;
  policies.scheduling = scheduling;
  policies.options.max_block_ns = 200 * kUs;
  server->board->set_policies(policies);
  return server;
}

// No core is ever used by two, with a target so short that cores are revoked and tasks refused.
void test_cores_are_used_by_one(const std::string& scheduling) {
  const auto server = server_with(scheduling, kWorkers, 2 * kMs);
  CoreUse use;
  Workers workers(*server, kWorkers,
                  [&use](int32_t w) { return std::make_unique<WatchedExecutor>(use, w); });
  const Answers answers = ask(*server, 400, 1);
  workers.stop();
  check_empty(*server);
  const auto revocations = static_cast<unsigned long>(server->segment->header().revocations);
  std::printf("%s: %d served, %d refused, %lu cores revoked\n", scheduling.c_str(), answers.served,
              answers.refused, revocations);
  uint32_t epoch = 0;
  CHECK(revocations == 0 || server->board->policies(&epoch).asks_for_more != 0);
}

// A query with a long target has all cores when one with a short target comes and takes some.
void test_revoking() {
  const auto server = server_with("deadline", kWorkers, 2 * kMs);
  CoreUse use;
  Workers workers(*server, kWorkers,
                  [&use](int32_t w) { return std::make_unique<WatchedExecutor>(use, w); });
  ipc::Client client(server->segment);
  for (int round = 0; round < 100; ++round) {
    for (const int32_t model : {1, 0}) {
      int32_t query = kNone;
      CHECK(client.allocate(model, &query, ipc::monotonic_ns()).ok);
      const int64_t now_ns = ipc::monotonic_ns();
      CHECK(client.submit(query, now_ns, 0, model, now_ns).ok);
      if (model == 1) std::this_thread::sleep_for(std::chrono::microseconds(100 + round));
    }
    for (int ended = 0; ended < 2;) {
      client.wait(50 * kMs);
      for (const ipc::Ended& each : client.poll(2)) {
        CHECK(each.ok || each.tag == 0);
        CHECK(client.release(each.query));
        ++ended;
      }
    }
  }
  workers.stop();
  check_empty(*server);
  const auto revocations = static_cast<unsigned long>(server->segment->header().revocations);
  std::printf("%lu cores revoked\n", revocations);
  CHECK(revocations > 20);
}

// Runs one block for as long as it is told to. Once armed, one of the cores is revoked as it is
// told them.
class InterruptedExecutor final : public ipc::Executor {
 public:
  explicit InterruptedExecutor(std::function<void()> revoke) : revoke_(std::move(revoke)) {}

  void begin(int32_t /*model*/, int32_t /*slot*/) override {}
  void set_cores(std::span<const int32_t> cores) override {
    told_.assign(cores.begin(), cores.end());
    if (std::exchange(revoked_, false)) CHECK(cores.size() == 1);
    if (!armed.exchange(false)) return;
    revoke_();
    revoked_ = true;
  }
  // Nothing is in use as yet: the block hasn't come to its first kernel.
  bool in_use(int32_t core) const override {
    CHECK(std::ranges::find(told_, core) == told_.end());
    return false;
  }
  void expect_revocations(bool /*expected*/) override {}
  void run(int32_t /*model*/, engine::LayerRange /*layers*/, int32_t /*cores*/,
           int32_t /*level*/) override {
    running = true;
    running.notify_all();
    ended.wait(false);
  }

  std::atomic<bool> running{false};
  std::atomic<bool> ended{false};
  std::atomic<bool> armed{false};

 private:
  const std::function<void()> revoke_;
  std::vector<int32_t> told_;
  bool revoked_ = false;  // as they were told last
};

// A core that is revoked just as the executor is told to use it is only let go when the executor
// has been told otherwise: until then it may begin to use it at any time.
void test_a_core_is_not_let_go_that_the_executor_was_told_to_use() {
  // Two cores keep the target, however late a thread is on a busy machine; one doesn't.
  Server server(2, 2, {{.cores = 2, .qos_ns = 60'000 * kMs}}, false, "deadline");
  sched::ModelProfile& profile = server.profiles.front();
  profile.model_ns.front() = 200'000 * kMs;
  for (size_t at = 0; at < profile.layer_ns.size(); at += 2) profile.layer_ns[at] = 100'000 * kMs;
  profile.finish();
  ipc::Board& board = *server.board;
  const RevokingPolicy policy;
  const ipc::Scheduler scheduler{policy, server.profiles, nullptr, 0};
  const int32_t client = board.add_client(1);
  std::atomic<int32_t> task{kNone};
  auto executor = std::make_unique<InterruptedExecutor>([&] {
    const ipc::Step step = board.take(0, scheduler, ipc::monotonic_ns());
    CHECK(step.decision.task != kNone && step.decision.cores == 1);
    task = step.decision.task;
  });
  InterruptedExecutor& block = *executor;
  ipc::Worker worker(server.segment, 1, server.profiles, std::move(executor));
  std::thread thread([&worker] { worker.run(); });
  post(board, client, 0, 0, ipc::monotonic_ns());
  block.running.wait(false);
  CHECK(server.held(1) == 2);
  board.join(0, 1, ipc::monotonic_ns());
  post(board, client, 0, 1, ipc::monotonic_ns());
  block.armed = true;
  std::atomic<uint32_t>& cores = server.segment->workers()[1].cores;
  ++cores;  // the second thread looks at them
  ipc::futex_wake_all(cores);
  ipc::OwnedCores other;
  for (int look = 0; other.held.empty() && look < 20'000; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    board.read_cores(0, &other);
  }
  CHECK(task != kNone && other.held.size() == 1 && server.held(1) == 1);
  block.ended = true;
  block.ended.notify_all();
  board.complete(0, "", ipc::monotonic_ns());
  for (int answered = 0; answered < 2;) {
    ipc::Ended ended;
    answered += static_cast<int>(board.collect(client, {&ended, 1}));
  }
  board.set_state(ipc::ServerState::kStopped);
  thread.join();
  server.check();
}

void test_policies_change(int queries) {
  const auto made = server_with("model", kWorkers, 5 * kMs);
  Server& server = *made;
  CoreUse use;
  Workers workers(server, kWorkers,
                  [&use](int32_t w) { return std::make_unique<WatchedExecutor>(use, w); });
  std::atomic<bool> done{false};
  std::thread changer([&] {
    unsigned turn = 0;
    const std::vector<std::string_view> names = sched::policy_names();
    while (!done) {
      ipc::Policies policies;
      policies.scheduling = names[turn++ % names.size()];
      server.board->set_policies(policies);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  ask(server, queries, 2);
  done = true;
  changer.join();
  workers.stop();
  check_empty(server);
  ipc::Policies unknown;
  unknown.scheduling = "fifo";
  CHECK_THROWS(server.board->set_policies(unknown), std::invalid_argument);
}

// A worker that has a policy which takes cores back says so to its executor.
void test_executors_expect_revocations() {
  CoreUse use;
  for (const std::string_view name : sched::policy_names()) {
    const auto made = server_with(std::string(name), 1, 5 * kMs);
    auto executor = std::make_unique<WatchedExecutor>(use, 0);
    const WatchedExecutor& watched = *executor;
    const ipc::Worker worker(made->segment, 0, made->profiles, std::move(executor));
    const auto policy = sched::make_policy(name, kCores, made->profiles);
    CHECK(watched.revocations_expected() == policy->needs().revoking);
  }
}

// One block of 4 layers takes 400 us on one core; two queries side by side don't wait.
void test_a_null_executor_takes_the_time() {
  const auto made = server_with("model", 2, 100 * kMs);
  Server& server = *made;
  Workers workers(server, 2, [&server](int32_t) {
    return std::make_unique<ipc::NullExecutor>(server.segment, server.profiles);
  });
  ipc::Client client(server.segment);
  for (int round = 0; round < 5; ++round) {
    std::vector<ipc::Ended> ended;
    for (int i = 0; i < 2; ++i) {
      int32_t query = kNone;
      CHECK(client.allocate(0, &query, ipc::monotonic_ns()).ok);
      const int64_t now_ns = ipc::monotonic_ns();
      CHECK(client.submit(query, now_ns, 0, i, now_ns).ok);
    }
    while (ended.size() < 2) {
      client.wait(kMs);
      for (const ipc::Ended& each : client.poll(2)) ended.push_back(each);
    }
    for (const ipc::Ended& each : ended) {
      CHECK(each.ok && each.compute_ns >= 400 * kUs);
      CHECK(client.release(each.query));
    }
  }
  workers.stop();
  check_empty(server);
}

// A null executor that gains cores ends earlier.
void test_a_null_executor_changes_cores() {
  const std::vector<sched::ModelProfile> profiles = {resampled(
      [] {
        sched::ModelProfile slow = short_profile(0);
        for (int64_t& ns : slow.layer_ns) ns *= 1000;
        for (int64_t& ns : slow.model_ns) ns *= 1000;
        return slow;
      }(),
      {1, 2, 3, 4})};
  const auto server = server_with("model", 1, kMs);
  ipc::NullExecutor executor(server->segment, profiles);
  const std::array<int32_t, 4> cores = {0, 1, 2, 3};
  executor.set_cores({cores.data(), 1});
  const int64_t begin_ns = ipc::monotonic_ns();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    executor.set_cores(cores);
  });
  executor.run(0, {0, kLayers}, 4, 0);  // 400 ms on one core, 100 ms on four: 20 + 95
  other.join();
  const int64_t took_ns = ipc::monotonic_ns() - begin_ns;
  CHECK(took_ns >= 110 * kMs && took_ns < 300 * kMs);
}

// Twice as long at the one level that there is beside the one alone, which is a slow-down of 0.5.
sched::ModelProfile disturbed_profile() {
  sched::ModelProfile made = short_profile(20 * kMs);
  made.levels = 2;
  made.slowdowns = {0, 0.5};
  for (auto* times : {&made.model_ns, &made.layer_ns}) {
    std::vector<int64_t> doubled;
    for (const int64_t time_ns : *times) {
      doubled.push_back(20 * time_ns);
      doubled.push_back(40 * time_ns);
    }
    *times = doubled;
  }
  made.finish();
  return made;
}

// Runs queries one after the other, and returns what the blocks' sums say of the level meanwhile.
double level_of(Server& server, ipc::Client& client, int queries) {
  server.board->read_blocks();  // what follows is of these queries
  for (int i = 0; i < queries; ++i) {
    int32_t query = kNone;
    CHECK(client.allocate(0, &query, ipc::monotonic_ns()).ok);
    const int64_t now_ns = ipc::monotonic_ns();
    CHECK(client.submit(query, now_ns, 0, i, now_ns).ok);
    std::vector<ipc::Ended> ended;
    while (ended.empty()) {
      client.wait(10 * kMs);
      ended = client.poll(1);
    }
    CHECK(ended.front().ok && client.release(ended.front().query));
  }
  const ipc::BlockTotals read = server.board->read_blocks()[0];
  CHECK(read.blocks == queries && read.alone_ns == 8.0 * kMs * queries);
  return read.excess / read.weight;
}

// The least of some such levels, none of which may be below `least`: a sleep ends late, never
// early, and on a busy machine much too late, but not each time.
double least_level_of(Server& server, ipc::Client& client, double least, double enough) {
  double found = level_of(server, client, 5);
  for (int attempt = 0; attempt < 50 && found > enough; ++attempt) {
    found = std::min(found, level_of(server, client, 5));
  }
  CHECK(found > least);
  return found;
}

// Workers tell how much longer than alone their blocks take, and decide by what is measured.
void test_workers_measure() {
  const auto made = std::make_unique<Server>(kCores, 1, std::vector<ModelOptions>{{}});
  made->profiles = {disturbed_profile()};
  ipc::Policies policies;
  policies.scheduling = "veltair-ac";
  policies.measured = true;
  made->board->set_policies(policies);
  std::atomic<int32_t>& emulated = made->segment->header().emulated_slowdown;
  emulated = 0;
  Workers workers(*made, 1, [&made](int32_t) {
    return std::make_unique<ipc::NullExecutor>(made->segment, made->profiles);
  });
  ipc::Client client(made->segment);
  CHECK(least_level_of(*made, client, 0.0, 0.2) < 0.2);
  emulated = 500'000;
  CHECK(least_level_of(*made, client, 0.5, 0.7) < 0.7);
  emulated = 10'000'000;  // a block counts as at twice the highest level at most
  const double stopped = level_of(*made, client, 1);
  CHECK(stopped > 0.99 && stopped < 1.01);
  emulated = 0;
  const uint64_t unmeasured = made->segment->header().decisions_unmeasured;
  CHECK(unmeasured >= 11);
  const sched::Measured level{
      .slowdown = 400'000, .confidence = sched::kMillion, .time_ns = ipc::monotonic_ns()};
  made->board->tell_levels(level, {&level, 1}, "self");
  level_of(*made, client, 1);
  CHECK(made->segment->header().decisions_unmeasured == unmeasured);
  workers.stop();
  check_empty(*made);
}

// Kernels on a gang, blocks of one layer: the outputs are right while cores come and go.
void test_kernels(const std::string& scheduling) {
  namespace fakes = engine::fakes;
  const fakes::WeightsFile weights;
  const auto model = std::make_shared<const engine::Model>(fakes::ffi(), fakes::add_model(weights));
  const std::vector<int> cpus = usable_cpus();
  const int cores = std::min<int>(static_cast<int>(cpus.size()), kCores);
  sched::ModelProfile profile = short_profile(20 * kMs);
  profile.variants.assign(3, 1);
  profile.layer_ns.resize(size_t{3} * kCores);
  profile.finish();

  ipc::SegmentSpec spec;
  spec.cpus.assign(cpus.begin(), cpus.begin() + cores);
  spec.workers = 3;
  spec.policies.scheduling = scheduling;
  ipc::ModelSpec each;
  each.name = "add";
  each.input_bytes = {fakes::kBytes};
  each.output_bytes = {fakes::kBytes};
  each.slots = 6;
  each.qos_ns = 20 * kMs;
  spec.models.push_back(each);
  const auto segment = ipc::Segment::create(spec);
  ipc::Board board(segment);
  board.set_model_state(0, ipc::ModelState::kReady, "");
  board.set_state(ipc::ServerState::kServing);
  std::vector<std::unique_ptr<ipc::Worker>> workers;
  std::vector<std::thread> threads;
  for (int32_t w = 0; w < 3; ++w) {
    workers.push_back(std::make_unique<ipc::Worker>(
        segment, w, std::vector{profile},
        std::make_unique<ipc::KernelExecutor>(segment, w, std::vector{model}, std::vector{profile},
                                              engine::GangOptions{})));
    threads.emplace_back([&worker = *workers.back()] { worker.run(); });
  }
  ipc::Client client(segment);
  const ipc::ModelRecord& record = segment->models()[0];
  int answered = 0;
  for (int sent = 0; answered < 200;) {
    int32_t query = kNone;
    while (sent < 200 && client.allocate(0, &query, ipc::monotonic_ns()).ok) {
      auto* in = reinterpret_cast<float*>(segment->tensor(record, 0, query));
      for (int64_t i = 0; i < fakes::kLength; ++i) in[i] = static_cast<float>(sent);
      const int64_t now_ns = ipc::monotonic_ns();
      CHECK(client.submit(query, now_ns, now_ns + 60'000 * kMs, sent++, now_ns).ok);
    }
    client.wait(50 * kMs);
    for (const ipc::Ended& ended : client.poll(64)) {
      CHECK(ended.ok);
      const auto* out = reinterpret_cast<const float*>(segment->tensor(record, 1, ended.query));
      for (int64_t i = 0; i < fakes::kLength; ++i) {
        CHECK(out[i] == static_cast<float>(ended.tag) + 3 * static_cast<float>(i));
      }
      CHECK(client.release(ended.query));
      ++answered;
    }
  }
  board.set_state(ipc::ServerState::kStopped);
  for (std::thread& thread : threads) thread.join();
  CHECK(board.check().empty() && board.pending() == 0);
}

// Kernels are cut into tasks of some 50 us where cores may be taken back, and only there.
void test_kernels_are_cut_where_cores_leave() {
  namespace fakes = engine::fakes;
  const std::vector<int> cpus = usable_cpus();
  if (cpus.size() < 2) return;
  const fakes::WeightsFile weights;
  const auto model =
      std::make_shared<const engine::Model>(fakes::ffi(), fakes::telling_model(weights));
  sched::ModelProfile profile;
  profile.cores = {1, 2};
  profile.variants.assign(3, 1);
  profile.model_ns = {6 * kMs, 3 * kMs};
  for (int layer = 0; layer < 3; ++layer) {
    for (const int64_t ns : {2 * kMs, kMs}) profile.layer_ns.push_back(ns);
  }
  profile.finish();
  ipc::SegmentSpec spec;
  spec.cpus = {cpus[0], cpus[1]};
  spec.workers = 1;
  ipc::ModelSpec each;
  each.name = "tell";
  each.input_bytes = {fakes::kBytes};
  each.output_bytes = {fakes::kBytes};
  spec.models.push_back(each);
  const auto segment = ipc::Segment::create(spec);
  ipc::KernelExecutor executor(segment, 0, {model}, {profile}, engine::GangOptions{});
  executor.begin(0, 0);
  const auto* out = reinterpret_cast<const float*>(segment->tensor(segment->models()[0], 1, 0));
  const std::array<int32_t, 2> cores = {0, 1};
  for (const bool expected : {false, true, false}) {
    executor.set_cores(cores);
    executor.expect_revocations(expected);
    executor.run(0, {0, 3}, 2, 0);
    const auto tasks = static_cast<int64_t>(out[0]);
    CHECK(expected ? tasks >= 2 * kMs / (50 * kUs) : tasks <= 8);
    executor.set_cores({cores.data(), 1});
    executor.run(0, {0, 3}, 1, 0);
    CHECK(out[0] == 1);  // the last core is never taken
  }
}

}  // namespace

int main() {
  for (const std::string_view name : sched::policy_names()) {
    test_cores_are_used_by_one(std::string(name));
  }
  test_revoking();
  test_a_core_is_not_let_go_that_the_executor_was_told_to_use();
  test_policies_change(1000);
  test_executors_expect_revocations();
  test_kernels_are_cut_where_cores_leave();
  test_a_null_executor_takes_the_time();
  test_a_null_executor_changes_cores();
  test_workers_measure();
  for (const char* name : {"layer", "prema", "veltair-as", "deadline", "veltair-deadline"}) {
    test_kernels(name);
  }
}
