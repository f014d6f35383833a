// The native library as Python sees it: conversions only, no logic.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "native/engine/error.h"
#include "native/engine/gang.h"
#include "native/engine/instance.h"
#include "native/engine/model.h"
#include "native/engine/probe.h"
#include "native/ipc/batch_loop.h"
#include "native/ipc/board.h"
#include "native/ipc/client.h"
#include "native/ipc/kernel_executor.h"
#include "native/ipc/null_executor.h"
#include "native/ipc/own_levels.h"
#include "native/ipc/segment.h"
#include "native/ipc/status.h"
#include "native/ipc/worker.h"
#include "native/proxy/bubble.h"
#include "native/proxy/evictor.h"
#include "native/proxy/perf.h"
#include "native/proxy/probe_walk.h"
#include "native/proxy/reference.h"
#include "native/sched/batcher.h"
#include "native/sched/batching.h"
#include "native/sched/interference.h"
#include "native/sched/placement.h"
#include "native/sched/plan.h"
#include "native/sched/policy.h"
#include "native/sched/profile.h"
#include "native/sched/record.h"
#include "native/sched/recorded_view.h"
#include "native/sched/veltair_policy.h"
#include "native/sched/view.h"
#include "native/sim/device_simulator.h"
#include "native/sim/simulator.h"

namespace nb = nanobind;

namespace {

using namespace nb::literals;

// ---- engine

namespace engine = veltair::engine;

// A Python object's memory, held for the length of a call.
class Buffer {
 public:
  Buffer(nb::handle object, bool writable) {
    const int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return view_.buf; }
  int64_t size_bytes() const { return view_.len; }

 private:
  Py_buffer view_{};
};

// int64 memory to write times into.
std::span<int64_t> times_of(const Buffer& buffer) {
  return {static_cast<int64_t*>(buffer.data()),
          static_cast<size_t>(buffer.size_bytes()) / sizeof(int64_t)};
}

// (storage, index, offset_bytes, (code, bits, lanes), shape, strides)
using ArgumentTuple = std::tuple<int, int64_t, int64_t, std::tuple<int, int, int>,
                                 std::vector<int64_t>, std::vector<int64_t>>;
using VariantTuple = std::tuple<std::string, int64_t, std::vector<ArgumentTuple>>;
// (path, inputs, outputs, framed)
using FallbackTuple = std::tuple<std::string, std::vector<std::string>, std::vector<std::string>,
                                 std::vector<std::string>>;
// (offset_bytes, planes, height, width, pixel_bytes, top, left, bottom, right)
using BorderTuple =
    std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;
using LayerTuple = std::tuple<std::string, std::vector<VariantTuple>, std::optional<FallbackTuple>,
                              std::vector<BorderTuple>>;

engine::LayerSpec to_layer(const LayerTuple& layer) {
  engine::LayerSpec spec{std::get<0>(layer), {}, {}, {}};
  if (const auto& fallback = std::get<2>(layer); fallback.has_value()) {
    spec.fallback = std::make_from_tuple<engine::FallbackSpec>(*fallback);
  }
  for (const auto& [symbol, extent, arguments] : std::get<1>(layer)) {
    engine::VariantSpec variant{symbol, extent, {}};
    for (const auto& [storage, index, offset_bytes, dtype, shape, strides] : arguments) {
      const auto& [code, bits, lanes] = dtype;
      variant.arguments.push_back(
          {static_cast<engine::Storage>(storage), index, offset_bytes,
           DLDataType{static_cast<uint8_t>(code), static_cast<uint8_t>(bits),
                      static_cast<uint16_t>(lanes)},
           shape, strides});
    }
    spec.variants.push_back(std::move(variant));
  }
  for (const BorderTuple& border : std::get<3>(layer)) {
    spec.cleared.push_back(std::make_from_tuple<engine::BorderSpec>(border));
  }
  return spec;
}

std::shared_ptr<engine::Model> make_model(
    const std::string& ffi_path, const std::string& kernels_path, const std::string& weights_path,
    int64_t weights_bytes, int64_t arena_bytes, int64_t bordered_bytes,
    std::vector<int64_t> input_bytes, std::vector<int64_t> output_bytes,
    const std::vector<LayerTuple>& layers, const std::string& onnxruntime_path) {
  engine::ModelSpec spec{
      kernels_path,    weights_path,           weights_bytes,           arena_bytes,
      bordered_bytes,  std::move(input_bytes), std::move(output_bytes), {},
      onnxruntime_path};
  for (const LayerTuple& layer : layers) spec.layers.push_back(to_layer(layer));
  const nb::gil_scoped_release released;
  return std::make_shared<engine::Model>(std::make_shared<engine::FfiRuntime>(ffi_path),
                                         std::move(spec));
}

// Binds the buffers of a call to an instance, and keeps them alive as long as itself.
class Binding {
 public:
  Binding(engine::Instance& instance, const nb::sequence& inputs, const nb::sequence& outputs) {
    bind(inputs, instance.model().spec().input_bytes, false,
         [&](int index, void* data) { instance.bind_input(index, data); });
    bind(outputs, instance.model().spec().output_bytes, true,
         [&](int index, void* data) { instance.bind_output(index, data); });
  }

 private:
  template <typename Bind>
  void bind(const nb::sequence& objects, const std::vector<int64_t>& sizes, bool writable,
            Bind bind_one) {
    const char* kind = writable ? "output" : "input";
    if (nb::len(objects) != sizes.size()) {
      throw engine::UsageError("run: " + std::to_string(nb::len(objects)) + " " + kind +
                               " buffers, the model has " + std::to_string(sizes.size()));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      buffers_.push_back(std::make_unique<Buffer>(nb::object(objects[i]), writable));
      const Buffer& buffer = *buffers_.back();
      if (buffer.size_bytes() != sizes[i]) {
        throw engine::UsageError(std::string(kind) + " " + std::to_string(i) + ": " +
                                 std::to_string(buffer.size_bytes()) + " bytes, the model has " +
                                 std::to_string(sizes[i]));
      }
      bind_one(static_cast<int>(i), buffer.data());
    }
  }

  std::vector<std::unique_ptr<Buffer>> buffers_;
};

void run(engine::Instance& instance, const nb::sequence& inputs, const nb::sequence& outputs,
         const std::vector<int>& cores, std::tuple<int, int> layers,
         const std::vector<uint16_t>& variants) {
  const Binding binding(instance, inputs, outputs);
  const nb::gil_scoped_release released;
  instance.gang().set_cores(cores);
  instance.run({std::get<0>(layers), std::get<1>(layers)}, variants);
}

void time_layers(engine::Instance& instance, const nb::sequence& inputs,
                 const nb::sequence& outputs, const std::vector<int>& cores,
                 const std::vector<uint16_t>& variants, nb::handle layer_ns) {
  const Binding binding(instance, inputs, outputs);
  const Buffer buffer(layer_ns, true);
  const std::span<int64_t> times = times_of(buffer);
  const auto layers = static_cast<size_t>(instance.model().layers());
  const nb::gil_scoped_release released;
  instance.gang().set_cores(cores);
  for (size_t begin = 0; layers > 0 && begin + layers <= times.size(); begin += layers) {
    instance.run(instance.all(), variants, times.subspan(begin, layers));
  }
}

void time_runs(engine::Instance& instance, const nb::sequence& inputs, const nb::sequence& outputs,
               const std::vector<int>& cores, const std::vector<uint16_t>& variants,
               nb::handle run_ns) {
  const Binding binding(instance, inputs, outputs);
  const Buffer buffer(run_ns, true);
  const nb::gil_scoped_release released;
  instance.gang().set_cores(cores);
  instance.time_runs(variants, times_of(buffer));
}

std::shared_ptr<engine::Gang> make_gang(std::vector<int> cpus, int64_t spin_ns, int grain,
                                        int alone_tasks, bool restore_affinity) {
  return std::make_shared<engine::Gang>(
      std::move(cpus), engine::GangOptions{spin_ns, grain, alone_tasks, restore_affinity});
}

// Raises `error` as the class `name` of veltair.runtime.errors.
void raise_as(const char* name, const std::exception& error) {
  const nb::object type = nb::module_::import_("veltair.runtime.errors").attr(name);
  PyErr_SetString(type.ptr(), error.what());
}

void translate_engine_error(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const engine::ArtifactError& error) {
    raise_as("ArtifactError", error);
  } catch (const engine::KernelError& error) {
    raise_as("KernelError", error);
  } catch (const engine::UsageError& error) {
    raise_as("InputError", error);
  }
}

void bind_engine(nb::module_& m) {
  nb::register_exception_translator(translate_engine_error);

  const engine::GangOptions defaults;
  nb::class_<engine::Gang>(m, "Gang", "Pinned threads that run a kernel's tasks.")
      .def(nb::new_(&make_gang), "cpus"_a, "spin_ns"_a = defaults.spin_ns,
           "grain"_a = defaults.grain, "alone_tasks"_a = defaults.alone_tasks,
           "restore_affinity"_a = defaults.restore_affinity)
      .def_prop_ro("cpus", [](const engine::Gang& gang) { return gang.cpus(); })
      .def_prop_ro("granted", &engine::Gang::granted)
      .def(
          "set_cores",
          [](engine::Gang& gang, const std::vector<int>& cores) { gang.set_cores(cores); },
          "cores"_a)
      .def("grant", &engine::Gang::grant, "core"_a)
      .def("revoke", &engine::Gang::revoke, "core"_a)
      .def("in_use", &engine::Gang::in_use, "core"_a)
      .def(
          "choose_tasks",
          [](const engine::Gang& gang, int cores, int extent, int least_tasks) {
            return gang.choose_tasks(cores, {extent, least_tasks});
          },
          "cores"_a, "extent"_a, "least_tasks"_a = 1);

  nb::class_<engine::Model>(m, "Model", "An artifact's kernels and weights, checked.")
      .def(nb::new_(&make_model), "ffi_path"_a, "kernels_path"_a, "weights_path"_a,
           "weights_bytes"_a, "arena_bytes"_a, "bordered_bytes"_a, "input_bytes"_a,
           "output_bytes"_a, "layers"_a, "onnxruntime_path"_a = "")
      .def_prop_ro("layers", &engine::Model::layers);

  nb::class_<engine::Instance>(m, "Instance", "A model's activations and prepared calls.")
      .def(nb::new_([](std::shared_ptr<engine::Model> model, std::shared_ptr<engine::Gang> gang) {
             return std::make_shared<engine::Instance>(std::move(model), std::move(gang));
           }),
           "model"_a, "gang"_a)
      .def("run", &run, "inputs"_a, "outputs"_a, "cores"_a, "layers"_a, "variants"_a)
      .def("time_layers", &time_layers, "inputs"_a, "outputs"_a, "cores"_a, "variants"_a,
           "layer_ns"_a)
      .def("time_runs", &time_runs, "inputs"_a, "outputs"_a, "cores"_a, "variants"_a, "run_ns"_a);

  m.def(
      "time_empty_launches",
      [](engine::Gang& gang, int num_task, nb::handle launch_ns) {
        const Buffer buffer(launch_ns, true);
        const nb::gil_scoped_release released;
        engine::time_empty_launches(gang, num_task, times_of(buffer));
      },
      "gang"_a, "num_task"_a, "launch_ns"_a);
  m.def(
      "time_wake_ups",
      [](engine::Gang& gang, int64_t sleep_ns, nb::handle wake_ns) {
        const Buffer buffer(wake_ns, true);
        const nb::gil_scoped_release released;
        engine::time_wake_ups(gang, sleep_ns, times_of(buffer));
      },
      "gang"_a, "sleep_ns"_a, "wake_ns"_a);
  m.def(
      "time_system_wake_ups",
      [](engine::Gang& gang, int64_t sleep_ns, nb::handle wake_ns) {
        const Buffer buffer(wake_ns, true);
        const nb::gil_scoped_release released;
        engine::time_system_wake_ups(gang, sleep_ns, times_of(buffer));
      },
      "gang"_a, "sleep_ns"_a, "wake_ns"_a);
}

