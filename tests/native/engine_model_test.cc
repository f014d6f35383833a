// A model runs its kernels over its storages, refuses what it must, and allocates nothing per run.
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "count_allocations.h"
#include "cpus.h"
#include "fake_model.h"
#include "native/engine/error.h"
#include "native/engine/instance.h"
#include "native/engine/model.h"

namespace veltair::engine {
namespace {

using namespace fakes;  // NOLINT: short names for tests

std::shared_ptr<Gang> all_cores() {
  auto gang = std::make_shared<Gang>(usable_cpus());
  for (size_t core = 1; core < gang->cpus().size(); ++core) gang->grant(static_cast<int>(core));
  return gang;
}

struct Vectors {
  alignas(kStorageAlignment) float in[kLength];
  alignas(kStorageAlignment) float out[kLength];
  Vectors() {
    for (int64_t i = 0; i < kLength; ++i) in[i] = 0.5F;
    std::memset(out, 0, sizeof out);
  }
  bool right() const {
    for (int64_t i = 0; i < kLength; ++i) {
      if (out[i] != 0.5F + 3.0F * static_cast<float>(i)) return false;
    }
    return true;
  }
};

void runs_whole_and_in_blocks() {
  const WeightsFile weights;
  Instance instance(std::make_shared<Model>(ffi(), add_model(weights)), all_cores());
  Vectors whole;
  instance.bind_input(0, whole.in);
  instance.bind_output(0, whole.out);
  std::vector<int64_t> layer_ns(3, -1);
  instance.run(instance.all(), {}, layer_ns);
  CHECK(whole.right());
  for (const int64_t ns : layer_ns) CHECK(ns > 0);

  Vectors blocks;
  instance.bind_input(0, blocks.in);
  instance.bind_output(0, blocks.out);
  instance.run({0, 1});
  instance.run({1, 1});
  instance.gang().set_cores(std::vector<int>{static_cast<int>(instance.gang().cpus().size()) - 1});
  instance.run({1, 3}, std::vector<uint16_t>{0, 0});
  CHECK(blocks.right());
}

void layers_are_cut_as_asked() {
  const WeightsFile weights;
  Instance instance(std::make_shared<Model>(ffi(), telling_model(weights)), all_cores());
  const int cores = instance.gang().granted();
  Vectors vectors;
  instance.bind_input(0, vectors.in);
  instance.bind_output(0, vectors.out);
  instance.run(instance.all());
  const float usual = vectors.out[0];
  CHECK(usual <= static_cast<float>(4 * cores));
  instance.run(instance.all(), {}, {}, std::vector<uint16_t>{1, 1, 100});
  CHECK(cores == 1 ? vectors.out[0] == usual : vectors.out[0] >= 100);
  instance.run(instance.all(), {}, {}, std::vector<uint16_t>{100, 100, 1});
  CHECK(vectors.out[0] == usual);
  CHECK_THROWS(instance.run({0, 3}, {}, {}, std::vector<uint16_t>{1, 1}), UsageError);
}

void instances_share_a_model() {
  const WeightsFile weights;
  const auto model = std::make_shared<Model>(ffi(), add_model(weights));
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&model] {
      Instance instance(model, all_cores());
      for (int round = 0; round < 200; ++round) {
        Vectors vectors;
        instance.bind_input(0, vectors.in);
        instance.bind_output(0, vectors.out);
        instance.run(instance.all());
        CHECK(vectors.right());
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// The borders of both layers' tensors, which lie one behind the other in garbage.
void borders_are_cleared_and_nothing_else() {
  const WeightsFile weights;
  ModelSpec spec = add_model(weights);
  // Two planes of 10 x 50 floats, as the layers write them, of which the inside is 7 x 45.
  const BorderSpec border{kArenaOffset, 2, 10, 50, 4, 1, 2, 2, 3};
  spec.layers[1].cleared = {border};
  spec.bordered_bytes = 64;
  const auto arena = std::make_shared<Arena>(1 << 20);
  std::memset(arena->data(), 0x7f, arena->size_bytes());
  Instance instance(std::make_shared<Model>(ffi(), spec), all_cores(), arena);
  Vectors vectors;
  instance.bind_input(0, vectors.in);
  instance.bind_output(0, vectors.out);
  for (int round = 0; round < 2; ++round) {
    instance.run(instance.all());
    for (int64_t i = 0; i < kLength; ++i) {
      const int64_t row = i / 50 % 10;
      const int64_t column = i % 50;
      const bool inside = row >= 1 && row < 8 && column >= 2 && column < 47;
      // The second layer reads the first one's sum behind the clearing, the third its own.
      const float summed = inside ? 0.5F + 1.0F * static_cast<float>(i) : 0.0F;
      CHECK(vectors.out[i] == summed + 2.0F * static_cast<float>(i));
    }
  }
  const auto at = [&](int64_t offset) { return static_cast<int>(arena->data()[offset]); };
  CHECK(at(kArenaOffset - 1) == 0x7f);
  CHECK(at(kArenaOffset + 8192 + kLength) == 0x7f);
}

void models_share_an_arena_one_after_the_other() {
  const WeightsFile weights;
  const auto arena = std::make_shared<Arena>(1 << 20);
  const auto gang = all_cores();
  Instance one(std::make_shared<Model>(ffi(), add_model(weights)), gang, arena);
  ModelSpec farther = add_model(weights);
  farther.arena_bytes += 64;
  for (LayerSpec& layer : farther.layers) {
    for (ArgumentSpec& argument : layer.variants[0].arguments) {
      if (argument.storage == Storage::kArena) argument.offset_bytes += 64;
    }
  }
  Instance other(std::make_shared<Model>(ffi(), farther), gang, arena);
  for (int round = 0; round < 3; ++round) {
    for (Instance* instance : {&one, &other}) {
      Vectors vectors;
      instance->bind_input(0, vectors.in);
      instance->bind_output(0, vectors.out);
      instance->run(instance->all());
      CHECK(vectors.right());
    }
  }
  const auto small = std::make_shared<Arena>(64);
  CHECK_THROWS(Instance(std::make_shared<Model>(ffi(), farther), gang, small), UsageError);
}

void borders_that_fit_nowhere_are_refused() {
  const WeightsFile weights;
  const BorderSpec good{0, 2, 10, 50, 4, 1, 2, 2, 3};
  CHECK(good.fits(4000));
  CHECK(!good.fits(3999));
  const auto refused = [&](int64_t BorderSpec::* field, int64_t value) {
    BorderSpec bad = good;
    bad.*field = value;
    ModelSpec spec = add_model(weights);
    spec.layers[0].cleared = {bad};
    CHECK_THROWS(Model(ffi(), spec), ArtifactError);
  };
  refused(&BorderSpec::offset_bytes, -4);
  refused(&BorderSpec::offset_bytes, INT64_MAX);
  refused(&BorderSpec::planes, 0);
  refused(&BorderSpec::planes, INT64_MAX / 16);
  refused(&BorderSpec::height, 3);
  refused(&BorderSpec::width, 5);
  refused(&BorderSpec::pixel_bytes, 0);
  refused(&BorderSpec::top, -1);
  refused(&BorderSpec::bottom, INT64_MAX);
  refused(&BorderSpec::left, INT64_MAX);
  refused(&BorderSpec::right, 48);
}

void runs_allocate_nothing() {
  const WeightsFile weights;
  Instance instance(std::make_shared<Model>(ffi(), add_model(weights)), all_cores());
  Vectors vectors;
  std::vector<int64_t> layer_ns(3);
  const std::vector<uint16_t> variants(3, 0);
  const auto run_often = [&] {
    for (int round = 0; round < 200; ++round) {
      instance.bind_input(0, vectors.in);
      instance.bind_output(0, vectors.out);
      instance.run(instance.all(), variants, layer_ns);
    }
  };
  run_often();  // the workspaces are made
  const int64_t before = allocations.load();
  run_often();
  CHECK(allocations.load() == before);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const KernelError& error) {
    return error.what();
  }
  return "";
}

void kernel_errors_keep_their_message() {
  const WeightsFile weights;
  ModelSpec spec = add_model(weights);
  spec.layers[1].variants.push_back({"fail", 0, {}});
  Instance instance(std::make_shared<Model>(ffi(), spec), all_cores());
  Vectors vectors;
  instance.bind_input(0, vectors.in);
  instance.bind_output(0, vectors.out);
  for (int round = 0; round < 50; ++round) {
    const std::string text =
        message_of([&] { instance.run(instance.all(), std::vector<uint16_t>{0, 2, 0}); });
    CHECK(text == "layer two, kernel fail: ValueError: task 1 does not want to");
  }
  const std::string silent =
      message_of([&] { instance.run(instance.all(), std::vector<uint16_t>{0, 1, 0}); });
  CHECK(silent.starts_with("layer two, kernel fail_silently: failed without a message"));
  instance.run(instance.all());  // and it still works
  CHECK(vectors.right());
}

void forged_descriptions_are_refused() {
  const WeightsFile weights;
  const auto refused = [&](const std::function<void(ModelSpec&)>& forge) {
    ModelSpec spec = add_model(weights);
    forge(spec);
    CHECK_THROWS(Model(ffi(), spec), ArtifactError);
  };
  const auto first = [](ModelSpec& spec) -> ArgumentSpec& {
    return spec.layers[0].variants[0].arguments[0];
  };
  refused([&](ModelSpec& spec) { first(spec).shape = {kLength + 1}; });
  refused([&](ModelSpec& spec) { first(spec).strides = {2}; });
  refused([&](ModelSpec& spec) { first(spec).strides = {-1}; });
  refused([&](ModelSpec& spec) { first(spec).strides = {}; });
  refused([&](ModelSpec& spec) { first(spec).shape = {-1}; });
  refused([&](ModelSpec& spec) { first(spec).shape = {INT64_MAX}; });
  refused([&](ModelSpec& spec) {
    first(spec).shape = {INT64_MAX / 4, INT64_MAX / 4};
    first(spec).strides = {INT64_MAX / 2, INT64_MAX / 2};
  });
  refused([&](ModelSpec& spec) { first(spec).offset_bytes = 4; });
  refused([&](ModelSpec& spec) { first(spec).offset_bytes = -4; });
  refused([&](ModelSpec& spec) { first(spec).offset_bytes = INT64_MAX - 3; });
  refused([&](ModelSpec& spec) { first(spec).index = 1; });
  refused([&](ModelSpec& spec) { first(spec).index = -1; });
  refused([&](ModelSpec& spec) { first(spec).dtype.lanes = 0; });
  refused([&](ModelSpec& spec) { first(spec).dtype.bits = 64; });
  refused([&](ModelSpec& spec) { first(spec).storage = static_cast<Storage>(9); });
  refused([&](ModelSpec& spec) { spec.arena_bytes = 4096; });
  refused([&](ModelSpec& spec) { spec.arena_bytes = -1; });
  refused([&](ModelSpec& spec) { spec.bordered_bytes = -1; });
  refused([&](ModelSpec& spec) { first(spec).storage = Storage::kBordered; });
  refused([&](ModelSpec& spec) { spec.weights_bytes = kBytes - 4; });
  refused([&](ModelSpec& spec) { spec.weights_bytes = kBytes + 4; });
  refused([&](ModelSpec& spec) { spec.weights_path += ".missing"; });
  refused([&](ModelSpec& spec) { spec.kernels_path = spec.weights_path; });
  refused([&](ModelSpec& spec) { spec.kernels_path = FAKE_BARRIER_KERNELS; });
  refused([&](ModelSpec& spec) { spec.layers[0].variants[0].symbol = "absent"; });
  refused([&](ModelSpec& spec) { spec.layers[0].variants[0].parallel_extent = -1; });
  refused([&](ModelSpec& spec) { spec.layers[0].variants.clear(); });
  CHECK_THROWS(FfiRuntime("/nonexistent/libtvm_ffi.so"), ArtifactError);
  CHECK_THROWS(FfiRuntime(FAKE_KERNELS), ArtifactError);
}

void wrong_calls_are_refused() {
  const WeightsFile weights;
  Instance instance(std::make_shared<Model>(ffi(), add_model(weights)), all_cores());
  Vectors vectors;
  CHECK_THROWS(instance.run(instance.all()), UsageError);  // nothing is bound
  CHECK_THROWS(instance.bind_input(1, vectors.in), UsageError);
  CHECK_THROWS(instance.bind_input(0, nullptr), UsageError);
  CHECK_THROWS(instance.bind_output(-1, vectors.out), UsageError);
  CHECK_THROWS(instance.bind_output(0, vectors.out + 1), UsageError);
  instance.bind_input(0, vectors.in);
  instance.bind_output(0, vectors.out);
  CHECK_THROWS(instance.run({0, 4}), UsageError);
  CHECK_THROWS(instance.run({-1, 3}), UsageError);
  CHECK_THROWS(instance.run({2, 1}), UsageError);
  CHECK_THROWS(instance.run({0, 3}, std::vector<uint16_t>{0, 0}), UsageError);
  CHECK_THROWS(instance.run({0, 3}, std::vector<uint16_t>{0, 9, 0}), UsageError);
  std::vector<int64_t> short_ns(2);
  CHECK_THROWS(instance.run({0, 3}, {}, short_ns), UsageError);
  for (const float value : vectors.out) CHECK(value == 0);
}

}  // namespace
}  // namespace veltair::engine

int main() {
  using namespace veltair::engine;
  for (void (*test)() :
       {runs_whole_and_in_blocks, layers_are_cut_as_asked, instances_share_a_model,
        borders_are_cleared_and_nothing_else, models_share_an_arena_one_after_the_other,
        borders_that_fit_nowhere_are_refused, runs_allocate_nothing,
        kernel_errors_keep_their_message, forged_descriptions_are_refused,
        wrong_calls_are_refused}) {
    std::thread(test).join();  // on a thread of its own, so that the next starts unpinned
  }
  return 0;
}
