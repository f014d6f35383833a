// The native library as Python sees it: conversions only, no logic.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

// NOLINTNEXTLINE(performance-unnecessary-value-param): nanobind hands the module by value
NB_MODULE(_native, m) { m.doc() = "Veltair's native engine, policies and shared segment."; }
