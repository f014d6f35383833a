// The engine's exceptions; bindings.cc gives each its Python class.
#pragma once

#include <stdexcept>
#include <string>

namespace veltair::engine {

// Base of all that the engine throws for a cause outside its own code.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The artifact (library, weights, manifest) can't be loaded or contradicts itself.
class ArtifactError : public Error {
 public:
  using Error::Error;
};

// A kernel returned an error; the message is the kernel's own.
class KernelError : public Error {
 public:
  using Error::Error;
};

// A call that breaks its rule: a core that the gang lacks, a layer range outside the model.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace veltair::engine
