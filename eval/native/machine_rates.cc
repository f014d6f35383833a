// What a machine's file asks of one core: its clock, and how fast it reads. Compiled with -mavx512f
// or -mavx2.

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace {

#if defined(__AVX512F__)
using Vector = __m512i;
Vector Load(const std::byte* from) { return _mm512_load_si512(from); }
Vector Add(Vector a, Vector b) { return _mm512_add_epi64(a, b); }
#else
using Vector = __m256i;
Vector Load(const std::byte* from) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(from));
}
Vector Add(Vector a, Vector b) { return _mm256_add_epi64(a, b); }
#endif

constexpr int64_t kVectors = 8;  // with sums of their own, so that reading sets the pace

}  // namespace

extern "C" {

// As many additions as `rounds` says, each of which waits for the one before it: one cycle each on
// every x86-64 core. (The compiler would otherwise find their sum.) Of a register: Intel's newer
// cores add constants while they rename registers, several a cycle.
int64_t RunAdditions(int64_t rounds) {
  int64_t sum = 0;
  int64_t one = 1;
  asm volatile("" : "+r"(one));
  for (int64_t round = 0; round < rounds; round += 8) {
    for (int i = 0; i < 8; ++i) asm volatile("add %1, %0" : "+r"(sum) : "r"(one));
  }
  return sum;
}

// Reads memory that is aligned to 64 bytes once, in order, in steps of `StepBytes`.
int64_t ReadOnce(const std::byte* memory, int64_t bytes) {
  Vector sums[kVectors] = {};
  for (int64_t at = 0; at < bytes; at += kVectors * static_cast<int64_t>(sizeof(Vector))) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kVectors; ++i) {
      sums[i] = Add(sums[i], Load(memory + at + i * static_cast<int64_t>(sizeof(Vector))));
    }
  }
  Vector total = sums[0];
  for (int64_t i = 1; i < kVectors; ++i) total = Add(total, sums[i]);
  return reinterpret_cast<const int64_t*>(&total)[0];
}

int64_t StepBytes() { return kVectors * static_cast<int64_t>(sizeof(Vector)); }
}
