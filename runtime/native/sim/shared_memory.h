// What the blocks of a simulated machine do to each other: they share its L3s and its memory.
#pragma once

#include <cstdint>

namespace veltair::sim {

// A level is a slow-down of the reference kernel, which reads on one core what its L3 holds. Blocks
// on other cores push a part of that out to memory, in proportion to the cores; and where all
// blocks together want more of memory than it gives, each gets the same part of what it wants.
//
// The profiles' levels are such slow-downs: those below `pushed * highest` of a machine whose cores
// fill up, those above it of a full one whose memory gives ever less. Where memory gives too little
// on a machine that is not full, the level is that of a full one.
struct SharedMemory {
  double gbps = 0;     // that all cores read together, bytes/ns; 0: levels are `Interference`'s
  double pushed = 0;   // part of the reference kernel's bytes pushed out by a full machine
  double highest = 0;  // its slow-down where all its bytes come from memory
  bool told = true;    // whether policies are told the level; else that there is none
  double error = 0;    // standard deviation of what they are told

  // Args: share of the cores that are in use; what the blocks on them would read, bytes/ns, if
  // memory gave all of it.
  double slowdown(double busy, double wanted_gbps) const {
    if (wanted_gbps <= gbps) return pushed * busy * highest;
    return pushed * ((1 + highest) * wanted_gbps / gbps - 1);
  }
  // What a policy is told of a level, in millionths; `draw` numbers the error.
  int32_t told_of(double slowdown, uint64_t draw) const;
};

}  // namespace veltair::sim
