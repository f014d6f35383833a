// Evictors throw out the pages of their share and no others, take new shares up and end.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "cpus.h"
#include "native/engine/error.h"
#include "native/engine/memory.h"
#include "native/proxy/evictor.h"
#include "native/proxy/reference.h"

namespace veltair::proxy {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kPages = 64;
constexpr uint64_t kSweepCycles = 2'500'000;  // of an evictor, on a processor of up to 5 GHz
constexpr uint64_t kFlushCycles = 20'000;     // of a line, and much to spare

// A file in memory, as long as this is.
class Shared {
 public:
  Shared() : file_(memfd_create("evicted", MFD_CLOEXEC)) {
    CHECK(file_ >= 0);
    CHECK(ftruncate(file_, kPages * kPage) == 0);
  }
  ~Shared() { close(file_); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }
  Victim pages(int64_t begin, int64_t end) const {
    return {.path = path(),
            .file_bytes = kPages * kPage,
            .begin_bytes = begin * kPage,
            .end_bytes = end * kPage};
  }

 private:
  int file_;
};

// The cycles that reading a byte takes. No sanitizer looks at it: its own reads would be timed too.
__attribute__((no_sanitize("address", "thread"))) uint64_t cycles_of(const std::byte* byte) {
  const auto* word = reinterpret_cast<const volatile char*>(byte);
  unsigned core = 0;
  _mm_lfence();
  const uint64_t begin = __rdtsc();
  _mm_lfence();
  (void)*word;
  const uint64_t cycles = __rdtscp(&core) - begin;
  _mm_lfence();
  return cycles;
}

void wait_cycles(uint64_t cycles) {
  const uint64_t since = __rdtsc();
  while (__rdtsc() - since < cycles) _mm_pause();
}

// What `share` of many reads of a byte took no more than, each some time after the last one, in
// which `meanwhile` is done.
template <typename Meanwhile>
uint64_t read_cycles(const std::byte* byte, double share, Meanwhile meanwhile) {
  std::vector<uint64_t> cycles(21);
  for (uint64_t& each : cycles) {
    (void)cycles_of(byte);
    wait_cycles(kSweepCycles);
    meanwhile();
    each = cycles_of(byte);
  }
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(cycles.size()));
  std::nth_element(cycles.begin(), cycles.begin() + at, cycles.end());
  return cycles[at];
}

void what_is_chosen_leaves_the_caches(const std::vector<int>& cpus) {
  const Shared shared;
  const engine::FileMapping mine(shared.path(), kPages * kPage);
  Evictor evictor(cpus.back(), std::vector<Victim>{shared.pages(8, 40)});
  CHECK(evictor.pages() == 32);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpus.front(), &set);
  CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
  const auto byte_of = [&](int64_t page) { return mine.data() + page * kPage + 64; };
  const auto nothing = [] {};
  // Measured again where what nobody read for a millisecond is met in a cache farther off.
  uint64_t met = 0;
  uint64_t gone = 0;
  for (int attempt = 0; attempt < 100 && gone <= 2 * met; ++attempt) {
    met = read_cycles(byte_of(8), 0.5, nothing);
    // Amid a flush a read waits for that too: on Zen 4 700 cycles instead of 380.
    gone = read_cycles(byte_of(8), 0.5, [&] {
      _mm_clflush(byte_of(8));
      wait_cycles(kFlushCycles);
    });
  }
  CHECK(gone > 2 * met);
  // One read or another is of a cache that is farther off, after an interrupt; of memory, most.
  const auto lost = [&](int64_t page) {
    return read_cycles(byte_of(page), 0.25, nothing) > (met + gone) / 2;
  };
  // Beside other work the evictor runs only at times, and other work throws a page out itself now
  // and then. So looks are repeated until as many pages as asked for stand out: those that were
  // lost more than half as often as the one that was lost the most, or, of none, as there were
  // looks.
  const auto check_lost = [&](int64_t least, int64_t most) {
    std::vector<int> times(kPages, 0);
    for (int look = 1; look <= 100; ++look) {
      for (int64_t page = 0; page < kPages; ++page) times[page] += lost(page) ? 1 : 0;
      const int of = most == 0 ? look : *std::max_element(times.begin(), times.end());
      const auto stands_out = [of](int each) { return 2 * each > of; };
      const auto count = std::count_if(times.begin(), times.end(), stands_out);
      const auto chosen = std::count_if(times.begin() + 8, times.begin() + 40, stands_out);
      if (count == chosen && count >= least && count <= most) return;
    }
    std::fprintf(stderr, "%lld to %lld pages of 8 to 39 (%llu cycles met, %llu gone); lost were:",
                 static_cast<long long>(least), static_cast<long long>(most),
                 static_cast<unsigned long long>(met), static_cast<unsigned long long>(gone));
    for (const int each : times) std::fprintf(stderr, " %d", each);
    std::fprintf(stderr, "\n");
    std::exit(1);
  };
  check_lost(0, 0);
  for (const int64_t share : {1, 2, 4}) {
    evictor.set_share(Evictor::kWhole * share / 4);
    check_lost(8 * share - 1, 8 * share + 1);  // pages are whole
    CHECK(evictor.evicted_bytes() > 0);
  }
  evictor.set_share(0);
  CHECK(evictor.evicted_bytes() == 0);
}

