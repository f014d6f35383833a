// The native library as Python sees it: conversions only, no logic.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_native, m) { m.doc() = "Veltair's native engine, policies and shared segment."; }
