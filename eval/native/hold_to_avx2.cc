// Makes the processor look to this process as if it had AVX2 and nothing newer: the kernel lets
// each CPUID instruction fault (arch_prctl(ARCH_CPUID)), and the handler answers it without the
// bits of AVX-512, AMX, AVX10 and the later AVX extensions. Threads inherit it, programs that are
// started don't.

#include <cpuid.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace {

constexpr int kArchSetCpuid = 0x1012;
constexpr unsigned char kCpuidInstruction[] = {0x0F, 0xA2};

struct sigaction previous;
std::atomic<int64_t> answered{0};

constexpr uint32_t Bits(std::initializer_list<int> numbers) {
  uint32_t bits = 0;
  for (const int number : numbers) bits |= uint32_t{1} << number;
  return bits;
}

int SetCpuid(bool works) { return static_cast<int>(syscall(SYS_arch_prctl, kArchSetCpuid, works)); }

struct Registers {
  uint32_t eax, ebx, ecx, edx;
};

// Intel's manual, volume 2, CPUID; names as there.
void Mask(uint32_t leaf, uint32_t subleaf, Registers& found) {
  if (leaf == 0x07 && subleaf == 0) {
    // AVX512F, DQ, IFMA, PF, ER, CD, BW, VL
    found.ebx &= ~Bits({16, 17, 21, 26, 27, 28, 30, 31});
    // AVX512_VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ
    found.ecx &= ~Bits({1, 6, 11, 12, 14});
    // AVX512_4VNNIW, 4FMAPS, VP2INTERSECT, AMX-BF16, AVX512_FP16, AMX-TILE, AMX-INT8
    found.edx &= ~Bits({2, 3, 8, 22, 23, 24, 25});
  } else if (leaf == 0x07 && subleaf == 1) {
    // AVX-VNNI, AVX512_BF16, AMX-FP16, AVX-IFMA
    found.eax &= ~Bits({4, 5, 21, 23});
    // AVX-VNNI-INT8, AVX-NE-CONVERT, AMX-COMPLEX, AVX-VNNI-INT16, AVX10, APX
    found.edx &= ~Bits({4, 5, 8, 10, 19, 21});
  } else if (leaf == 0x0D && subleaf == 0) {
    found.eax &= ~Bits({5, 6, 7, 17, 18, 19});  // state of mask and 512-bit registers, AMX, APX
  } else if (leaf == 0x1D || leaf == 0x1E || leaf == 0x24) {  // AMX's tiles, AVX10
    found = {0, 0, 0, 0};
  }
}

void Answer(int signal, siginfo_t* info, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* at = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
  // CPUID's fault is a general protection: the address that a bad access would have is 0.
  if (info->si_code != SI_KERNEL || std::memcmp(at, kCpuidInstruction, 2) != 0) {
    sigaction(signal, &previous, nullptr);  // another fault: it comes again, to whom it is for
    return;
  }
  const int error = errno;
  const auto leaf = static_cast<uint32_t>(registers[REG_RAX]);
  const auto subleaf = static_cast<uint32_t>(registers[REG_RCX]);
  Registers found{};
  SetCpuid(true);
  __cpuid_count(leaf, subleaf, found.eax, found.ebx, found.ecx, found.edx);
  SetCpuid(false);
  Mask(leaf, subleaf, found);
  registers[REG_RAX] = found.eax;
  registers[REG_RBX] = found.ebx;
  registers[REG_RCX] = found.ecx;
  registers[REG_RDX] = found.edx;
  registers[REG_RIP] += sizeof(kCpuidInstruction);
  answered.fetch_add(1, std::memory_order_relaxed);
  errno = error;
}

}  // namespace

extern "C" {

// Holds the calling thread and those that it starts from now on; returns 0, or an errno: the
// processor or the kernel can't let CPUID fault.
int HoldToAvx2() {
  struct sigaction action{};
  action.sa_sigaction = Answer;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGSEGV, &action, &previous) != 0) return errno;
  if (SetCpuid(false) == 0) return 0;
  const int error = errno;
  sigaction(SIGSEGV, &previous, nullptr);
  return error;
}

// How many CPUID instructions were answered so far.
int64_t Answered() { return answered.load(std::memory_order_relaxed); }

// Whether the processor says that it has AVX512F.
bool SeesAvx512() {
  Registers found{};
  __cpuid_count(0x07, 0, found.eax, found.ebx, found.ecx, found.edx);
  return (found.ebx & Bits({16})) != 0;
}

}  // extern "C"