void it_ends_amid_a_sweep(int cpu) {
  const Shared shared;
  Evictor evictor(cpu, std::vector<Victim>{shared.pages(0, kPages), shared.pages(1, 2)});
  CHECK(evictor.pages() == kPages + 1);
  evictor.set_share(Evictor::kWhole);
  evictor.set_share(1);  // none of so few
}

void what_makes_no_sense_is_refused(int cpu) {
  const Shared shared;
  CHECK_THROWS(Evictor(cpu, std::vector<Victim>{}), std::invalid_argument);
  CHECK_THROWS(Evictor(cpu, std::vector<Victim>{shared.pages(3, 3)}), std::invalid_argument);
  CHECK_THROWS(Evictor(cpu, std::vector<Victim>{shared.pages(-1, 3)}), std::invalid_argument);
  CHECK_THROWS(Evictor(cpu, std::vector<Victim>{shared.pages(0, kPages + 1)}),
               std::invalid_argument);
  CHECK_THROWS(Evictor(CPU_SETSIZE, std::vector<Victim>{shared.pages(0, 1)}),
               std::invalid_argument);
  Victim gone = shared.pages(0, 1);
  gone.path = "/proc/self/fd/no such file";
  CHECK_THROWS(Evictor(cpu, std::vector<Victim>{gone}), engine::ArtifactError);
  Evictor evictor(cpu, std::vector<Victim>{shared.pages(0, 1)});
  CHECK_THROWS(evictor.set_share(-1), std::invalid_argument);
  CHECK_THROWS(evictor.set_share(Evictor::kWhole + 1), std::invalid_argument);
}

void the_reference_reads_a_file(int cpu) {
  const Shared shared;
  Reference reference(cpu, shared.path(), kPages * kPage);
  CHECK(reference.working_set_bytes() == kPages * kPage);
  std::vector<int64_t> pass_ns(5, 0);
  reference.time(pass_ns);
  for (const int64_t ns : pass_ns) CHECK(ns > 100);  // 256 KiB at 2.6 TB/s
  CHECK_THROWS(Reference(cpu, shared.path(), kPage), engine::ArtifactError);
}

}  // namespace
}  // namespace veltair::proxy

int main() {
  const std::vector<int> cpus = usable_cpus();
  veltair::proxy::it_ends_amid_a_sweep(cpus.front());
  veltair::proxy::what_makes_no_sense_is_refused(cpus.front());
  veltair::proxy::the_reference_reads_a_file(cpus.front());
  if (cpus.size() > 1) veltair::proxy::what_is_chosen_leaves_the_caches(cpus);
  return 0;
}
