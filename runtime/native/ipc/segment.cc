#include "native/ipc/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

#include "native/sched/batching.h"
#include "native/sched/placement.h"

namespace veltair::ipc {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

int64_t aligned(int64_t bytes, int64_t alignment = kAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Hands out consecutive places.
class Planner {
 public:
  int64_t place(int64_t bytes, int64_t alignment = kAlignment) {
    const int64_t offset = aligned(next_, alignment);
    next_ = offset + bytes;
    return offset;
  }
  int64_t end() const { return next_; }

 private:
  int64_t next_ = 0;
};

struct ModelPlan {
  int64_t tensors_offset;
  int64_t bitmap_offset;
  int64_t metadata_offset;
  std::vector<TensorRecord> tensors;
};

struct Plan {
  Geometry geometry;
  std::vector<ModelPlan> models;
};

void check(const SegmentSpec& spec) {
  if (spec.cpus.empty()) throw std::invalid_argument("a segment needs at least one core");
  if (spec.workers < 1) throw std::invalid_argument("a segment needs at least one worker");
  if (!spec.complexes.empty() && spec.complexes.size() != spec.cpus.size()) {
    throw std::invalid_argument("each core is of one core complex");
  }
  for (const int32_t complex : spec.complexes) {
    if (complex < 0 || complex >= static_cast<int32_t>(spec.cpus.size())) {
      throw std::invalid_argument("core complexes are counted from 0: " + std::to_string(complex));
    }
  }
  for (const ModelSpec& model : spec.models) {
    if (model.name.empty() || model.name.size() >= sizeof(ModelRecord::name)) {
      throw std::invalid_argument("a model's name has 1 to 255 bytes: " + model.name);
    }
    if (model.slots < 1) throw std::invalid_argument("a model needs at least one slot");
  }
}

Plan plan_layout(const SegmentSpec& spec) {
  check(spec);
  constexpr int64_t kPage = 4096;
  Plan plan;
  Geometry& geometry = plan.geometry;
  geometry.n_cores = static_cast<int32_t>(spec.cpus.size());
  geometry.n_complexes = 1;
  for (const int32_t complex : spec.complexes) {
    geometry.n_complexes = std::max(geometry.n_complexes, complex + 1);
  }
  geometry.n_workers = spec.workers;
  geometry.n_models = static_cast<int32_t>(spec.models.size());
  for (const ModelSpec& model : spec.models) geometry.n_slots += model.slots;
  geometry.ring_capacity = std::bit_ceil(static_cast<uint32_t>(std::max(geometry.n_slots, 1)));

  Planner planner;
  planner.place(sizeof(Header));
  geometry.cores_offset = planner.place(int64_t{sizeof(CoreRecord)} * geometry.n_cores);
  geometry.complexes_offset = planner.place(int64_t{sizeof(ComplexRecord)} * geometry.n_complexes);
  geometry.workers_offset = planner.place(int64_t{sizeof(WorkerRecord)} * geometry.n_workers);
  geometry.clients_offset = planner.place(int64_t{sizeof(ClientRecord)} * kMaxClients);
  geometry.models_offset = planner.place(int64_t{sizeof(ModelRecord)} * geometry.n_models);
  geometry.queries_offset = planner.place(int64_t{sizeof(QueryRecord)} * geometry.n_slots);
  geometry.tasks_offset = planner.place(int64_t{sizeof(TaskRecord)} * geometry.n_slots);
  geometry.rings_offset =
      planner.place(int64_t{sizeof(uint32_t)} * kMaxClients * geometry.ring_capacity);
  for (const ModelSpec& model : spec.models) {
    ModelPlan each{};
    const auto tensors = static_cast<int64_t>(model.input_bytes.size() + model.output_bytes.size());
    each.tensors_offset = planner.place(int64_t{sizeof(TensorRecord)} * tensors);
    each.bitmap_offset = planner.place(aligned(model.slots, 64) / 8);
    each.metadata_offset = planner.place(static_cast<int64_t>(model.metadata.size()));
    plan.models.push_back(each);
  }
  // Arenas begin on pages of their own, so that unused ones cost nothing.
  for (size_t m = 0; m < spec.models.size(); ++m) {
    const ModelSpec& model = spec.models[m];
    for (const auto* sizes : {&model.input_bytes, &model.output_bytes}) {
      for (int64_t bytes : *sizes) {
        const int64_t stride = std::max<int64_t>(aligned(bytes), kAlignment);
        plan.models[m].tensors.push_back(
            {planner.place(stride * model.slots, kPage), bytes, stride});
      }
    }
  }
  geometry.bytes = aligned(planner.end(), kPage);
  return plan;
}

void init_mutex(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int error = pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_mutex_init");
}

void copy_name(char* to, size_t capacity, const std::string& from) {
  from.copy(to, capacity - 1);  // the last byte stays 0
}

void fill_header(Header& header, const Plan& plan, const SegmentSpec& spec) {
  header.layout_version = kLayoutVersion;
  header.header_bytes = sizeof(Header);
  header.geometry = plan.geometry;
  header.server_pid = getpid();
  header.policies = make_record(spec.policies, plan.geometry.n_cores);
  header.queue_head = kNone;
  header.queue_tail = kNone;
  header.inbox_head = kNone;
  header.inbox_tail = kNone;
  header.free_cores = plan.geometry.n_cores;
  header.emulated_slowdown = kNone;
  header.pace = sched::kAsPredicted;
  init_mutex(header.mutex);
}

void fill_model(const Segment& segment, ModelRecord& record, const ModelSpec& spec,
                const ModelPlan& plan, std::byte* metadata) {
  copy_name(record.name, sizeof record.name, spec.name);
  record.version = spec.version;
  record.qos_ns = spec.qos_ns;
  record.expected_ns = spec.expected_ns;
  record.fastest_ns = spec.fastest_ns > 0 ? spec.fastest_ns : spec.expected_ns;
  record.needed_cores = spec.needed_cores;
  record.slots = spec.slots;
  record.inputs = static_cast<int32_t>(spec.input_bytes.size());
  record.outputs = static_cast<int32_t>(spec.output_bytes.size());
  record.tensors_offset = plan.tensors_offset;
  record.bitmap_offset = plan.bitmap_offset;
  record.metadata_offset = plan.metadata_offset;
  record.metadata_bytes = static_cast<int64_t>(spec.metadata.size());
  record.free_slots = spec.slots;
  std::ranges::copy(plan.tensors, segment.tensors(record).begin());
  std::memcpy(metadata, spec.metadata.data(), spec.metadata.size());
  const std::span<uint64_t> bitmap = segment.free_slots(record);
  for (int32_t slot = 0; slot < spec.slots; ++slot) bitmap[slot / 64] |= uint64_t{1} << (slot % 64);
}

}  // namespace

namespace {

void check(const BatchOptions& batch) {
  const auto refuse = [](const char* name, int64_t value, const char* rule) {
    throw std::invalid_argument(std::string(name) + " = " + std::to_string(value) + ": " + rule);
  };
  if (batch.timeout_ns < 0) refuse("timeout_ns", batch.timeout_ns, "at least 0 ns");
  if (batch.max_batch < 1) refuse("max_batch", batch.max_batch, "at least 1 query");
  if (batch.executors < 0) refuse("executors", batch.executors, "at least 1 (0: chosen)");
  if (batch.least_percent < 0 || batch.least_percent > 100) {
    refuse("least_percent", batch.least_percent, "from 0 to 100 %");
  }
}

}  // namespace

PolicyRecord make_record(const Policies& policies, int32_t total_cores) {
  PolicyRecord record{};
  const auto scheduling =
      sched::make_policy(policies.scheduling, total_cores, {}, policies.options);
  const bool batches = sched::make_batching(policies.batching)->name() != "none";
  check(policies.batch);
  sched::make_placement(policies.placement);
  const sched::Needs needs = scheduling->needs();
  copy_name(record.scheduling, sizeof record.scheduling, policies.scheduling);
  copy_name(record.batching, sizeof record.batching, policies.batching);
  copy_name(record.placement, sizeof record.placement, policies.placement);
  record.options = policies.options;
  record.batch = policies.batch;
  record.batches = batches ? 1 : 0;
  record.level = policies.level;
  record.measured = policies.measured ? 1 : 0;
  record.admission = policies.admission ? 1 : 0;
  record.tops_up = needs.topping_up ? 1 : 0;
  record.asks_for_more = needs.revoking ? 1 : 0;
  record.by_deadline = needs.by_deadline ? 1 : 0;
  record.late_percent = needs.late_percent;
  if (policies.level < 0) {
    throw std::invalid_argument("level = " + std::to_string(policies.level) +
                                ": interference levels count from 0");
  }
  return record;
}

std::shared_ptr<Segment> Segment::create(const SegmentSpec& spec) {
  const Plan plan = plan_layout(spec);
  make_record(spec.policies, plan.geometry.n_cores);  // throws before anything is made
  const int64_t bytes = plan.geometry.bytes;
  const int fd = memfd_create("veltair", MFD_CLOEXEC);
  if (fd < 0) fail("memfd_create");
  if (ftruncate(fd, bytes) != 0) {
    const int error = errno;
    close(fd);
    throw std::system_error(error, std::generic_category(), "ftruncate");
  }
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    close(fd);
    throw std::system_error(error, std::generic_category(), "mmap");
  }
  auto segment = std::make_shared<Segment>(fd, static_cast<std::byte*>(base), bytes);
  Header& header = *new (base) Header{};
  fill_header(header, plan, spec);
  for (int32_t c = 0; c < header.geometry.n_cores; ++c) {
    segment->cores()[c].owner = kNone;
    segment->cores()[c].heir = kNone;
    segment->cores()[c].cpu = spec.cpus[c];
    segment->cores()[c].complex = spec.complexes.empty() ? 0 : spec.complexes[c];
  }
  for (WorkerRecord& worker : segment->workers()) worker.running.task = kNone;
  int32_t first_slot = 0;
  for (int32_t m = 0; m < header.geometry.n_models; ++m) {
    ModelRecord& model = segment->models()[m];
    model.first_slot = first_slot;
    fill_model(*segment, model, spec.models[m], plan.models[m],
               segment->at<std::byte>(plan.models[m].metadata_offset));
    for (int32_t s = 0; s < model.slots; ++s) segment->queries()[first_slot + s].model = m;
    first_slot += model.slots;
  }
  header.magic.store(kMagic, std::memory_order_release);
  return segment;
}