// ---- sched

// A state that Python owns, in the form that policies read.
struct PolicyState {
  std::vector<veltair::sched::ModelProfile> models;
  std::vector<veltair::sched::Task> tasks;
  std::vector<veltair::sched::Running> workers;
  veltair::sched::IdSet busy;
  int32_t queue_head = veltair::sched::kNone;
  int32_t queue_length = 0;
  int32_t total_cores = 0;
  int32_t free_cores = 0;
  int32_t level = 0;
  int32_t slowdown = veltair::sched::kNone;
  int32_t pace = veltair::sched::kAsPredicted;

  veltair::sched::View view() const {
    return {.models = models,
            .tasks = {tasks.data(), sizeof(tasks[0]), static_cast<int32_t>(tasks.size())},
            .queue_head = queue_head,
            .queue_length = queue_length,
            .workers = {workers.data(), sizeof(workers[0]), static_cast<int32_t>(workers.size())},
            .busy = &busy,
            .total_cores = total_cores,
            .free_cores = free_cores,
            .level = level,
            .slowdown = slowdown,
            .pace = pace};
  }
};

// Whether 0 <= index < size.
bool known(int32_t index, size_t size) { return index >= 0 && static_cast<size_t>(index) < size; }

// Throws what Python raises as ValueError; the text is only made then.
template <typename... Parts>
void require(bool kept, const Parts&... rule) {
  if (kept) return;
  std::ostringstream text;
  (text << ... << rule);
  throw std::invalid_argument(text.str());
}

void check_task(const PolicyState& state, size_t index) {
  const veltair::sched::Task& task = state.tasks[index];
  const std::string where = "tasks[" + std::to_string(index) + "]: ";
  require(known(task.model, state.models.size()), where, "a task of no model: model = ", task.model,
          " of ", state.models.size());
  const int32_t layers = state.models[task.model].layers();
  require(known(task.next_layer, layers), where,
          "a task without layers to run: next_layer = ", task.next_layer, " of ", layers);
  require(task.arrival_ns >= 0 && task.deadline_ns >= 0 && task.lead_ns >= 0, where,
          "times are from 0");
}

void check_worker(const PolicyState& state, size_t index) {
  const veltair::sched::Running& worker = state.workers[index];
  if (worker.task == veltair::sched::kNone) return;
  const std::string where = "workers[" + std::to_string(index) + "]: ";
  require(known(worker.task, state.tasks.size()), where,
          "it runs no task that exists: task = ", worker.task, " of ", state.tasks.size());
  const int32_t layers = state.models[state.tasks[worker.task].model].layers();
  require(0 <= worker.layer_begin && worker.layer_begin <= worker.layer_end &&
              worker.layer_end <= layers,
          where, "layers ", worker.layer_begin, " to ", worker.layer_end, " of ", layers);
}

// Cores are counted once, so that no sum of them is more than there are.
void check_cores(const PolicyState& state) {
  require(state.total_cores >= 1 && state.free_cores >= 0 && state.level >= 0,
          "total_cores is from 1, free_cores and level are from 0");
  require(state.slowdown >= veltair::sched::kNone, "a slow-down is from 0, or NONE");
  require(state.pace >= 1, "a pace is from 1");
  int64_t cores = state.free_cores;
  for (const auto& worker : state.workers) {
    require(worker.cores_held >= 0 && worker.cores_wanted >= 0, "a worker's cores are from 0");
    cores += worker.cores_held;
  }
  require(cores <= state.total_cores, "free_cores and the workers' cores_held add up to ", cores,
          " of total_cores = ", state.total_cores);
}

PolicyState make_state(std::vector<veltair::sched::ModelProfile> models,
                       std::vector<veltair::sched::Task> tasks, const std::vector<int32_t>& queue,
                       std::vector<veltair::sched::Running> workers, int32_t total_cores,
                       int32_t free_cores, int32_t level, int32_t slowdown, int32_t pace) {
  veltair::sched::IdSet busy(static_cast<int32_t>(workers.size()));
  PolicyState state{std::move(models), std::move(tasks), std::move(workers), std::move(busy)};
  state.total_cores = total_cores;
  state.free_cores = free_cores;
  state.level = level;
  state.slowdown = slowdown;
  state.pace = pace;
  state.queue_length = static_cast<int32_t>(queue.size());
  for (size_t task = 0; task < state.tasks.size(); ++task) check_task(state, task);
  for (size_t worker = 0; worker < state.workers.size(); ++worker) check_worker(state, worker);
  check_cores(state);
  // A task is in one place: run by one worker, or once in the queue, which then has an end.
  std::vector<bool> placed(state.tasks.size());
  const auto place = [&](int32_t task) {
    require(!placed[task], "task ", task,
            " is there twice: one worker runs it, or the queue has it once");
    placed[task] = true;
  };
  veltair::sched::find_busy(state.view().workers, state.busy);
  for (const int32_t worker : state.busy) place(state.workers[worker].task);
  int32_t* link = &state.queue_head;
  for (const int32_t task : queue) {
    require(known(task, state.tasks.size()), "the queue names no task: ", task, " of ",
            state.tasks.size());
    place(task);
    *link = task;
    link = &state.tasks[task].next;
  }
  *link = veltair::sched::kNone;
  return state;
}

// A policy as Python holds it, and what a state must have for it to be asked.
struct MadePolicy {
  std::unique_ptr<veltair::sched::Policy> policy;
  std::vector<int32_t> layers;  // of each model that it was made for
  int32_t total_cores = 0;

  void check(const std::vector<veltair::sched::ModelProfile>& models, int32_t cores) const {
    require(cores == total_cores, "total_cores = ", cores, ": the policy was made for ",
            total_cores);
    require(models.size() == layers.size(), models.size(), " models: the policy was made for ",
            layers.size());
    for (size_t i = 0; i < layers.size(); ++i) {
      require(models[i].layers() == layers[i], "models[", i, "] has ", models[i].layers(),
              " layers: the policy was made for ", layers[i]);
    }
  }

  veltair::sched::Decision decide(const PolicyState& state, veltair::sched::EventKind kind,
                                  int32_t worker, int64_t now_ns) const {
    check(state.models, state.total_cores);
    require(known(worker, state.workers.size()), "no such worker in the state: ", worker, " of ",
            state.workers.size());
    require(now_ns >= 0, "now_ns is from 0");
    require(kind != veltair::sched::EventKind::kBlockEnd ||
                state.workers[worker].task != veltair::sched::kNone,
            "no block can end on an idle worker");
    return policy->decide(state.view(), {kind, worker}, now_ns);
  }
};

MadePolicy make_made_policy(std::string_view name, int32_t total_cores,
                            const std::vector<veltair::sched::ModelProfile>& models,
                            int64_t max_block_ns, int32_t margin_percent, int32_t late_percent,
                            bool refuse_late, int32_t partition_cores, int32_t threshold_cores) {
  MadePolicy made{.policy = veltair::sched::make_policy(name, total_cores, models,
                                                        {.max_block_ns = max_block_ns,
                                                         .margin_percent = margin_percent,
                                                         .late_percent = late_percent,
                                                         .refuse_late = refuse_late,
                                                         .partition_cores = partition_cores,
                                                         .threshold_cores = threshold_cores}),
                  .layers = {},
                  .total_cores = total_cores};
  for (const auto& model : models) made.layers.push_back(model.layers());
  return made;
}

veltair::sched::ModelProfile make_profile(
    int64_t qos_ns, std::vector<int32_t> cores, int32_t levels, std::vector<int64_t> model_ns,
    std::vector<int32_t> variants, std::vector<int64_t> layer_ns, std::vector<int64_t> layer_flops,
    std::vector<int32_t> parallel_extents, std::vector<int64_t> layer_bytes,
    std::vector<double> slowdowns, int32_t priority) {
  veltair::sched::ModelProfile profile{.qos_ns = qos_ns,
                                       .priority = priority,
                                       .cores = std::move(cores),
                                       .levels = levels,
                                       .model_ns = std::move(model_ns),
                                       .variants = std::move(variants),
                                       .layer_ns = std::move(layer_ns),
                                       .layer_flops = std::move(layer_flops),
                                       .parallel_extents = std::move(parallel_extents),
                                       .layer_bytes = std::move(layer_bytes),
                                       .slowdowns = std::move(slowdowns),
                                       .first_row = {}};
  profile.finish();
  return profile;
}

// A recorded task or worker in the order in which `Recorder` writes its fields.
using TaskRow = std::tuple<int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int64_t,
                           int64_t, int64_t, int64_t>;
using WorkerRow = std::tuple<int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, int64_t,
                             int64_t, int64_t>;

veltair::sched::NamedTask to_task(const TaskRow& row) {
  const auto& [id, model, queries, passes, next_layer, executor, attempts, arrival, deadline, order,
               lead] = row;
  return {id,
          {.model = model,
           .queries = queries,
           .passes = passes,
           .next_layer = next_layer,
           .executor = executor,
           .attempts = attempts,
           .arrival_ns = arrival,
           .deadline_ns = deadline,
           .order = order,
           .lead_ns = lead}};
}

veltair::sched::NamedWorker to_worker(const WorkerRow& row) {
  const auto& [index, task, begin, end, level, wanted, held, started, block_started, expected] =
      row;
  return {index,
          {.task = task,
           .layer_begin = begin,
           .layer_end = end,
           .level = level,
           .cores_wanted = wanted,
           .cores_held = held,
           .started_ns = started,
           .block_started_ns = block_started,
           .block_expected_ns = expected}};
}

template <typename To, typename Row>
std::vector<To> converted(const std::vector<Row>& rows, To (*convert)(const Row&)) {
  std::vector<To> made;
  made.reserve(rows.size());
  for (const Row& row : rows) made.push_back(convert(row));
  return made;
}

