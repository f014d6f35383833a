// The native library as Python sees it: conversions only, no logic.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

// nanobind's macro hands the module by value and shifts signed numbers.
// NOLINTNEXTLINE(bugprone-signed-bitwise, performance-unnecessary-value-param)
NB_MODULE(_native, m) { m.doc() = "Veltair's native engine, policies and shared segment."; }