std::shared_ptr<Segment> Segment::attach(int fd) {
  struct stat status{};
  if (fstat(fd, &status) != 0) fail("fstat");
  if (status.st_size < static_cast<int64_t>(sizeof(Header))) {
    throw std::invalid_argument("not a Veltair segment: too short");
  }
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) fail("dup");
  void* base =
      mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, own, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    close(own);
    throw std::system_error(error, std::generic_category(), "mmap");
  }
  auto segment = std::make_shared<Segment>(own, static_cast<std::byte*>(base), status.st_size);
  const Header& header = segment->header();
  if (header.magic.load(std::memory_order_acquire) != kMagic) {
    throw std::invalid_argument("not a Veltair segment");
  }
  if (header.layout_version != kLayoutVersion || header.header_bytes != sizeof(Header) ||
      header.geometry.bytes != status.st_size) {
    throw std::invalid_argument("the server runs another version of Veltair; use its client");
  }
  return segment;
}

Segment::~Segment() {
  munmap(base_, bytes_);
  close(fd_);
}

std::span<uint32_t> Segment::ring(int32_t client) const {
  const int64_t capacity = header().geometry.ring_capacity;
  return table<uint32_t>(
      header().geometry.rings_offset + int64_t{sizeof(uint32_t)} * capacity * client, capacity);
}

std::span<uint64_t> Segment::free_slots(const ModelRecord& model) const {
  return table<uint64_t>(model.bitmap_offset, (model.slots + 63) / 64);
}

std::span<TensorRecord> Segment::tensors(const ModelRecord& model) const {
  return table<TensorRecord>(model.tensors_offset, model.inputs + model.outputs);
}

std::string Segment::metadata(const ModelRecord& model) const {
  return {at<char>(model.metadata_offset), static_cast<size_t>(model.metadata_bytes)};
}

std::byte* Segment::tensor(const ModelRecord& model, int32_t index, int32_t slot) const {
  const TensorRecord& tensor = tensors(model)[index];
  return at<std::byte>(tensor.offset + tensor.stride_bytes * slot);
}

}  // namespace veltair::ipc
