// Measures what a gang itself costs, with the gang's own code and no kernel.
#pragma once

#include <cstdint>
#include <span>

#include "native/engine/gang.h"

namespace veltair::engine {

// Times one empty launch for each entry of `launch_ns` while the gang is awake. `num_task` as for
// `Gang::launch`. The calling thread leads.
void time_empty_launches(Gang& gang, int num_task, std::span<int64_t> launch_ns);

// Times, for each entry of `wake_ns`, how long after the begin of a launch all granted cores run a
// task of it, the gang having slept for `sleep_ns` before. The calling thread leads, and stays
// awake meanwhile, as a thread that decides on launches does.
void time_wake_ups(Gang& gang, int64_t sleep_ns, std::span<int64_t> wake_ns);

// The least that a wake-up costs on this system: times, for each entry of `wake_ns`, how long after
// a thread of cpus()[0] begins to wake it a plain thread of cpus()[1] runs, having slept for
// `sleep_ns`. Throws UsageError for a gang of fewer than two cores.
void time_system_wake_ups(Gang& gang, int64_t sleep_ns, std::span<int64_t> wake_ns);

}  // namespace veltair::engine
