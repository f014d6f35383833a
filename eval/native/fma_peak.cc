// Independent fused multiply-adds in registers, as many and as wide as the instruction set has
// registers for: what a core can do at most. Compiled with -mavx512f or -mavx2 -mfma.

#include <immintrin.h>

#include <cstdint>

namespace {

#if defined(__AVX512F__)
using Vector = __m512;
constexpr int kAccumulators = 24;  // of 32 registers; latency times throughput is 8 to 10
Vector Broadcast(float value) { return _mm512_set1_ps(value); }
Vector MultiplyAdd(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
#else
using Vector = __m256;
constexpr int kAccumulators = 12;  // of 16 registers
Vector Broadcast(float value) { return _mm256_set1_ps(value); }
Vector MultiplyAdd(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
#endif

}  // namespace

extern "C" {

// Floating-point operations of one round.
int64_t RoundFlops() { return int64_t{2} * kAccumulators * (sizeof(Vector) / sizeof(float)); }

// Returns a number that depends on all of the rounds, so that none can be left out.
float RunRounds(int64_t rounds) {
  const Vector factor = Broadcast(0.5F);
  const Vector summand = Broadcast(0.25F);
  Vector sums[kAccumulators];  // in registers, since every index is a constant
#pragma GCC unroll 32
  for (int i = 0; i < kAccumulators; ++i) sums[i] = Broadcast(static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kAccumulators; ++i) sums[i] = MultiplyAdd(sums[i], factor, summand);
  }
  float total = 0;
#pragma GCC unroll 32
  for (int i = 0; i < kAccumulators; ++i) total += sums[i][0];
  return total;
}

}  // extern "C"
