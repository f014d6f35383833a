#include "native/sched/record.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <span>
#include <string_view>

namespace veltair::sched {
namespace {

constexpr size_t kRowBytes = 220;  // of a task or a worker: eleven numbers of at most twenty digits
constexpr size_t kLineBytes = 800;  // of a decision beside those

// Appends JSON to a string: no allocation where that has room. Texts come from this library and
// need no escapes.
class Json {
 public:
  explicit Json(std::string& text) : text_(text) {}

  Json& raw(std::string_view piece) {
    text_ += piece;
    return *this;
  }
  Json& number(int64_t value) {
    char digits[std::numeric_limits<int64_t>::digits10 + 3];
    const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), value);
    (void)error;  // there is room for any
    text_.append(digits, end);
    return *this;
  }
  // `"key":`, with a comma before it.
  Json& key(std::string_view name) { return raw(",\"").raw(name).raw("\":"); }
  Json& field(std::string_view name, int64_t value) { return key(name).number(value); }
  Json& field(std::string_view name, std::string_view value) {
    return key(name).raw("\"").raw(value).raw("\"");
  }
  Json& row(std::initializer_list<int64_t> values) {
    raw("[");
    for (const int64_t& value : values) {
      if (&value != values.begin()) raw(",");
      number(value);
    }
    return raw("]");
  }
  template <typename Rows, typename Write>
  Json& list(std::string_view name, const Rows& rows, Write write) {
    key(name).raw("[");
    bool first = true;
    for (const auto& row : rows) {
      if (!first) raw(",");
      first = false;
      write(row);
    }
    return raw("]");
  }

 private:
  std::string& text_;
};

std::string_view name_of(EventKind kind) {
  return kind == EventKind::kWorkerIdle ? "worker_idle" : "block_end";
}

std::string_view name_of(Action action) {
  switch (action) {
    case Action::kRun:
      return "run";
    case Action::kWait:
      return "wait";
    case Action::kRefuse:
      return "refuse";
    case Action::kReturn:
      return "return";
  }
  return "";
}

std::string_view name_of(BatchEventKind kind) {
  switch (kind) {
    case BatchEventKind::kArrival:
      return "arrival";
    case BatchEventKind::kExecutorFree:
      return "executor_free";
    case BatchEventKind::kTimer:
      return "timer";
  }
  return "";
}

void append_tasks(Json& json, std::string_view name, std::span<const NamedTask> tasks) {
  json.list(name, tasks, [&](const NamedTask& each) {
    const Task& t = each.task;
    json.row({each.id, t.model, t.queries, t.passes, t.next_layer, t.executor, t.attempts,
              t.arrival_ns, t.deadline_ns, t.order, t.lead_ns});
  });
}

Json begin_line(std::string& text, std::string_view kind, Stamp stamp, int64_t now_ns) {
  Json json(text);
  json.raw("{\"kind\":\"").raw(kind).raw("\"").field("sequence", stamp.sequence);
  json.field("epoch", stamp.epoch).field("now_ns", now_ns);
  return json;
}

}  // namespace

void append_decision(std::string& text, Stamp stamp, int64_t now_ns, const Event& event,
                     const ViewParts& parts, const Decision& decision) {
  Json json = begin_line(text, "decision", stamp, now_ns);
  json.field("event", name_of(event.kind)).field("worker", event.worker);
  json.field("free_cores", parts.free_cores).field("level", parts.level);
  if (parts.slowdown != kNone) json.field("slowdown", parts.slowdown);
  if (parts.pace != kAsPredicted) json.field("pace", parts.pace);
  json.field("queue_length", parts.queue_length);
  append_tasks(json, "queue", parts.queue);
  append_tasks(json, "tasks", parts.tasks);
  json.list("workers", parts.workers, [&](const NamedWorker& each) {
    const Running& r = each.running;
    json.row({each.index, r.task, r.layer_begin, r.layer_end, r.level, r.cores_wanted, r.cores_held,
              r.started_ns, r.block_started_ns, r.block_expected_ns});
  });
  json.key("decision").raw("{\"task\":").number(decision.task);
  json.field("layer_begin", decision.layer_begin).field("layer_end", decision.layer_end);
  json.field("level", decision.level).field("cores", decision.cores);
  json.field("action", name_of(decision.action)).field("reason", reason_text(decision.reason));
  json.field("expected_ns", decision.expected_ns).field("revoke_worker", decision.revoke_worker);
  json.field("revoke_keep", decision.revoke_keep).raw("}}\n");
}

Recorder::Recorder(int descriptor, const RecordRoom& room)
    : descriptor_(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)), room_(room) {
  if (descriptor_ < 0) error_ = errno;
  noted_.reserve(room.decisions);
  queue_.reserve(room.queue);
  const size_t workers = static_cast<size_t>(room.workers) * room.decisions;
  tasks_.reserve(workers);
  workers_.reserve(workers);
  text_.reserve(room.buffered_bytes + kLineBytes * room.decisions +
                kRowBytes * (room.queue + 2 * workers));
}

Recorder::~Recorder() {
  flush();
  write_out();
  if (descriptor_ >= 0) close(descriptor_);
}

void Recorder::tell_policy(std::string_view name, const PolicyOptions& options, int32_t epoch) {
  if (error() != 0) return;
  Json json(text_);
  json.raw("{\"kind\":\"policy\"").field("epoch", epoch).field("name", name);
  json.key("options").raw("{\"max_block_ns\":").number(options.max_block_ns);
  json.field("margin_percent", options.margin_percent);
  json.field("late_percent", options.late_percent);
  json.key("refuse_late").raw(options.refuse_late ? "true" : "false");
  json.field("partition_cores", options.partition_cores);
  json.field("threshold_cores", options.threshold_cores).raw("}}\n");
}

