// The recorder: what its lines hold, what it does without room, and when it can't write.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "native/sched/policy.h"
#include "native/sched/record.h"
#include "native/sched/recorded_view.h"

namespace {

using namespace veltair::sched;

// A file that is gone when the test ends.
class File {
 public:
  File() : file_(std::tmpfile()) { CHECK(file_ != nullptr); }
  ~File() { std::fclose(file_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return fileno(file_); }
  std::vector<std::string> lines() const {
    std::vector<std::string> found(1);
    char c;
    for (off_t at = 0; pread(descriptor(), &c, 1, at) == 1; ++at) {
      if (c == '\n') {
        found.emplace_back();
      } else {
        found.back() += c;
      }
    }
    CHECK(found.back().empty());  // the last line ends too
    found.pop_back();
    return found;
  }

 private:
  std::FILE* const file_;
};

// Two layers of 1000 ns on one core, 600 on two.
ModelProfile small_model() {
  ModelProfile made;
  made.qos_ns = 5000;
  made.cores = {1, 2};
  made.model_ns = {2000, 1200};
  made.variants = {1, 1};
  made.layer_ns = {1000, 600, 1000, 600};
  made.finish();
  return made;
}

// Two workers of which the second runs task 0, and tasks 7, 3 and 5 in the queue.
struct State {
  std::vector<ModelProfile> models = {small_model()};
  std::vector<Task> tasks = std::vector<Task>(8);
  std::vector<Running> workers = std::vector<Running>(2);
  mutable IdSet busy{64};