void bind_record(nb::module_& m) {
  using veltair::sched::EventKind, veltair::sched::ModelProfile, veltair::sched::RecordedView;
  nb::class_<RecordedView>(m, "RecordedView")
      .def(nb::init<std::vector<ModelProfile>, int32_t, int32_t>(), nb::kw_only(), "models"_a,
           "total_cores"_a, "workers"_a)
      .def(
          "decide",
          [](RecordedView& view, const MadePolicy& policy, EventKind event, int32_t worker,
             int64_t now_ns, const std::vector<TaskRow>& queue, const std::vector<TaskRow>& tasks,
             const std::vector<WorkerRow>& workers, int32_t queue_length, int32_t free_cores,
             int32_t level, int32_t slowdown, int32_t pace) {
            policy.check(view.models(), view.total_cores());
            const auto queued = converted(queue, to_task);
            const auto others = converted(tasks, to_task);
            const auto running = converted(workers, to_worker);
            view.set({queued, others, running, queue_length, free_cores, level, slowdown, pace});
            return view.decide(*policy.policy, {event, worker}, now_ns);
          },
          "policy"_a, nb::kw_only(), "event"_a, "worker"_a, "now_ns"_a, "queue"_a, "tasks"_a,
          "workers"_a, "queue_length"_a, "free_cores"_a, "level"_a,
          "slowdown"_a = veltair::sched::kNone, "pace"_a = veltair::sched::kAsPredicted);
}

// ---- batching and placement

void bind_batching_policies(nb::module_& m) {
  using veltair::sched::BatchCost, veltair::sched::BatchingPolicy;
  using veltair::sched::BatchView, veltair::sched::Candidate, veltair::sched::Executor;
  using veltair::sched::ExecutorKind, veltair::sched::IdSet, veltair::sched::PlacementPolicy;
  m.attr("NEVER") = veltair::sched::kNever;
  nb::class_<BatchCost>(m, "BatchCost")
      .def(nb::new_([](int64_t alpha_ns, int64_t beta_ns, int32_t max_batch, int64_t timeout_ns,
                       int32_t least_percent) {
             const BatchCost cost{alpha_ns, beta_ns, max_batch, timeout_ns, least_percent};
             cost.check();
             return cost;
           }),
           nb::kw_only(), "alpha_ns"_a, "beta_ns"_a, "max_batch"_a = BatchCost{}.max_batch,
           "timeout_ns"_a = 0, "least_percent"_a = 0)
      .def_ro("alpha_ns", &BatchCost::alpha_ns)
      .def_ro("beta_ns", &BatchCost::beta_ns)
      .def_ro("max_batch", &BatchCost::max_batch)
      .def_ro("timeout_ns", &BatchCost::timeout_ns)
      .def_ro("least_percent", &BatchCost::least_percent)
      .def("time", &BatchCost::time, "queries"_a);
  nb::class_<Candidate>(m, "Candidate")
      .def_ro("queries", &Candidate::queries)
      .def_ro("exec_ns", &Candidate::exec_ns)
      .def_ro("latest_ns", &Candidate::latest_ns)
      .def_prop_ro("moment", [](const Candidate& c) { return moment_text(c.moment); });
  nb::class_<BatchingPolicy>(m, "BatchingPolicy")
      .def_prop_ro("name", &BatchingPolicy::name)
      .def(
          "candidate",
          [](const BatchingPolicy& policy, const BatchCost& cost, int32_t waiting,
             int64_t oldest_arrival_ns, int64_t earliest_deadline_ns, int64_t now_ns) {
            if (waiting < 1) throw nb::value_error("waiting: must be at least 1");
            return policy.candidate({&cost, waiting, oldest_arrival_ns, earliest_deadline_ns},
                                    now_ns);
          },
          "cost"_a, nb::kw_only(), "waiting"_a, "oldest_arrival_ns"_a, "earliest_deadline_ns"_a,
          "now_ns"_a);
  nb::enum_<ExecutorKind>(m, "ExecutorKind")
      .value("LOCAL_CORES", ExecutorKind::kLocalCores)
      .value("DEVICE", ExecutorKind::kDevice);
  nb::class_<PlacementPolicy>(m, "PlacementPolicy")
      .def_prop_ro("name", &PlacementPolicy::name)
      .def(
          "decide",
          [](const PlacementPolicy& policy, const std::vector<ExecutorKind>& executors,
             const std::vector<int32_t>& free) {
            std::vector<Executor> all;
            all.reserve(executors.size());
            for (const ExecutorKind kind : executors) all.push_back({.kind = kind});
            IdSet set(static_cast<int32_t>(all.size()));
            for (const int32_t id : free) {
              if (id < 0 || id >= static_cast<int32_t>(all.size())) {
                throw nb::index_error("free: no such executor");
              }
              set.insert(id);
            }
            return policy.decide({all, &set}, {}, 0);
          },
          "executors"_a, "free"_a);
  m.def(
      "staggered_batch",
      [](const BatchCost& cost, int64_t slo_ns, int32_t executors) {
        if (slo_ns < 0 || executors < 1) throw nb::value_error("slo_ns from 0, executors from 1");
        return staggered_batch(cost, slo_ns, executors);
      },
      "cost"_a, nb::kw_only(), "slo_ns"_a, "executors"_a);
  m.def("batching_names", &veltair::sched::batching_names);
  m.def("placement_names", &veltair::sched::placement_names);
}

std::unique_ptr<veltair::sched::Batcher> make_batcher(
    std::string_view batching, std::string_view placement,
    const std::vector<veltair::sched::BatchCost>& models,
    const std::vector<veltair::sched::ExecutorKind>& executors, int32_t queue_limit) {
  std::vector<veltair::sched::Executor> all;
  all.reserve(executors.size());
  for (const auto kind : executors) all.push_back({.kind = kind});
  return std::make_unique<veltair::sched::Batcher>(veltair::sched::make_batching(batching),
                                                   veltair::sched::make_placement(placement),
                                                   models, all, queue_limit);
}

void bind_decisions(nb::module_& m) {
  using veltair::sched::Decisions, veltair::sched::Dispatch, veltair::sched::Drop;
  nb::class_<Dispatch>(m, "Dispatch")
      .def_ro("model", &Dispatch::model)
      .def_ro("executor", &Dispatch::executor)
      .def_ro("size", &Dispatch::size)
      .def_ro("expected_ns", &Dispatch::expected_ns)
      .def_ro("deadline_ns", &Dispatch::deadline_ns)
      .def_prop_ro("moment", [](const Dispatch& d) { return moment_text(d.moment); })
      .def_prop_ro("match", [](const Dispatch& d) { return match_text(d.match); });
  nb::class_<Drop>(m, "Drop")
      .def_ro("query", &Drop::query)
      .def_ro("model", &Drop::model)
      .def_prop_ro("reason", [](const Drop& d) { return drop_text(d.reason); });
  nb::class_<Decisions>(m, "Decisions")
      .def_ro("dispatches", &Decisions::dispatches)
      .def_ro("drops", &Decisions::drops)
      .def(
          "queries",
          [](const Decisions& decisions, const Dispatch& dispatch) {
            const auto first = decisions.queries.begin() + dispatch.first;
            return std::vector<int64_t>(first, first + dispatch.size);
          },
          "dispatch"_a);
}

void bind_batching(nb::module_& m) {
  using veltair::sched::Batcher;
  bind_batching_policies(m);
  bind_decisions(m);
  const auto check = [](int32_t value, int32_t count, const char* message) {
    if (value < 0 || value >= count) throw nb::index_error(message);
  };
  // An event's result is copied: the batcher's own is valid until the next event only.
  nb::class_<Batcher>(m, "Batcher")
      .def(nb::new_(&make_batcher), nb::kw_only(), "batching"_a, "placement"_a, "models"_a,
           "executors"_a, "queue_limit"_a = 4096)
      .def(
          "on_arrival",
          [check](Batcher& batcher, int32_t model, int64_t query, int64_t arrival_ns,
                  int64_t deadline_ns, int64_t now_ns) {
            check(model, batcher.models(), "model: the batcher has no such model");
            return batcher.on_arrival(model, query, arrival_ns, deadline_ns, now_ns);
          },
          nb::kw_only(), "model"_a, "query"_a, "arrival_ns"_a, "deadline_ns"_a, "now_ns"_a)
      .def(
          "on_executor_free",
          [check](Batcher& batcher, int32_t executor, int64_t now_ns) {
            check(executor, batcher.executors(), "executor: the batcher has no such executor");
            return batcher.on_executor_free(executor, now_ns);
          },
          nb::kw_only(), "executor"_a, "now_ns"_a)
      .def("on_timer", &Batcher::on_timer, nb::rv_policy::copy, nb::kw_only(), "now_ns"_a)
      .def_prop_ro("next_timer_ns", &Batcher::next_timer_ns)
      .def(
          "waiting",
          [check](const Batcher& batcher, int32_t model) {
            check(model, batcher.models(), "model: the batcher has no such model");
            return batcher.waiting(model);
          },
          "model"_a)
      .def(
          "candidate",
          [check](const Batcher& batcher, int32_t model) {
            check(model, batcher.models(), "model: the batcher has no such model");
            return batcher.candidate(model);
          },
          "model"_a)
      .def(
          "is_free",
          [check](const Batcher& batcher, int32_t executor) {
            check(executor, batcher.executors(), "executor: the batcher has no such executor");
            return batcher.is_free(executor);
          },
          "executor"_a);
}

// ---- scheduling

