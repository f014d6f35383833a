// The native library as Python sees it: conversions only, no logic.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "native/engine/error.h"
#include "native/engine/gang.h"
#include "native/engine/instance.h"
#include "native/engine/model.h"
#include "native/engine/probe.h"

namespace nb = nanobind;

namespace {

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
using LayerTuple = std::tuple<std::string, std::vector<VariantTuple>>;

engine::LayerSpec to_layer(const LayerTuple& layer) {
  engine::LayerSpec spec{std::get<0>(layer), {}};
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
  return spec;
}

std::shared_ptr<engine::Model> make_model(const std::string& ffi_path,
                                          const std::string& kernels_path,
                                          const std::string& weights_path, int64_t weights_bytes,
                                          int64_t arena_bytes, std::vector<int64_t> input_bytes,
                                          std::vector<int64_t> output_bytes,
                                          const std::vector<LayerTuple>& layers) {
  engine::ModelSpec spec{kernels_path,
                         weights_path,
                         weights_bytes,
                         arena_bytes,
                         std::move(input_bytes),
                         std::move(output_bytes),
                         {}};
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
  using nb::literals::operator""_a;
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
      .def("choose_tasks", &engine::Gang::choose_tasks, "cores"_a, "extent"_a);

  nb::class_<engine::Model>(m, "Model", "An artifact's kernels and weights, checked.")
      .def(nb::new_(&make_model), "ffi_path"_a, "kernels_path"_a, "weights_path"_a,
           "weights_bytes"_a, "arena_bytes"_a, "input_bytes"_a, "output_bytes"_a, "layers"_a)
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
}

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): nanobind hands the module by value
NB_MODULE(_native, m) {
  m.doc() = "Veltair's native engine, policies and shared segment.";
  bind_engine(m);
}