  State() {
    for (int32_t t : {0, 3, 5, 7}) {
      tasks[t] = {.model = 0,
                  .arrival_ns = 10 + t,
                  .deadline_ns = 5010 + t,
                  .order = 20 + t,
                  .lead_ns = 30 + t};
    }
    tasks[0].next_layer = 1;
    tasks[7].next = 3;
    tasks[3].next = 5;
    workers[1] = {.task = 0,
                  .layer_begin = 0,
                  .layer_end = 1,
                  .cores_wanted = 2,
                  .cores_held = 1,
                  .started_ns = 30,
                  .block_started_ns = 40,
                  .block_expected_ns = 600};
  }
  View view() const {
    const Table table(workers.data(), sizeof(Running), static_cast<int32_t>(workers.size()));
    find_busy(table, busy);
    return {.models = models,
            .tasks = {tasks.data(), sizeof(Task), 8},
            .queue_head = 7,
            .queue_length = 3,
            .workers = table,
            .busy = &busy,
            .total_cores = 3,
            .free_cores = 2,
            .level = 1};
  }
};

constexpr Event kIdle{EventKind::kWorkerIdle, 0};

void test_line_has_what_the_policy_reads() {
  const State state;
  const File file;
  Recorder recorder(file.descriptor(), {.workers = 2});
  for (const char* name : {"model", "deadline"}) {
    const auto policy = make_policy(name, 3, state.models);
    const Decision decision = policy->decide(state.view(), kIdle, 100);
    recorder.note(*policy, state.view(), kIdle, 100, decision, {.sequence = 4, .epoch = 2});
  }
  CHECK(file.lines().empty());  // nothing is written under the caller's lock
  recorder.flush();
  const std::vector<std::string> lines = file.lines();
  CHECK(lines.size() == 2);
  const std::string begin =
      R"({"kind":"decision","sequence":4,"epoch":2,"now_ns":100,"event":"worker_idle","worker":0,)"
      R"("free_cores":2,"level":1,"queue_length":3,"queue":[[7,0,1,1,0,0,0,17,5017,27,37])";
  const std::string rest =
      R"(],"tasks":[[0,0,1,1,1,0,0,10,5010,20,30]],"workers":[[1,0,0,1,0,2,1,30,40,600]],)"
      R"("decision":{"task":7,"layer_begin":0,"layer_end":2,"level":0,"cores":)";
  CHECK(lines[0].starts_with(begin + rest + "1,\"action\":\"run\",\"reason\":\"the fewest"));
  CHECK(lines[0].ends_with(R"("expected_ns":0,"revoke_worker":-1,"revoke_keep":0}})"));
  CHECK(lines[1].starts_with(begin +
                             ",[3,0,1,1,0,0,0,13,5013,23,33],[5,0,1,1,0,0,0,15,5015,25,35]],"));
}

void test_measured_slowdown() {
  const State state;
  const File file;
  Recorder recorder(file.descriptor(), {.workers = 2});
  const auto policy = make_policy("model", 3, state.models);
  View view = state.view();
  view.slowdown = 250'000;
  recorder.note(*policy, view, kIdle, 100, policy->decide(view, kIdle, 100), {});
  recorder.flush();
  CHECK(file.lines().front().find(R"("level":1,"slowdown":250000,"queue_length")") !=
        std::string::npos);
}

void test_same_decision_from_the_parts() {
  const State state;
  const auto policy = make_policy("deadline", 3, state.models);
  const Decision decision = policy->decide(state.view(), kIdle, 100);
  const auto named = [&](int32_t id) { return NamedTask{id, state.tasks[id]}; };
  const std::vector<NamedTask> queue = {named(7), named(3), named(5)};
  const std::vector<NamedTask> tasks = {named(0)};
  const std::vector<NamedWorker> workers = {{1, state.workers[1]}};
  RecordedView again(state.models, 3, 2);
  again.set({queue, tasks, workers, 3, 2, 1});
  const Decision found = again.decide(*policy, kIdle, 100);
  CHECK(found.task == decision.task && found.task == 3);  // the earliest deadline, by its own id
  CHECK(found.cores == decision.cores && found.layer_end == decision.layer_end);
  CHECK(found.reason == decision.reason && found.expected_ns == decision.expected_ns);
  const Decision next = again.decide(*policy, {EventKind::kBlockEnd, 1}, 100);
  CHECK(next.task == 0 && next.layer_begin == 1);
}

void test_views_that_cannot_be() {
  const State state;
  const auto policy = make_policy("deadline", 3, state.models);
  RecordedView view(state.models, 3, 2);
  const auto set = [&](NamedTask queued, NamedTask task, NamedWorker worker, int32_t free_cores) {
    view.set({{&queued, 1}, {&task, 1}, {&worker, 1}, 1, free_cores, 0});
  };
  const NamedTask queued{7, state.tasks[7]};
  const NamedTask task{0, state.tasks[0]};
  const NamedWorker worker{1, state.workers[1]};
  set(queued, task, worker, 2);
  CHECK_THROWS(view.decide(*policy, {EventKind::kBlockEnd, 0}, 0), std::invalid_argument);
  CHECK_THROWS(view.decide(*policy, {EventKind::kWorkerIdle, 1}, 0), std::invalid_argument);
  CHECK_THROWS(view.decide(*policy, {EventKind::kWorkerIdle, 2}, 0), std::invalid_argument);
  CHECK_THROWS(set(queued, task, worker, 3), std::invalid_argument);    // 4 cores of 3
  CHECK_THROWS(set(queued, queued, worker, 2), std::invalid_argument);  // twice
  CHECK_THROWS(set(queued, task, {2, worker.running}, 2), std::invalid_argument);
  CHECK_THROWS(set({7, {.model = 1}}, task, worker, 2), std::invalid_argument);
  CHECK_THROWS(set({7, {.model = 0, .next_layer = 2}}, task, worker, 2), std::invalid_argument);
  CHECK_THROWS(set(queued, {1, state.tasks[0]}, worker, 2), std::invalid_argument);
  CHECK_THROWS(set({-2, state.tasks[7]}, task, worker, 2), std::invalid_argument);
  CHECK_THROWS(view.set({{}, {}, {}, 1, 1, 0}), std::invalid_argument);
  CHECK_THROWS(RecordedView({}, 0, 1), std::invalid_argument);
}

// Beyond its room a recorder leaves out decisions, says which, and records those that come later.
void test_no_room() {
  const State state;
  const File file;
  const auto whole = make_policy("deadline", 3, state.models);
  const auto head = make_policy("model", 3, state.models);
  Recorder recorder(file.descriptor(), {.workers = 2, .queue = 2, .decisions = 3});
  recorder.note(*head, state.view(), kIdle, 1, {}, {.sequence = 0});
  recorder.note(*whole, state.view(), kIdle, 2, {}, {.sequence = 1});
  recorder.note(*head, state.view(), kIdle, 3, {}, {.sequence = 2});
  recorder.note(*head, state.view(), kIdle, 4, {}, {.sequence = 3});  // the fourth
  recorder.flush();
  recorder.note(*head, state.view(), kIdle, 5, {}, {.sequence = 4});
  recorder.flush();
  const std::vector<std::string> lines = file.lines();
  CHECK(lines.size() == 4);
  CHECK(lines[1] == R"({"kind":"skipped","sequence":1,"epoch":0,"now_ns":2,"queue_length":3})");
  for (const auto& [line, sequence] : {std::pair{0, 0}, std::pair{2, 2}, std::pair{3, 4}}) {
    const std::string begin = R"({"kind":"decision","sequence":)" + std::to_string(sequence);
    CHECK(lines[line].starts_with(begin + ","));
    const size_t queue = lines[line].find(R"("queue":[[7,0,1,1,0,0,0,17,5017,27,37]],"tasks")");
    CHECK(queue != std::string::npos);
  }
}

void test_buffered_until_the_end() {
  const State state;
  const File file;
  const auto policy = make_policy("model", 3, state.models);
  {
    Recorder recorder(file.descriptor(), {.workers = 2, .buffered_bytes = 1000});
    recorder.note(*policy, state.view(), kIdle, 1, {}, {});
    recorder.flush();
    CHECK(file.lines().empty());
    recorder.note(*policy, state.view(), kIdle, 1, {}, {.sequence = 1});
    recorder.flush();
    recorder.note(*policy, state.view(), kIdle, 1, {}, {.sequence = 2});
  }
  CHECK(file.lines().size() == 3);
}

void test_policies_come_before_their_decisions() {
  const State state;
  const File file;
  const auto policy = make_policy("block-3", 3, state.models);
  Recorder recorder(file.descriptor(), {.workers = 2});
  recorder.tell_policy("block-3", {.max_block_ns = 7, .partition_cores = 2}, 5);
  recorder.note(*policy, state.view(), kIdle, 1, {}, {.sequence = 0, .epoch = 5});
  recorder.flush();
  const std::vector<std::string> lines = file.lines();
  CHECK(lines.size() == 2 && lines[1].starts_with(R"({"kind":"decision","sequence":0,"epoch":5,)"));
  CHECK(
      lines[0] ==
      R"({"kind":"policy","epoch":5,"name":"block-3","options":{"max_block_ns":7,)"
      R"("margin_percent":75,"late_percent":5,"refuse_late":false,"partition_cores":2,"threshold_cores":-1}})");
}

void test_full_disk() {
  const State state;
  const int full = open("/dev/full", O_WRONLY);
  CHECK(full >= 0);
  const auto policy = make_policy("model", 3, state.models);
  Recorder recorder(full, {.workers = 2});
  recorder.flush();
  CHECK(recorder.error() == 0);  // there was nothing to write
  recorder.note(*policy, state.view(), kIdle, 1, {}, {});
  recorder.flush();
  CHECK(recorder.error() == ENOSPC);
  close(full);
  recorder.note(*policy, state.view(), kIdle, 1, {}, {.sequence = 1});
  recorder.flush();
  CHECK(recorder.error() == ENOSPC);
  CHECK(Recorder(-1, {}).error() == EBADF);
}

// A descriptor that the caller has closed may be another file by now.
void test_descriptor_of_its_own() {
  const State state;
  const File file;
  const auto policy = make_policy("model", 3, state.models);
  const int given = dup(file.descriptor());
  Recorder recorder(given, {.workers = 2});
  close(given);
  const File other;
  recorder.note(*policy, state.view(), kIdle, 1, {}, {});
  recorder.flush();
  CHECK(file.lines().size() == 1 && other.lines().empty() && recorder.error() == 0);
}

void test_batches() {
  const File file;
  Batcher batcher(make_batching("eager"), make_placement("first-fit"),
                  std::vector<BatchCost>{{.alpha_ns = 10, .beta_ns = 50}}, std::vector<Executor>(1),
                  2);
  Recorder recorder(file.descriptor(), {});
  const auto arrive = [&](int64_t query) {
    const BatchEvent event{.kind = BatchEventKind::kArrival,
                           .model = 0,
                           .query = query,
                           .arrival_ns = 5,
                           .deadline_ns = 500};
    recorder.note_batch(event, 5, batcher.on_arrival(0, query, 5, 500, 5), {.sequence = query});
  };
  for (int64_t query = 0; query < 4; ++query) arrive(query);
  recorder.note_batch({.kind = BatchEventKind::kExecutorFree, .executor = 0}, 65,
                      batcher.on_executor_free(0, 65), {.sequence = 4, .epoch = 1});
  const std::vector<std::string> lines = file.lines();
  CHECK(lines.size() == 5);
  CHECK(lines[0] ==
        R"({"kind":"batch","sequence":0,"epoch":0,"now_ns":5,"event":"arrival","model":0,)"
        R"("query":0,"arrival_ns":5,"deadline_ns":500,"dispatches":[{"model":0,"executor":0,)"
        R"("queries":[0],"expected_ns":65,"deadline_ns":500,"moment":"the policy does not wait",)"
        R"("match":"its moment came while an executor was free"}],"drops":[]})");
  CHECK(lines[3].ends_with(
      R"("drops":[{"query":3,"model":0,"reason":"its model's queue is full"}]})"));
  CHECK(lines[4].starts_with(
      R"({"kind":"batch","sequence":4,"epoch":1,"now_ns":65,"event":"executor_free","executor":0,)"
      R"("dispatches":[{"model":0,"executor":0,"queries":[1,2],)"));
}

// Texts are written without escapes.
void test_texts() {
  const auto is_plain = [](std::string_view text) {
    for (char c : text) {
      if (c == '"' || c == '\\' || c < ' ') return false;
    }
    return true;
  };
  for (int reason = 0; reason < 256; ++reason) {
    CHECK(is_plain(reason_text(static_cast<Reason>(reason))));
    CHECK(is_plain(drop_text(static_cast<DropReason>(reason))));
    CHECK(is_plain(moment_text(static_cast<Moment>(reason))));
    CHECK(is_plain(match_text(static_cast<Match>(reason))));
  }
}

}  // namespace

int main() {
  test_line_has_what_the_policy_reads();
  test_measured_slowdown();
  test_same_decision_from_the_parts();
  test_views_that_cannot_be();
  test_no_room();
  test_buffered_until_the_end();
  test_policies_come_before_their_decisions();
  test_full_disk();
  test_descriptor_of_its_own();
  test_batches();
  test_texts();
}