void bind_sched_records(nb::module_& m) {
  using veltair::sched::Action, veltair::sched::CoreNeed, veltair::sched::Decision;
  using veltair::sched::EventKind;
  using veltair::sched::ModelProfile, veltair::sched::NeededCores, veltair::sched::Reason;
  using veltair::sched::Running, veltair::sched::Task;
  m.attr("NONE") = veltair::sched::kNone;
  nb::enum_<EventKind>(m, "EventKind")
      .value("WORKER_IDLE", EventKind::kWorkerIdle)
      .value("BLOCK_END", EventKind::kBlockEnd);
  nb::enum_<CoreNeed>(m, "CoreNeed")
      .value("MEETS_TARGET", CoreNeed::kMeetsTarget)
      .value("OUT_OF_REACH", CoreNeed::kOutOfReach)
      .value("NO_TARGET", CoreNeed::kNoTarget);
  nb::class_<ModelProfile>(m, "ModelProfile")
      .def(nb::new_(&make_profile), nb::kw_only(), "qos_ns"_a, "cores"_a, "levels"_a, "model_ns"_a,
           "variants"_a, "layer_ns"_a, "layer_flops"_a = std::vector<int64_t>{},
           "parallel_extents"_a = std::vector<int32_t>{}, "layer_bytes"_a = std::vector<int64_t>{},
           "slowdowns"_a = std::vector<double>{}, "priority"_a = 1)
      .def_ro("qos_ns", &ModelProfile::qos_ns)
      .def_ro("cores", &ModelProfile::cores)
      .def_ro("levels", &ModelProfile::levels)
      .def_ro("priority", &ModelProfile::priority)
      .def_ro("model_ns", &ModelProfile::model_ns)
      .def_ro("variants", &ModelProfile::variants)
      .def_ro("layer_ns", &ModelProfile::layer_ns)
      .def_ro("layer_flops", &ModelProfile::layer_flops)
      .def_ro("parallel_extents", &ModelProfile::parallel_extents)
      .def_ro("layer_bytes", &ModelProfile::layer_bytes)
      .def_ro("slowdowns", &ModelProfile::slowdowns)
      .def_prop_ro("layers", &ModelProfile::layers)
      .def_static("unknown", &ModelProfile::unknown)
      .def("time_ns", &veltair::sched::latency_ns, "layer"_a, "variant"_a, "cores"_a,
           "slowdown"_a = 0.0)
      .def("resampled", &veltair::sched::resampled, "cores"_a,
           "slowdowns"_a = std::vector<double>{});
  nb::class_<NeededCores>(m, "NeededCores")
      .def_ro("cores", &NeededCores::cores)
      .def_ro("expected_ns", &NeededCores::expected_ns)
      .def_ro("fastest_ns", &NeededCores::fastest_ns)
      .def_ro("need", &NeededCores::need);
  nb::class_<Task>(m, "Task").def(
      nb::new_([](int32_t model, int32_t queries, int32_t next_layer, int64_t arrival_ns,
                  int64_t deadline_ns, int64_t order, int64_t lead_ns) {
        return Task{.model = model,
                    .queries = queries,
                    .next_layer = next_layer,
                    .arrival_ns = arrival_ns,
                    .deadline_ns = deadline_ns,
                    .order = order,
                    .lead_ns = lead_ns};
      }),
      nb::kw_only(), "model"_a, "queries"_a = 1, "next_layer"_a = 0, "arrival_ns"_a = 0,
      "deadline_ns"_a = 0, "order"_a = 0, "lead_ns"_a = 0);
  nb::class_<Running>(m, "Running")
      .def(nb::new_([](int32_t task, int32_t layer_begin, int32_t layer_end, int32_t cores_wanted,
                       int32_t cores_held, int64_t started_ns, int64_t block_started_ns,
                       int64_t block_expected_ns) {
             return Running{.task = task,
                            .layer_begin = layer_begin,
                            .layer_end = layer_end,
                            .cores_wanted = cores_wanted,
                            .cores_held = cores_held,
                            .started_ns = started_ns,
                            .block_started_ns = block_started_ns,
                            .block_expected_ns = block_expected_ns};
           }),
           nb::kw_only(), "task"_a = veltair::sched::kNone, "layer_begin"_a = 0, "layer_end"_a = 0,
           "cores_wanted"_a = 0, "cores_held"_a = 0, "started_ns"_a = 0, "block_started_ns"_a = 0,
           "block_expected_ns"_a = 0);
  nb::enum_<Action>(m, "Action")
      .value("RUN", Action::kRun)
      .value("WAIT", Action::kWait)
      .value("REFUSE", Action::kRefuse)
      .value("RETURN", Action::kReturn);
  nb::class_<Decision>(m, "Decision")
      .def_ro("task", &Decision::task)
      .def_ro("layer_begin", &Decision::layer_begin)
      .def_ro("layer_end", &Decision::layer_end)
      .def_ro("level", &Decision::level)
      .def_ro("cores", &Decision::cores)
      .def_ro("action", &Decision::action)
      .def_ro("expected_ns", &Decision::expected_ns)
      .def_ro("revoke_worker", &Decision::revoke_worker)
      .def_ro("revoke_keep", &Decision::revoke_keep)
      .def_prop_ro("reason", [](const Decision& d) { return reason_text(d.reason); });
}

// What policies work out of a profile, for figures and notebooks: as ModelPlan, with the arguments
// checked that it takes on trust.
struct CheckedPlan {
  veltair::sched::ModelPlan plan;

  static CheckedPlan made(const veltair::sched::ModelProfile& profile, int32_t total_cores) {
    require(total_cores >= 1, "total_cores is from 1");
    return {veltair::sched::ModelPlan(profile, total_cores)};
  }
  void check(int32_t begin, int32_t end, int32_t level) const {
    require(0 <= begin && begin <= end && end <= plan.layers(), "layers ", begin, " to ", end,
            " of ", plan.layers());
    require(level >= 0, "level is from 0");
  }
  void check_cores(int32_t cores) const {
    require(1 <= cores && cores <= plan.total_cores(), "cores = ", cores, " of ",
            plan.total_cores());
  }
  int64_t share_ns(int32_t begin, int32_t end) const {
    check(begin, end, 0);
    return plan.share_ns(begin, end);
  }
  int64_t time_ns(int32_t begin, int32_t end, int32_t cores, int32_t level) const {
    check(begin, end, level);
    check_cores(cores);
    return plan.time_ns(begin, end, cores, level);
  }
  int32_t average_cores(int32_t level) const {
    check(0, 0, level);
    return plan.average_cores(level);
  }
  int32_t demand(int32_t layer, int32_t level) const {
    check(layer, layer + 1, level);
    return plan.demand(layer, level);
  }
  int32_t variant(int32_t layer, int32_t cores, int32_t level) const {
    check(layer, layer + 1, level);
    check_cores(cores);
    return plan.variant(layer, cores, level);
  }
  int32_t cores_for(int32_t begin, int32_t end, int64_t budget_ns, int32_t level) const {
    check(begin, end, level);
    return plan.cores_for(begin, end, budget_ns, level);
  }
  std::vector<int32_t> form_blocks(int32_t limit, int32_t level) const {
    check(0, 0, level);
    return veltair::sched::form_blocks(plan, limit, level);
  }
};

void bind_plan(nb::module_& m) {
  nb::class_<CheckedPlan>(m, "ModelPlan")
      .def(nb::new_(&CheckedPlan::made), "profile"_a, "total_cores"_a)
      .def_prop_ro("layers", [](const CheckedPlan& made) { return made.plan.layers(); })
      .def_prop_ro("target_ns", [](const CheckedPlan& made) { return made.plan.target_ns(); })
      .def("share_ns", &CheckedPlan::share_ns, "begin"_a, "end"_a)
      .def("time_ns", &CheckedPlan::time_ns, "begin"_a, "end"_a, "cores"_a, "level"_a = 0)
      .def("average_cores", &CheckedPlan::average_cores, "level"_a = 0)
      .def("demand", &CheckedPlan::demand, "layer"_a, "level"_a = 0)
      .def("variant", &CheckedPlan::variant, "layer"_a, "cores"_a, "level"_a = 0)
      .def("cores_for", &CheckedPlan::cores_for, "begin"_a, "end"_a, "budget_ns"_a, "level"_a = 0);
  m.def("threshold", &veltair::sched::threshold, "total_cores"_a, "sum_of_averages"_a, "average"_a);
  m.def("form_blocks", &CheckedPlan::form_blocks, "plan"_a, "limit"_a, "level"_a = 0);
}

void bind_sched(nb::module_& parent) {
  using veltair::sched::BatchingPolicy, veltair::sched::Needs, veltair::sched::PlacementPolicy;
  using veltair::sched::PolicyOptions;
  nb::module_ m = parent.def_submodule("sched", "The policies: pure functions of a state.");
  bind_sched_records(m);
  bind_plan(m);
  nb::class_<PolicyState>(m, "State")
      .def(nb::new_(&make_state), nb::kw_only(), "models"_a, "tasks"_a, "queue"_a, "workers"_a,
           "total_cores"_a, "free_cores"_a, "level"_a = 0, "slowdown"_a = veltair::sched::kNone,
           "pace"_a = veltair::sched::kAsPredicted);
  nb::class_<Needs>(m, "Needs")
      .def_ro("waiting", &Needs::waiting)
      .def_ro("refusing", &Needs::refusing)
      .def_ro("returning", &Needs::returning)
      .def_ro("revoking", &Needs::revoking)
      .def_ro("by_deadline", &Needs::by_deadline)
      .def_ro("late_percent", &Needs::late_percent)
      .def_ro("topping_up", &Needs::topping_up)
      .def_ro("queued", &Needs::queued);
  nb::class_<MadePolicy>(m, "Policy")
      .def_prop_ro("name", [](const MadePolicy& made) { return made.policy->name(); })
      .def_prop_ro("needs", [](const MadePolicy& made) { return made.policy->needs(); })
      .def("decide", &MadePolicy::decide, "state"_a, "event"_a, "worker"_a, "now_ns"_a);
  bind_batching(m);
  bind_record(m);
  m.def(
      "needed_cores",
      [](const veltair::sched::ModelProfile& profile, int32_t total_cores) {
        require(total_cores >= 1, "total_cores is from 1");
        return veltair::sched::needed_cores(profile, total_cores);
      },
      "profile"_a, "total_cores"_a);
  m.def("make_policy", &make_made_policy, "name"_a, "total_cores"_a, "models"_a, nb::kw_only(),
        "max_block_ns"_a = PolicyOptions{}.max_block_ns,
        "margin_percent"_a = PolicyOptions{}.margin_percent,
        "late_percent"_a = PolicyOptions{}.late_percent,
        "refuse_late"_a = PolicyOptions{}.refuse_late,
        "partition_cores"_a = PolicyOptions{}.partition_cores,
        "threshold_cores"_a = PolicyOptions{}.threshold_cores);
  m.def("make_batching", &veltair::sched::make_batching, "name"_a);
  m.def("make_placement", &veltair::sched::make_placement, "name"_a);
  m.def("policy_names", &veltair::sched::policy_names);
}

// ---- sim

