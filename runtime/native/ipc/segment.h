// The mapping of a server's shared segment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "native/ipc/layout.h"

namespace veltair::ipc {

// A model as the segment is made for it.
struct ModelSpec {
  std::string name;
  int64_t version = 1;
  std::vector<int64_t> input_bytes;
  std::vector<int64_t> output_bytes;
  int32_t slots = 1;
  int64_t qos_ns = 0;
  int32_t needed_cores = 1;
  int64_t expected_ns = 0;
  int64_t fastest_ns = 0;  // 0: as expected
  std::string metadata;
};

// The three decisions' policies, by name, and their parameters.
struct Policies {
  std::string scheduling = "model";
  std::string batching = "none";
  std::string placement = "local";
  sched::PolicyOptions options;
  BatchOptions batch;
  int32_t level = 0;       // of interference, as an index, while nothing measures it
  bool measured = false;   // whether the server measures it
  bool admission = false;  // whether a query that can't end in time is refused at once
};

struct SegmentSpec {
  std::vector<int32_t> cpus;       // the cores to serve on
  std::vector<int32_t> complexes;  // that each is of, counted from 0; empty: all are of one
  int32_t workers = 1;
  Policies policies;
  std::vector<ModelSpec> models;
};

// The policies as the segment holds them. Throws std::invalid_argument for a name or a parameter
// that there isn't, with what there is.
PolicyRecord make_record(const Policies& policies, int32_t total_cores);

// Shared memory with the layout of layout.h.
//
// It is an anonymous file (memfd): it has no name that could outlive its processes, is handed on as
// a descriptor, and isn't bound by the size of /dev/shm. It is as long as all its arenas but
// sparse: pages cost memory from their first use.
//
// Ownership: owns mapping and descriptor. Thread-safety: immutable; the records have rules of their
// own. The mapping stays where it is, so pointers into it live as long as the object.
class Segment {
 public:
  // Makes a segment. Throws std::system_error, or std::invalid_argument for a specification that
  // can't be laid out.
  static std::shared_ptr<Segment> create(const SegmentSpec& spec);
  // Maps the segment behind `fd`, which stays the caller's. Throws std::system_error, or
  // std::invalid_argument where it is no segment of this version.
  static std::shared_ptr<Segment> attach(int fd);

  Segment(int fd, std::byte* base, int64_t bytes) : fd_(fd), base_(base), bytes_(bytes) {}
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int fd() const { return fd_; }
  int64_t bytes() const { return bytes_; }

  Header& header() const { return *at<Header>(0); }
  std::span<CoreRecord> cores() const {
    return table<CoreRecord>(header().geometry.cores_offset, header().geometry.n_cores);
  }
  std::span<ComplexRecord> complexes() const {
    return table<ComplexRecord>(header().geometry.complexes_offset, header().geometry.n_complexes);
  }
  std::span<WorkerRecord> workers() const {
    return table<WorkerRecord>(header().geometry.workers_offset, header().geometry.n_workers);
  }
  std::span<ClientRecord> clients() const {
    return table<ClientRecord>(header().geometry.clients_offset, kMaxClients);
  }
  std::span<ModelRecord> models() const {
    return table<ModelRecord>(header().geometry.models_offset, header().geometry.n_models);
  }
  std::span<QueryRecord> queries() const {
    return table<QueryRecord>(header().geometry.queries_offset, header().geometry.n_slots);
  }
  std::span<TaskRecord> tasks() const {
    return table<TaskRecord>(header().geometry.tasks_offset, header().geometry.n_slots);
  }
  std::span<uint32_t> ring(int32_t client) const;
  std::span<uint64_t> free_slots(const ModelRecord& model) const;
  std::span<TensorRecord> tensors(const ModelRecord& model) const;
  std::string metadata(const ModelRecord& model) const;
  // Where the `slot`-th place (counted from the model's first) of tensor `index` lies; inputs come
  // first, then outputs.
  std::byte* tensor(const ModelRecord& model, int32_t index, int32_t slot) const;

 private:
  template <typename T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  template <typename T>
  std::span<T> table(int64_t offset, int64_t count) const {
    return {at<T>(offset), static_cast<size_t>(count)};
  }

  int fd_;
  std::byte* base_;
  int64_t bytes_;
};

}  // namespace veltair::ipc