void Recorder::tell_batcher(std::string_view batching, std::string_view placement,
                            int32_t queue_limit, std::span<const BatchCost> costs,
                            int32_t executors, int32_t epoch) {
  if (error() != 0) return;
  Json json(text_);
  json.raw("{\"kind\":\"batcher\"").field("epoch", epoch).field("batching", batching);
  json.field("placement", placement).field("queue_limit", queue_limit);
  json.list("costs", costs, [&](const BatchCost& each) {
    json.raw("{\"alpha_ns\":").number(each.alpha_ns).field("beta_ns", each.beta_ns);
    json.field("max_batch", each.max_batch).field("timeout_ns", each.timeout_ns);
    json.field("least_percent", each.least_percent).raw("}");
  });
  const std::vector<std::string_view> kinds(executors, "\"local_cores\"");
  json.list("executors", kinds, [&](std::string_view kind) { json.raw(kind); });
  json.raw("}\n");
}

// Whether all of it fits; what was copied of one that doesn't is taken back by the caller.
bool Recorder::copy(const View& view, int32_t queued) {
  for (int32_t t = view.queue_head; t != kNone && queued > 0; t = view.tasks[t].next, --queued) {
    if (queue_.size() == queue_.capacity()) return false;
    queue_.push_back({t, view.tasks[t]});
  }
  for (int32_t w : *view.busy) {
    const Running& running = view.workers[w];
    if (workers_.size() == workers_.capacity()) return false;
    workers_.push_back({w, running});
    tasks_.push_back({running.task, view.tasks[running.task]});
  }
  return true;
}

void Recorder::note(const Policy& policy, const View& view, const Event& event, int64_t now_ns,
                    const Decision& decision, Stamp stamp) {
  if (error() != 0 || noted_.size() == noted_.capacity()) return;  // its number will be missing
  const Noted last = noted_.empty() ? Noted{} : noted_.back();
  Noted made{.stamp = stamp,
             .now_ns = now_ns,
             .event = event,
             .decision = decision,
             .queue_length = view.queue_length,
             .free_cores = view.free_cores,
             .level = view.level,
             .slowdown = view.slowdown,
             .pace = view.pace};
  made.is_whole = copy(view, policy.needs().queued);
  if (!made.is_whole) {
    queue_.resize(last.queue_end);
    tasks_.resize(last.tasks_end);
    workers_.resize(last.workers_end);
  }
  made.queue_end = queue_.size();
  made.tasks_end = tasks_.size();
  made.workers_end = workers_.size();
  noted_.push_back(made);
}

void Recorder::flush() {
  Noted last;
  for (const Noted& each : noted_) {
    if (!each.is_whole) {
      begin_line(text_, "skipped", each.stamp, each.now_ns)
          .field("queue_length", each.queue_length)
          .raw("}\n");
      continue;
    }
    const auto part = [](const auto& table, size_t begin, size_t end) {
      return std::span(table).subspan(begin, end - begin);
    };
    append_decision(text_, each.stamp, each.now_ns, each.event,
                    {.queue = part(queue_, last.queue_end, each.queue_end),
                     .tasks = part(tasks_, last.tasks_end, each.tasks_end),
                     .workers = part(workers_, last.workers_end, each.workers_end),
                     .queue_length = each.queue_length,
                     .free_cores = each.free_cores,
                     .level = each.level,
                     .slowdown = each.slowdown,
                     .pace = each.pace},
                    each.decision);
    last = each;
  }
  noted_.clear();
  queue_.clear();
  tasks_.clear();
  workers_.clear();
  if (text_.size() > room_.buffered_bytes) write_out();
}

void Recorder::note_batch(const BatchEvent& event, int64_t now_ns, const Decisions& decisions,
                          Stamp stamp) {
  if (error() != 0) return;
  Json json = begin_line(text_, "batch", stamp, now_ns);
  json.field("event", name_of(event.kind));
  if (event.kind == BatchEventKind::kArrival) {
    json.field("model", event.model).field("query", event.query);
    json.field("arrival_ns", event.arrival_ns).field("deadline_ns", event.deadline_ns);
  } else if (event.kind == BatchEventKind::kExecutorFree) {
    json.field("executor", event.executor);
  }
  json.list("dispatches", decisions.dispatches, [&](const Dispatch& each) {
    json.raw("{\"model\":").number(each.model).field("executor", each.executor);
    json.list("queries", std::span(decisions.queries).subspan(each.first, each.size),
              [&](int64_t query) { json.number(query); });
    json.field("expected_ns", each.expected_ns).field("deadline_ns", each.deadline_ns);
    json.field("moment", moment_text(each.moment)).field("match", match_text(each.match)).raw("}");
  });
  json.list("drops", decisions.drops, [&](const Drop& each) {
    json.raw("{\"query\":").number(each.query).field("model", each.model);
    json.field("reason", drop_text(each.reason)).raw("}");
  });
  json.raw("}\n");
  if (text_.size() > room_.buffered_bytes) write_out();
}

void Recorder::write_out() {
  std::string_view left = text_;
  while (!left.empty() && error() == 0) {
    const ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written > 0) {
      left.remove_prefix(written);
    } else if (written == 0 || errno != EINTR) {
      error_.store(written == 0 ? EIO : errno, std::memory_order_relaxed);
    }
  }
  text_.clear();
}

}  // namespace veltair::sched