// Lets Python handle the signals that came, so that Ctrl-C ends a long simulation.
void handle_signals() {
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// int64[rows, columns] or int64[rows] that Python owns from here on.
nb::object owned(std::vector<int64_t> values, size_t columns = 0) {
  auto* kept = new std::vector<int64_t>(std::move(values));
  const nb::capsule owner(
      kept, [](void* pointer) noexcept { delete static_cast<std::vector<int64_t>*>(pointer); });
  const size_t rows = columns == 0 ? kept->size() : kept->size() / columns;
  const size_t shape[2] = {rows, columns};
  return nb::cast(
      nb::ndarray<nb::numpy, int64_t>(kept->data(), columns == 0 ? 1 : 2, shape, owner));
}

nb::dict machine_totals(const veltair::sim::MachineTotals& totals) {
  nb::dict found;
  found["events"] = totals.events;
  found["decisions"] = totals.decisions;
  found["returns"] = totals.returns;
  found["revocations"] = totals.revocations;
  found["first_ns"] = totals.first_ns;
  found["last_ns"] = totals.last_ns;
  found["max_cores"] = totals.max_cores;
  found["max_cores_wanted"] = totals.max_cores_wanted;
  return found;
}

nb::dict model_totals(const veltair::sim::ModelTotals& totals) {
  nb::dict found;
  found["blocks"] = totals.blocks;
  found["conflicts"] = totals.conflicts;
  found["expansions"] = totals.expansions;
  found["core_ns"] = totals.core_ns;
  found["busy_ns"] = totals.busy_ns;
  return found;
}

// What a simulation found, as arrays in the order of the arrivals, and sums.
nb::dict simulated(const veltair::sim::Simulator& simulator) {
  const veltair::sim::Queries& queries = simulator.queries();
  nb::dict found;
  found["start_ns"] = owned(queries.start_ns);
  found["end_ns"] = owned(queries.end_ns);
  found["outcome"] = owned({queries.outcome.begin(), queries.outcome.end()});
  found["machine"] = machine_totals(simulator.machine());
  nb::list models;
  for (const auto& totals : simulator.models()) models.append(model_totals(totals));
  found["models"] = models;
  std::vector<int64_t> rows;
  for (const veltair::sim::Segment& each : simulator.segments()) {
    rows.insert(rows.end(), {each.query, each.worker, each.layer_begin, each.layer_end,
                             each.cores_wanted, each.cores, each.start_ns, each.end_ns});
  }
  found["segments"] = owned(std::move(rows), 8);
  return found;
}

constexpr size_t kRecordBufferBytes = 1 << 20;

// What notes a simulation's decisions, if a descriptor is given.
std::unique_ptr<veltair::sched::Recorder> make_recorder(std::optional<int> descriptor,
                                                        int32_t workers) {
  if (!descriptor) return nullptr;
  return std::make_unique<veltair::sched::Recorder>(
      *descriptor, veltair::sched::RecordRoom{
                       .workers = workers, .decisions = 1, .buffered_bytes = kRecordBufferBytes});
}

// Writes what is left; raises OSError where a write failed.
void finish(veltair::sched::Recorder* recorder) {
  if (recorder == nullptr) return;
  recorder->write_out();
  if (recorder->error() == 0) return;
  errno = recorder->error();
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

nb::dict simulate(const std::vector<veltair::sched::ModelProfile>& models, const MadePolicy& policy,
                  nb::handle arrival_ns, nb::handle model, int32_t cores, int32_t workers,
                  int32_t max_queue, int64_t conflict_ns, int64_t decision_ns,
                  bool expand_if_shorter, std::optional<int32_t> level,
                  std::optional<veltair::sim::SharedMemory> memory,
                  const std::optional<veltair::sim::PaceOptions>& pace, bool trace,
                  std::optional<int> record) {
  const Buffer arrivals(arrival_ns, false);
  const Buffer kinds(model, false);
  policy.check(models, cores);
  require(!level || *level >= 0, "level is from 0");
  int32_t levels = 1;
  for (const auto& profile : models) levels = std::max(levels, profile.levels);
  std::unique_ptr<veltair::sched::Interference> interference;
  if (level) {
    interference = std::make_unique<veltair::sched::ConstantInterference>(*level);
  } else {
    interference = std::make_unique<veltair::sched::OccupancyInterference>(levels);
  }
  const auto recorder = make_recorder(record, std::max(workers, 1));
  veltair::sim::Simulator simulator({.cores = cores,
                                     .workers = workers,
                                     .max_queue = max_queue,
                                     .conflict_ns = conflict_ns,
                                     .decision_ns = decision_ns,
                                     .expand_if_shorter = expand_if_shorter,
                                     .pace = pace.value_or(veltair::sim::PaceOptions{}),
                                     .memory = memory.value_or(veltair::sim::SharedMemory{}),
                                     .trace = trace},
                                    models, *policy.policy, *interference, recorder.get());
  {
    const nb::gil_scoped_release released;
    const size_t count = static_cast<size_t>(kinds.size_bytes()) / sizeof(int32_t);
    simulator.run(times_of(arrivals), {static_cast<const int32_t*>(kinds.data()), count},
                  handle_signals);
  }
  finish(recorder.get());
  return simulated(simulator);
}

void bind_sim(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("sim", "A simulated machine that asks the same policies.");
  using veltair::sim::SharedMemory;
  nb::class_<SharedMemory>(m, "SharedMemory")
      .def(nb::new_([](double gbps, double pushed, double highest, bool told, double error) {
             require(gbps > 0 && pushed > 0 && pushed <= 1 && highest > 0 && error >= 0,
                     "gbps, pushed and highest are above 0, pushed up to 1, error from 0");
             return SharedMemory{
                 .gbps = gbps, .pushed = pushed, .highest = highest, .told = told, .error = error};
           }),
           nb::kw_only(), "gbps"_a, "pushed"_a, "highest"_a, "told"_a = true, "error"_a = 0.0)
      .def("slowdown", &SharedMemory::slowdown, "busy"_a, "wanted_gbps"_a);
  using veltair::sim::PaceOptions;
  nb::class_<PaceOptions>(m, "Pace").def(
      nb::new_([](double pace, double spread, int64_t memory_ns, uint64_t seed,
                  std::vector<double> known, int64_t known_step_ns) {
        return PaceOptions{.pace = pace,
                           .spread = spread,
                           .memory_ns = memory_ns,
                           .seed = seed,
                           .known = std::move(known),
                           .known_step_ns = known_step_ns};
      }),
      nb::kw_only(), "pace"_a, "spread"_a, "memory_ns"_a, "seed"_a,
      "known"_a = std::vector<double>{}, "known_step_ns"_a = PaceOptions{}.known_step_ns);
  m.def("simulate", &simulate, nb::kw_only(), "models"_a, "policy"_a, "arrival_ns"_a, "model"_a,
        "cores"_a, "workers"_a, "max_queue"_a, "conflict_ns"_a, "decision_ns"_a,
        "expand_if_shorter"_a, "level"_a.none(), "memory"_a = nb::none(), "pace"_a = nb::none(),
        "trace"_a, "record"_a = nb::none());
}

// ---- ipc

using veltair::ipc::Board;
using veltair::ipc::Client;
using veltair::ipc::OwnedCores;
using veltair::ipc::Segment;
using ReleaseGil = nb::call_guard<nb::gil_scoped_release>;

// A policy with the profiles that it is asked about.
struct PolicyAndModels {
  std::vector<veltair::sched::ModelProfile> models;
  std::unique_ptr<veltair::sched::Policy> policy;
  uint32_t epoch = 0;
  std::unique_ptr<veltair::sched::Recorder> recorder;
  std::shared_ptr<veltair::ipc::Segment> segment;  // whose level is asked; null: none is
  std::unique_ptr<veltair::sched::Interference> interference;

  veltair::ipc::Scheduler scheduler() const {
    return {*policy, models, interference.get(), epoch, recorder.get()};
  }
  veltair::ipc::Step recorded(const veltair::ipc::Step& step) const {
    if (recorder) recorder->flush();
    return step;
  }
};

// A view of a tensor's slot that keeps the mapping alive.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> tensor_bytes(const std::shared_ptr<Segment>& segment,
                                                          int32_t model, int32_t tensor,
                                                          int32_t slot) {
  const auto& record = segment->models()[model];
  const size_t bytes = segment->tensors(record)[tensor].bytes;
  auto* kept = new std::shared_ptr<Segment>(segment);
  const nb::capsule owner(
      kept, [](void* held) noexcept { delete static_cast<std::shared_ptr<Segment>*>(held); });
  return {segment->tensor(record, tensor, slot), {bytes}, owner};
}

void bind_ipc_records(nb::module_& m) {
  using veltair::ipc::Ended, veltair::ipc::Failure, veltair::ipc::ModelCounts;
  using veltair::ipc::ModelSpec, veltair::ipc::ModelState, veltair::ipc::ModelStatus;
  using veltair::ipc::ServerState, veltair::ipc::Verdict, veltair::ipc::WorkerStatus;
  nb::enum_<ServerState>(m, "ServerState")
      .value("STARTING", ServerState::kStarting)
      .value("SERVING", ServerState::kServing)
      .value("DRAINING", ServerState::kDraining)
      .value("STOPPED", ServerState::kStopped);
  nb::enum_<ModelState>(m, "ModelState")
      .value("LOADING", ModelState::kLoading)
      .value("READY", ModelState::kReady)
      .value("UNAVAILABLE", ModelState::kUnavailable);
  nb::enum_<Failure>(m, "Failure")
      .value("QUEUE_FULL", Failure::kQueueFull)
      .value("DEADLINE", Failure::kDeadline)
      .value("DRAINING", Failure::kDraining)
      .value("UNAVAILABLE", Failure::kUnavailable)
      .value("ERROR", Failure::kError)
      .value("CANCELLED", Failure::kCancelled);
  nb::class_<Ended>(m, "Ended")
      .def_ro("query", &Ended::query)
      .def_ro("ok", &Ended::ok)
      .def_ro("why", &Ended::why)
      .def_ro("tag", &Ended::tag)
      .def_ro("queue_ns", &Ended::queue_ns)
      .def_ro("compute_ns", &Ended::compute_ns)
      .def_ro("end_ns", &Ended::end_ns);
  nb::class_<veltair::ipc::Policies>(m, "Policies")
      .def(nb::new_([](std::string scheduling, std::string batching, std::string placement,
                       int64_t max_block_ns, int32_t margin_percent, int32_t late_percent,
                       bool refuse_late, int32_t partition_cores, int32_t threshold_cores,
                       int64_t timeout_ns, int32_t max_batch, int32_t least_percent,
                       int32_t executors, int32_t level, bool measured, bool admission) {
             return veltair::ipc::Policies{.scheduling = std::move(scheduling),
                                           .batching = std::move(batching),
                                           .placement = std::move(placement),
                                           .options = {.max_block_ns = max_block_ns,
                                                       .margin_percent = margin_percent,
                                                       .late_percent = late_percent,
                                                       .refuse_late = refuse_late,
                                                       .partition_cores = partition_cores,
                                                       .threshold_cores = threshold_cores},
                                           .batch = {.timeout_ns = timeout_ns,
                                                     .max_batch = max_batch,
                                                     .least_percent = least_percent,
                                                     .executors = executors},
                                           .level = level,
                                           .measured = measured,
                                           .admission = admission};
           }),
           nb::kw_only(), "scheduling"_a = "model", "batching"_a = "none", "placement"_a = "local",
           "max_block_ns"_a = veltair::sched::PolicyOptions{}.max_block_ns,
           "margin_percent"_a = veltair::sched::PolicyOptions{}.margin_percent,
           "late_percent"_a = veltair::sched::PolicyOptions{}.late_percent,
           "refuse_late"_a = veltair::sched::PolicyOptions{}.refuse_late,
           "partition_cores"_a = veltair::sched::PolicyOptions{}.partition_cores,
           "threshold_cores"_a = veltair::sched::PolicyOptions{}.threshold_cores,
           "timeout_ns"_a = veltair::ipc::BatchOptions{}.timeout_ns,
           "max_batch"_a = veltair::ipc::BatchOptions{}.max_batch,
           "least_percent"_a = veltair::ipc::BatchOptions{}.least_percent,
           "executors"_a = veltair::ipc::BatchOptions{}.executors, "level"_a = 0,
           "measured"_a = false, "admission"_a = false)
      .def(
          "check",
          [](const veltair::ipc::Policies& policies, int32_t total_cores) {
            veltair::ipc::make_record(policies, total_cores);
          },
          "total_cores"_a);
  using veltair::ipc::PolicyRecord;
  nb::class_<PolicyRecord>(m, "PolicyRecord")
      .def_prop_ro("scheduling", [](const PolicyRecord& r) { return std::string(r.scheduling); })
      .def_prop_ro("batching", [](const PolicyRecord& r) { return std::string(r.batching); })
      .def_prop_ro("placement", [](const PolicyRecord& r) { return std::string(r.placement); });
  nb::class_<Verdict>(m, "Verdict")
      .def_ro("ok", &Verdict::ok)
      .def_ro("why", &Verdict::why)
      .def_ro("late_ns", &Verdict::late_ns);
  nb::class_<ModelSpec>(m, "ModelSpec")
      .def(nb::new_([](std::string name, int64_t version, std::vector<int64_t> input_bytes,
                       std::vector<int64_t> output_bytes, int32_t slots, int64_t qos_ns,
                       int32_t needed_cores, int64_t expected_ns, int64_t fastest_ns,
                       const nb::bytes& metadata) {
             return ModelSpec{std::move(name),
                              version,
                              std::move(input_bytes),
                              std::move(output_bytes),
                              slots,
                              qos_ns,
                              needed_cores,
                              expected_ns,
                              fastest_ns,
                              {metadata.c_str(), metadata.size()}};
           }),
           nb::kw_only(), "name"_a, "version"_a, "input_bytes"_a, "output_bytes"_a, "slots"_a,
           "qos_ns"_a, "needed_cores"_a, "expected_ns"_a, "fastest_ns"_a = 0, "metadata"_a);
  nb::class_<ModelStatus>(m, "ModelStatus")
      .def_ro("name", &ModelStatus::name)
      .def_ro("version", &ModelStatus::version)
      .def_ro("state", &ModelStatus::state)
      .def_ro("reason", &ModelStatus::reason)
      .def_ro("qos_ns", &ModelStatus::qos_ns)
      .def_ro("expected_ns", &ModelStatus::expected_ns)
      .def_ro("needed_cores", &ModelStatus::needed_cores)
      .def_ro("slots", &ModelStatus::slots)
      .def_prop_ro("metadata", [](const ModelStatus& status) {
        return nb::bytes(status.metadata.data(), status.metadata.size());
      });
  nb::class_<ModelCounts>(m, "ModelCounts")
      .def_ro("accepted", &ModelCounts::accepted)
      .def_ro("succeeded", &ModelCounts::succeeded)
      .def_ro("failed", &ModelCounts::failed)
      .def_ro("within_qos", &ModelCounts::within_qos)
      .def_ro("executions", &ModelCounts::executions)
      .def_ro("queue_ns", &ModelCounts::queue_ns)
      .def_ro("compute_ns", &ModelCounts::compute_ns)
      .def_ro("request_ns", &ModelCounts::request_ns)
      .def_ro("pending", &ModelCounts::pending)
      .def_ro("lateness", &ModelCounts::lateness)
      .def_ro("latency", &ModelCounts::latency);
  nb::class_<WorkerStatus>(m, "WorkerStatus")
      .def_ro("pid", &WorkerStatus::pid)
      .def_ro("busy", &WorkerStatus::busy)
      .def_ro("cores", &WorkerStatus::cores)
      .def_ro("beat_ns", &WorkerStatus::beat_ns)
      .def_ro("progress_ns", &WorkerStatus::progress_ns);
  m.attr("LATENCY_BOUNDS_NS") = [] {
    nb::list bounds;
    for (int b = 0; b < veltair::ipc::kBuckets; ++b)
      bounds.append(veltair::ipc::bucket_bound_ns(b));
    return nb::tuple(bounds);
  }();
}

void bind_levels(nb::module_& m) {
  using veltair::ipc::BlockTotals, veltair::ipc::LevelEstimate, veltair::sched::Measured;
  m.attr("MILLION") = veltair::sched::kMillion;
  m.attr("STALE_NS") = veltair::sched::kStaleNs;
  nb::class_<Measured>(m, "Measured")
      .def(nb::new_([](int32_t slowdown, int32_t confidence, int64_t time_ns) {
             return Measured{.slowdown = slowdown, .confidence = confidence, .time_ns = time_ns};
           }),
           nb::kw_only(), "slowdown"_a, "confidence"_a, "time_ns"_a)
      .def_ro("slowdown", &Measured::slowdown)
      .def_ro("confidence", &Measured::confidence)
      .def_ro("time_ns", &Measured::time_ns)
      .def("is_known", &Measured::is_known, "now_ns"_a);
  using veltair::ipc::BlockSample;
  nb::class_<BlockSample>(m, "BlockSample")
      .def(nb::new_([](int32_t core, int64_t took_ns, int64_t alone_ns, int64_t sensitivity_ns,
                       double highest_slowdown) {
             return BlockSample{.core = core,
                                .took_ns = took_ns,
                                .expected = {alone_ns, sensitivity_ns},
                                .highest_slowdown = highest_slowdown};
           }),
           nb::kw_only(), "core"_a, "took_ns"_a, "alone_ns"_a, "sensitivity_ns"_a,
           "highest_slowdown"_a);
  nb::class_<BlockTotals>(m, "BlockTotals")
      .def(nb::new_(
               [](double blocks, double took_ns, double alone_ns, double excess, double weight) {
                 return BlockTotals{.blocks = blocks,
                                    .took_ns = took_ns,
                                    .alone_ns = alone_ns,
                                    .excess = excess,
                                    .weight = weight};
               }),
           nb::kw_only(), "blocks"_a, "took_ns"_a, "alone_ns"_a, "excess"_a, "weight"_a)
      .def_ro("blocks", &BlockTotals::blocks)
      .def_ro("took_ns", &BlockTotals::took_ns)
      .def_ro("alone_ns", &BlockTotals::alone_ns)
      .def_ro("excess", &BlockTotals::excess)
      .def_ro("weight", &BlockTotals::weight);
  using veltair::ipc::LevelFeature, veltair::ipc::LevelLine, veltair::ipc::LevelTerm;
  nb::class_<LevelFeature>(m, "LevelFeature")
      .def(nb::new_([](double value, double confidence) {
             return LevelFeature{.value = value, .confidence = confidence};
           }),
           nb::kw_only(), "value"_a, "confidence"_a)
      .def_ro("value", &LevelFeature::value)
      .def_ro("confidence", &LevelFeature::confidence);
  m.def(
      "own_features",
      [](const BlockTotals& totals) {
        const veltair::ipc::OwnFeatures found = veltair::ipc::own_features(totals);
        return nb::make_tuple(found.level, found.slowdown);
      },
      "totals"_a);
  nb::class_<LevelTerm>(m, "LevelTerm")
      .def(
          nb::new_([](double mean, double scale, double coefficient, double low, double high) {
            return LevelTerm{
                .mean = mean, .scale = scale, .coefficient = coefficient, .low = low, .high = high};
          }),
          nb::kw_only(), "mean"_a, "scale"_a, "coefficient"_a, "low"_a, "high"_a);
  nb::class_<LevelLine>(m, "LevelLine")
      .def(nb::new_([](double intercept, double highest, double trust) {
             return LevelLine{.intercept = intercept, .highest = highest, .trust = trust};
           }),
           nb::kw_only(), "intercept"_a, "highest"_a, "trust"_a);
  m.def(
      "estimate_level",
      [](const LevelLine& line, const std::vector<LevelTerm>& terms,
         const std::vector<LevelFeature>& features) {
        return veltair::ipc::estimate_level(line, terms, features);
      },
      "line"_a, "terms"_a, "features"_a);
  using veltair::ipc::OwnModel;
  nb::enum_<OwnModel::Feature>(m, "OwnFeature")
      .value("LEVEL", OwnModel::Feature::kLevel)
      .value("SLOWDOWN", OwnModel::Feature::kSlowdown);
  nb::class_<OwnModel>(m, "OwnModel")
      .def(nb::new_([](const LevelLine& line, const std::vector<OwnModel::Feature>& features,
                       const std::vector<LevelTerm>& terms) {
             if (features.size() != terms.size() || terms.size() > OwnModel::kMostTerms) {
               throw std::invalid_argument(
                   "a model of own blocks has two terms at most, each of "
                   "one feature");
             }
             OwnModel model{.n_terms = static_cast<int32_t>(terms.size()), .line = line};
             std::ranges::copy(features, model.features);
             std::ranges::copy(terms, model.terms);
             return model;
           }),
           "line"_a, "features"_a, "terms"_a);
  m.def("level_memory_ns", &veltair::ipc::level_memory_ns, "totals"_a);
  nb::class_<LevelEstimate>(m, "LevelEstimate")
      .def_ro("level", &LevelEstimate::level)
      .def_ro("confidence", &LevelEstimate::confidence);
  using veltair::ipc::SmoothLevel;
  nb::class_<SmoothLevel>(m, "SmoothLevel")
      .def(nb::init<int64_t>(), "now_ns"_a)
      .def(
          "add",
          [](SmoothLevel& smooth, double level, double confidence, int64_t now_ns,
             double memory_ns) {
            return smooth.add({.level = level, .confidence = confidence}, now_ns, memory_ns);
          },
          "level"_a, "confidence"_a, "now_ns"_a, "memory_ns"_a);
  using veltair::ipc::LevelReport;
  nb::class_<LevelReport>(m, "LevelReport")
      .def_ro("measured", &LevelReport::measured)
      .def_ro("source", &LevelReport::source)
      .def_ro("decisions", &LevelReport::decisions)
      .def_ro("unmeasured", &LevelReport::unmeasured);
}

void bind_segment(nb::module_& m) {
  nb::class_<Segment>(m, "Segment")
      .def_static(
          "create",
          [](std::vector<int32_t> cpus, int32_t workers, const veltair::ipc::Policies& policies,
             std::vector<veltair::ipc::ModelSpec> models, std::vector<int32_t> complexes) {
            return Segment::create(
                {std::move(cpus), std::move(complexes), workers, policies, std::move(models)});
          },
          nb::kw_only(), "cpus"_a, "workers"_a, "policies"_a, "models"_a,
          "complexes"_a = std::vector<int32_t>{})
      .def_static("attach", &Segment::attach, "fd"_a)
      .def_prop_ro("fd", &Segment::fd)
      .def_prop_ro("size_bytes", &Segment::bytes)
      .def_prop_ro("server_pid", [](const Segment& s) { return s.header().server_pid; })
      .def_prop_ro("state",
                   [](const Segment& s) {
                     return static_cast<veltair::ipc::ServerState>(s.header().state.load());
                   })
      .def_prop_rw(
          "stop_requested", [](const Segment& s) { return s.header().stop_requested != 0; },
          [](Segment& s, bool stop) { s.header().stop_requested = stop ? 1 : 0; })
      .def_prop_ro("repairs", [](const Segment& s) { return s.header().repairs.load(); })
      .def_prop_ro("let_go_ns", [](const Segment& s) { return s.header().let_go_ns.load(); })
      .def_prop_ro("longest_let_go_ns",
                   [](const Segment& s) { return s.header().longest_let_go_ns.load(); })
      .def_prop_ro("returns", [](const Segment& s) { return s.header().returns.load(); })
      .def_prop_ro("revocations", [](const Segment& s) { return s.header().revocations.load(); })
      .def_prop_ro("pace", [](const Segment& s) { return s.header().pace.load(); })
      .def_prop_ro("cores", [](const Segment& s) { return s.cores().size(); })
      .def_prop_ro("cores_in_use", &veltair::ipc::cores_in_use)
      .def_prop_ro("complexes", [](const Segment& s) { return s.complexes().size(); })
      .def("level", [](const Segment& s) { return s.header().level.load(); })
      .def(
          "complex_level",
          [](const Segment& s, size_t complex) {
            if (complex >= s.complexes().size()) throw nb::index_error("no such core complex");
            return s.complexes()[complex].level.load();
          },
          "complex"_a)
      .def_prop_rw(
          "emulated_slowdown", [](const Segment& s) { return s.header().emulated_slowdown.load(); },
          [](Segment& s, int32_t millionths) { s.header().emulated_slowdown = millionths; })
      .def("models", &veltair::ipc::model_statuses)
      .def(
          "counts",
          [](const Segment& s, int32_t model) {
            if (model < 0 || model >= s.header().geometry.n_models) {
              throw nb::index_error("no such model");
            }
            return veltair::ipc::model_counts(s, model);
          },
          "model"_a)
      .def("workers", &veltair::ipc::worker_statuses)
      .def("client_pids", &veltair::ipc::client_pids);
}

// A worker's steps, as `Worker` takes them, for a caller that has the time and runs no kernels.
std::optional<veltair::sched::Decision> block_of(const veltair::ipc::Step& step) {
  if (step.decision.task == veltair::ipc::kNone) return std::nullopt;
  return step.decision;
}

std::vector<int32_t> held_cores(Board& board, int32_t worker) {
  OwnedCores found;
  board.read_cores(worker, &found);
  return found.held;
}

std::vector<int32_t> leaving_cores(Board& board, int32_t worker) {
  OwnedCores found;
  board.read_cores(worker, &found);
  std::vector<int32_t> cores(found.leaving.size());
  std::ranges::transform(found.leaving, cores.begin(), &OwnedCores::Leaving::core);
  return cores;
}

void bind_board(nb::module_& m) {
  nb::class_<PolicyAndModels>(m, "Scheduler")
      .def(nb::new_([](const std::string& policy, int32_t total_cores,
                       std::vector<veltair::sched::ModelProfile> models, uint32_t epoch,
                       std::optional<int> record, std::shared_ptr<Segment> measured) {
             auto made = std::make_shared<PolicyAndModels>();
             made->models = std::move(models);
             made->policy = veltair::sched::make_policy(policy, total_cores, made->models);
             made->epoch = epoch;
             if (measured) {
               made->interference = veltair::ipc::measured_interference(*measured, 0);
               made->segment = std::move(measured);
             }
             if (record) {
               made->recorder = std::make_unique<veltair::sched::Recorder>(
                   *record, veltair::sched::RecordRoom{.workers = 64, .decisions = 256});
               made->recorder->tell_policy(policy, {}, static_cast<int32_t>(epoch));
             }
             return made;
           }),
           "policy"_a, "total_cores"_a, "models"_a, "epoch"_a = 0, "record"_a = nb::none(),
           "measured"_a = nb::none());
  nb::class_<Board>(m, "Board")
      .def(nb::init<std::shared_ptr<Segment>>(), "segment"_a)
      .def("set_state", &Board::set_state, "state"_a, ReleaseGil())
      .def("set_model_state", &Board::set_model_state, "model"_a, "state"_a, "reason"_a,
           ReleaseGil())
      .def("set_policies", &Board::set_policies, "policies"_a, ReleaseGil())
      .def("pending", &Board::pending, ReleaseGil())
      .def(
          "fail_queued",
          [](Board& b, std::string_view error) {
            return b.fail_queued(error, veltair::ipc::monotonic_ns());
          },
          "error"_a, ReleaseGil())
      .def(
          "remove_worker",
          [](Board& b, int32_t worker) { b.remove_worker(worker, veltair::ipc::monotonic_ns()); },
          "worker"_a, ReleaseGil())
      .def(
          "remove_client",
          [](Board& b, int32_t client) { b.remove_client(client, veltair::ipc::monotonic_ns()); },
          "client"_a, ReleaseGil())
      .def("join", &Board::join, "worker"_a, "pid"_a, "now_ns"_a, ReleaseGil())
      .def(
          "take",
          [](Board& b, int32_t worker, const PolicyAndModels& by, int64_t now_ns) {
            return block_of(by.recorded(b.take(worker, by.scheduler(), now_ns)));
          },
          "worker"_a, "scheduler"_a, "now_ns"_a, ReleaseGil())
      .def(
          "next_block",
          [](Board& b, int32_t worker, const PolicyAndModels& by, int32_t layer_end, int64_t now_ns,
             const veltair::ipc::BlockSample* sample) {
            return block_of(
                by.recorded(b.next_block(worker, by.scheduler(), layer_end, now_ns, sample)));
          },
          "worker"_a, "scheduler"_a, "layer_end"_a, "now_ns"_a, "sample"_a = nb::none(),
          ReleaseGil())
      .def("complete", &Board::complete, "worker"_a, "error"_a, "now_ns"_a, "sample"_a = nb::none(),
           ReleaseGil())
      .def("held_cores", &held_cores, "worker"_a, ReleaseGil())
      .def("leaving_cores", &leaving_cores, "worker"_a, ReleaseGil())
      .def("running_task",
           [](Board& b, int32_t worker) { return b.segment().workers()[worker].running.task; })
      .def(
          "let_go",
          [](Board& b, int32_t worker, int32_t core, int64_t now_ns) {
            const int64_t revoked_ns = b.segment().cores()[core].revoked_ns;
            b.let_go(worker, core, revoked_ns, now_ns);
          },
          "worker"_a, "core"_a, "now_ns"_a, ReleaseGil())
      .def(
          "measure_by_blocks",
          [](Board& b, const std::vector<veltair::ipc::OwnModel>& models, int64_t period_ns,
             int64_t now_ns) { b.measure_by_blocks(models, period_ns, now_ns); },
          "models"_a, "period_ns"_a, "now_ns"_a, ReleaseGil())
      .def("look", &Board::look, "now_ns"_a, ReleaseGil())
      .def("read_blocks", &Board::read_blocks, ReleaseGil())
      .def("await_blocks", &Board::await_blocks, "seen"_a, "timeout_ns"_a, ReleaseGil())
      .def("wake_sampler", &Board::wake_sampler, ReleaseGil())
      .def(
          "tell_levels",
          [](Board& b, const veltair::sched::Measured& node,
             const std::vector<veltair::sched::Measured>& complexes,
             std::string_view source) { b.tell_levels(node, complexes, source); },
          "node"_a, "complexes"_a, "source"_a, ReleaseGil())
      .def("level_report", &Board::level_report, ReleaseGil())
      .def("check", &Board::check, ReleaseGil());
}

void bind_client(nb::module_& m) {
  nb::class_<Client>(m, "Client")
      .def(nb::init<std::shared_ptr<Segment>>(), "segment"_a)
      .def(
          "allocate",
          [](Client& client, int32_t model, std::optional<int64_t> now_ns) {
            int32_t query = veltair::ipc::kNone;
            const veltair::ipc::Verdict verdict =
                client.allocate(model, &query, now_ns.value_or(veltair::ipc::monotonic_ns()));
            return std::make_pair(verdict, query);
          },
          "model"_a, "now_ns"_a = nb::none(), ReleaseGil())
      .def(
          "submit",
          [](Client& client, int32_t query, std::optional<int64_t> arrival_ns, int64_t deadline_ns,
             int64_t tag) {
            const int64_t now_ns = veltair::ipc::monotonic_ns();
            return client.submit(query, arrival_ns.value_or(now_ns), deadline_ns, tag, now_ns);
          },
          "query"_a, "arrival_ns"_a.none(), "deadline_ns"_a, "tag"_a, ReleaseGil())
      .def("close", &Client::close, ReleaseGil())
      .def("release", &Client::release, "query"_a, ReleaseGil())
      .def("error", &Client::error, "query"_a)
      .def("poll", &Client::poll, "limit"_a, ReleaseGil())
      .def("wait", &Client::wait, "timeout_ns"_a, ReleaseGil())
      .def("fileno", &Client::descriptor)
      .def_prop_ro("server_gone", &Client::server_gone)
      .def("policies",
           [](Client& client) {
             uint32_t epoch = 0;
             const veltair::ipc::PolicyRecord record = client.board().policies(&epoch);
             return std::make_pair(record, epoch);
           })
      .def("level_report", [](Client& client) { return client.board().level_report(); })
      .def(
          "tensor",
          [](Client& client, int32_t model, int32_t tensor, int32_t slot) {
            return tensor_bytes(client.board().shared_segment(), model, tensor, slot);
          },
          "model"_a, "tensor"_a, "slot"_a)
      .def("first_slot", [](const Client& client, int32_t model) {
        return client.segment().models()[model].first_slot;
      });
}

// What a worker runs for one model of the segment; None: not served.
using ServedModel =
    std::optional<std::pair<std::shared_ptr<veltair::engine::Model>, veltair::sched::ModelProfile>>;

std::unique_ptr<veltair::ipc::Worker> make_worker(const std::shared_ptr<Segment>& segment,
                                                  int32_t index,
                                                  const std::vector<ServedModel>& models,
                                                  int64_t spin_ns, std::optional<int> record) {
  std::vector<std::shared_ptr<const veltair::engine::Model>> kernels;
  std::vector<veltair::sched::ModelProfile> profiles;
  for (const ServedModel& model : models) {
    kernels.push_back(model ? model->first : nullptr);
    profiles.push_back(model ? model->second : veltair::sched::ModelProfile::unknown());
  }
  auto executor = std::make_unique<veltair::ipc::KernelExecutor>(
      segment, index, kernels, profiles, veltair::engine::GangOptions{.spin_ns = spin_ns});
  return std::make_unique<veltair::ipc::Worker>(segment, index, std::move(profiles),
                                                std::move(executor), record);
}

std::vector<veltair::sched::ModelProfile> known_profiles(
    const std::vector<std::optional<veltair::sched::ModelProfile>>& models) {
  std::vector<veltair::sched::ModelProfile> profiles;
  profiles.reserve(models.size());
  for (const auto& model : models) {
    profiles.push_back(model ? *model : veltair::sched::ModelProfile::unknown());
  }
  return profiles;
}

std::unique_ptr<veltair::ipc::Worker> make_null_worker(
    const std::shared_ptr<Segment>& segment, int32_t index,
    const std::vector<std::optional<veltair::sched::ModelProfile>>& models,
    std::optional<int> record) {
  std::vector<veltair::sched::ModelProfile> profiles = known_profiles(models);
  auto executor = std::make_unique<veltair::ipc::NullExecutor>(segment, profiles);
  return std::make_unique<veltair::ipc::Worker>(segment, index, std::move(profiles),
                                                std::move(executor), record);
}

void bind_ipc(nb::module_& parent) {
  using veltair::ipc::Worker;
  nb::module_ m = parent.def_submodule("ipc", "The shared segment: server, clients, workers.");
  bind_ipc_records(m);
  bind_levels(m);
  bind_segment(m);
  bind_board(m);
  bind_client(m);
  nb::class_<veltair::ipc::BatchLoop>(m, "BatchLoop")
      .def(nb::new_([](const std::shared_ptr<Segment>& segment,
                       const std::vector<std::optional<veltair::sched::ModelProfile>>& models,
                       std::optional<int> record) {
             return std::make_unique<veltair::ipc::BatchLoop>(segment, known_profiles(models),
                                                              record);
           }),
           "segment"_a, "models"_a, "record"_a = nb::none())
      .def("start", &veltair::ipc::BatchLoop::start)
      .def("stop", &veltair::ipc::BatchLoop::stop, ReleaseGil());
  nb::class_<Worker>(m, "Worker")
      .def(nb::new_(&make_worker), nb::kw_only(), "segment"_a, "index"_a, "models"_a, "spin_ns"_a,
           "record"_a = nb::none())
      .def_static("asleep", &make_null_worker, nb::kw_only(), "segment"_a, "index"_a, "models"_a,
                  "record"_a = nb::none())
      .def_prop_ro("record_error", &Worker::record_error)
      .def("run", &Worker::run, ReleaseGil())
      .def("leave", &Worker::leave)
      .def("beat", &Worker::beat);
}

// ---- simulated devices

template <typename T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Column = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;

// One field of a vector of records, as a view that keeps the run alive.
template <typename T, typename Record>
Column<T> column(nb::handle run, const std::vector<Record>& records, const T Record::* field) {
  static_assert(sizeof(Record) % sizeof(T) == 0);
  const T* first = records.empty() ? nullptr : &(records.front().*field);
  return {first, {records.size()}, run, {static_cast<int64_t>(sizeof(Record) / sizeof(T))}};
}

template <typename T>
Column<T> column(nb::handle run, const std::vector<T>& values) {
  return {values.data(), {values.size()}, run};
}

void bind_devices(nb::module_& parent) {
  using veltair::sim::devices::BatchRecord, veltair::sim::devices::DeviceRun,
      veltair::sim::devices::Outcome;
  nb::module_ m = parent.def_submodule("devices", "Batching under a simulated clock.");
  m.attr("ANSWERED") = static_cast<int>(Outcome::kAnswered);
  m.attr("DROPPED_DEADLINE") = static_cast<int>(Outcome::kDeadline);
  m.attr("DROPPED_QUEUE_FULL") = static_cast<int>(Outcome::kQueueFull);
  m.attr("DROPPED_GIVEN_UP") = static_cast<int>(Outcome::kGivenUp);
  const auto run_of = [](nb::handle self) -> const DeviceRun& {
    return nb::cast<const DeviceRun&>(self);
  };
  nb::class_<DeviceRun>(m, "DeviceRun")
      .def_ro("events", &DeviceRun::events)
      .def_prop_ro("outcome",
                   [run_of](nb::handle self) {
                     const auto& outcome = run_of(self).outcome;
                     return Column<uint8_t>{
                         reinterpret_cast<const uint8_t*>(outcome.data()), {outcome.size()}, self};
                   })
      .def_prop_ro("end_ns", [run_of](nb::handle s) { return column(s, run_of(s).end_ns); })
      .def_prop_ro("batch", [run_of](nb::handle s) { return column(s, run_of(s).batch); })
      .def_prop_ro(
          "start_ns",
          [run_of](nb::handle s) { return column(s, run_of(s).batches, &BatchRecord::start_ns); })
      .def_prop_ro(
          "batch_end_ns",
          [run_of](nb::handle s) { return column(s, run_of(s).batches, &BatchRecord::end_ns); })
      .def_prop_ro(
          "model",
          [run_of](nb::handle s) { return column(s, run_of(s).batches, &BatchRecord::model); })
      .def_prop_ro(
          "device",
          [run_of](nb::handle s) { return column(s, run_of(s).batches, &BatchRecord::device); })
      .def_prop_ro("size", [run_of](nb::handle s) {
        return column(s, run_of(s).batches, &BatchRecord::size);
      });
  m.def(
      "run_devices",
      [](std::string_view batching, std::string_view placement,
         const std::vector<veltair::sched::BatchCost>& costs, const std::vector<int64_t>& slo_ns,
         int32_t devices, int32_t queue_limit, const Input<int64_t>& arrival_ns,
         const Input<int32_t>& model, std::optional<int> record) {
        const auto batcher = make_batcher(
            batching, placement, costs,
            {static_cast<size_t>(devices), veltair::sched::ExecutorKind::kDevice}, queue_limit);
        const auto recorder = make_recorder(record, 1);
        DeviceRun run;
        {
          const nb::gil_scoped_release released;
          run = veltair::sim::devices::run_devices(
              *batcher, costs, slo_ns,
              {{arrival_ns.data(), arrival_ns.size()}, {model.data(), model.size()}},
              handle_signals, recorder.get());
        }
        finish(recorder.get());
        return run;
      },
      nb::kw_only(), "batching"_a, "placement"_a, "costs"_a, "slo_ns"_a, "devices"_a,
      "queue_limit"_a, "arrival_ns"_a, "model"_a, "record"_a = nb::none());
}

// ---- proxy

// (type, config, config1, config2, user_only)
using PerfEventTuple = std::tuple<uint32_t, uint64_t, uint64_t, uint64_t, bool>;

std::shared_ptr<veltair::proxy::PerfGroup> make_perf_group(
    const std::vector<PerfEventTuple>& events, int tid, int cpu) {
  std::vector<veltair::proxy::PerfEvent> converted;
  converted.reserve(events.size());
  for (const auto& [type, config, config1, config2, user_only] : events) {
    converted.push_back({type, config, config1, config2, user_only});
  }
  return std::make_shared<veltair::proxy::PerfGroup>(converted, tid, cpu);
}

// Raises OSError with the kernel's number.
void translate_perf_error(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const veltair::proxy::PerfError& error) {
    PyErr_SetObject(PyExc_OSError, nb::make_tuple(error.code().value(), error.what()).ptr());
  }
}

void bind_counting(nb::module_& m) {
  namespace proxy = veltair::proxy;
  nb::register_exception_translator(translate_perf_error);
  m.attr("MOST_PERF_EVENTS") = proxy::PerfState::kMostEvents;
  nb::class_<proxy::PerfTimes>(m, "PerfTimes", "What a group was counted over.")
      .def_ro("elapsed_ns", &proxy::PerfTimes::elapsed_ns)
      .def_ro("enabled_ns", &proxy::PerfTimes::enabled_ns)
      .def_ro("running_ns", &proxy::PerfTimes::running_ns)
      .def_ro("by_page", &proxy::PerfTimes::by_page);
  nb::class_<proxy::PerfGroup>(m, "PerfGroup", "Events counted together on a thread or a cpu.")
      .def(nb::new_(&make_perf_group), "events"_a, "tid"_a, "cpu"_a)
      .def(
          "read",
          [](proxy::PerfGroup& group, nb::handle counts) {
            const Buffer buffer(counts, true);
            return group.read({static_cast<double*>(buffer.data()),
                               static_cast<size_t>(buffer.size_bytes()) / sizeof(double)});
          },
          "counts"_a);
  nb::class_<proxy::ProbeReading>(m, "ProbeReading", "What the walks since the last one found.")
      .def_ro("walks", &proxy::ProbeReading::walks)
      .def_ro("interrupted", &proxy::ProbeReading::interrupted)
      .def_ro("cpu_ns", &proxy::ProbeReading::cpu_ns)
      .def_ro("elapsed_ns", &proxy::ProbeReading::elapsed_ns)
      .def_ro("low", &proxy::ProbeReading::low)
      .def_ro("median", &proxy::ProbeReading::median)
      .def_ro("high", &proxy::ProbeReading::high)
      .def_ro("again", &proxy::ProbeReading::again);
  const proxy::ProbeOptions defaults;
  nb::class_<proxy::ProbeWalk>(m, "ProbeWalk", "A thread that walks a little and rests a lot.")
      .def(nb::new_([](std::vector<int> cpus, int64_t buffer_bytes, int64_t stride_bytes, int steps,
                       double budget, int64_t least_rest_ns) {
             const nb::gil_scoped_release released;
             return std::make_shared<proxy::ProbeWalk>(proxy::ProbeOptions{
                 std::move(cpus), buffer_bytes, stride_bytes, steps, budget, least_rest_ns});
           }),
           "cpus"_a, "buffer_bytes"_a, "stride_bytes"_a, "steps"_a = defaults.steps,
           "budget"_a = defaults.budget, "least_rest_ns"_a = defaults.least_rest_ns)
      .def_prop_ro("buffer_bytes", &proxy::ProbeWalk::buffer_bytes)
      .def_prop_ro("huge", &proxy::ProbeWalk::huge)
      .def("reading", &proxy::ProbeWalk::reading);
}

void bind_proxy(nb::module_& parent) {
  namespace proxy = veltair::proxy;
  nb::module_ m = parent.def_submodule("proxy", "What makes and measures interference.");
  m.attr("PAGE_BYTES") = proxy::Bubble::kPageBytes;

  nb::class_<proxy::BubbleReading>(m, "BubbleReading", "What a bubble has done at its rate.")
      .def_ro("bytes", &proxy::BubbleReading::bytes)
      .def_ro("elapsed_ns", &proxy::BubbleReading::elapsed_ns)
      .def_ro("missed_ns", &proxy::BubbleReading::missed_ns);
  nb::class_<proxy::Bubble>(m, "Bubble", "A thread that moves its memory at a set rate.")
      .def(nb::new_([](int cpu, int64_t footprint_bytes) {
             const nb::gil_scoped_release released;
             return std::make_shared<proxy::Bubble>(cpu, footprint_bytes);
           }),
           "cpu"_a, "footprint_bytes"_a)
      .def_prop_ro("cpu", &proxy::Bubble::cpu)
      .def_prop_ro("footprint_bytes", &proxy::Bubble::footprint_bytes)
      .def("set_rate", &proxy::Bubble::set_rate, "bytes_per_s"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("reading", &proxy::Bubble::reading);
  m.attr("WHOLE_SHARE") = proxy::Evictor::kWhole;
  nb::class_<proxy::Victim>(m, "Victim", "A part of a file that others have mapped.")
      .def(
          "__init__",
          [](proxy::Victim* self, std::string path, int64_t file_bytes, int64_t begin_bytes,
             int64_t end_bytes) {
            new (self) proxy::Victim{std::move(path), file_bytes, begin_bytes, end_bytes};
          },
          "path"_a, "file_bytes"_a, "begin_bytes"_a, "end_bytes"_a);
  nb::class_<proxy::Evictor>(m, "Evictor", "A thread that throws memory out of the caches.")
      .def(nb::new_([](int cpu, const std::vector<proxy::Victim>& victims) {
             const nb::gil_scoped_release released;
             return std::make_shared<proxy::Evictor>(cpu, victims);
           }),
           "cpu"_a, "victims"_a)
      .def("set_share", &proxy::Evictor::set_share, "millionths"_a,
           nb::call_guard<nb::gil_scoped_release>())
      .def("evicted_bytes", &proxy::Evictor::evicted_bytes);
  nb::class_<proxy::Reference>(m, "Reference", "The kernel that levels are reckoned by.")
      .def(nb::init<int, int64_t>(), "cpu"_a, "working_set_bytes"_a)
      .def(nb::init<int, const std::string&, int64_t>(), "cpu"_a, "path"_a, "working_set_bytes"_a)
      .def_prop_ro("working_set_bytes", &proxy::Reference::working_set_bytes)
      .def(
          "time",
          [](proxy::Reference& reference, nb::handle pass_ns) {
            const Buffer buffer(pass_ns, true);
            const nb::gil_scoped_release released;
            reference.time(times_of(buffer));
          },
          "pass_ns"_a);
  bind_counting(m);
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): nanobind hands the module by value
NB_MODULE(_native, m) {
  m.doc() = "Veltair's native engine, policies and shared segment.";
  bind_engine(m);
  bind_sched(m);
  bind_sim(m);
  bind_ipc(m);
  bind_devices(m);
  bind_proxy(m);
}
