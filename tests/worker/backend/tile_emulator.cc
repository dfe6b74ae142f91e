#include "tests/worker/backend/tile_emulator.h"

#if defined(__x86_64__) && defined(__linux__)

#include <ucontext.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "common/check.h"
#include "tests/worker/backend/tiles.h"

namespace strata::cpu {
namespace {

thread_local Tiles tiles;
std::atomic<uint64_t> executed = 0;

// Of the instructions' register numbers.
constexpr int kRegisters[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};

// One instruction with a prefix VEX of three bytes: opcode, and operands in ModRM and behind.
class Instruction {
 public:
  Instruction(const uint8_t* code, const greg_t* registers) : code_(code), registers_(registers) {
    // Opcodes 0f 38 xx, no W, 128 bits.
    STRATA_CHECK(code[0] == 0xc4 && (code[1] & 31) == 2 && (code[2] & 0x84) == 0);
    if (!in_registers()) {
      ReadAddress();
    }
  }
  // Mandatory prefix (0 none, 1 66, 2 f3, 3 f2) and opcode.
  int operation() const { return (code_[2] & 3) << 8 | code_[3]; }
  bool in_registers() const { return code_[4] >> 6 == 3; }
  int reg() const { return code_[4] >> 3 & 7; }
  int rm() const { return code_[4] & 7; }
  int vvvv() const { return ~code_[2] >> 3 & 15; }
  // Of memory: where it begins, and from row to row.
  uint8_t* address() const { return reinterpret_cast<uint8_t*>(address_); }
  size_t stride() const { return stride_; }
  size_t size() const { return size_; }

 private:
  uint64_t Register(int number) const {
    return static_cast<uint64_t>(registers_[kRegisters[number]]);
  }
  void ReadAddress() {
    const int mod = code_[4] >> 6;
    const int high_base = (~code_[1] >> 5 & 1) * 8;
    const int high_index = (~code_[1] >> 6 & 1) * 8;
    int base = rm() + high_base;
    if (rm() == 4) {
      const int sib = code_[size_++];
      base = (sib & 7) + high_base;
      const int index = (sib >> 3 & 7) + high_index;
      stride_ = index == 4 ? 0 : Register(index) << (sib >> 6);
    }
    STRATA_CHECK(mod != 0 || base % 8 != 5);  // Memory that no register points to.
    address_ = Register(base);
    if (mod == 1) {
      address_ += static_cast<uint64_t>(int64_t{static_cast<int8_t>(code_[size_])});
      size_ += 1;
    } else if (mod == 2) {
      int32_t offset;
      std::memcpy(&offset, code_ + size_, sizeof(offset));
      address_ += static_cast<uint64_t>(int64_t{offset});
      size_ += 4;
    }
  }

  const uint8_t* const code_;
  const greg_t* const registers_;
  uint64_t address_ = 0;
  size_t stride_ = 0;
  size_t size_ = 5;
};

void Execute(const Instruction& instruction) {
  if (instruction.in_registers()) {
    switch (instruction.operation()) {
      case 0x049:
        tiles.Release();
        return;
      case 0x349:
        tiles.Zero(instruction.reg());
        return;
      case 0x25e:
        tiles.DotSignedUnsigned(instruction.reg(), instruction.rm(), instruction.vvvv());
        return;
      case 0x35e:
        tiles.DotSigned(instruction.reg(), instruction.rm(), instruction.vvvv());
        return;
      default:
        STRATA_CHECK(false);
    }
  }
  switch (instruction.operation()) {
    case 0x049:
      tiles.Configure(instruction.address());
      return;
    case 0x34b:
      tiles.Load(instruction.reg(), instruction.address(), instruction.stride());
      return;
    case 0x24b:
      tiles.Store(instruction.reg(), instruction.address(), instruction.stride());
      return;
    default:
      STRATA_CHECK(false);
  }
}

void OnIllegal(int, siginfo_t*, void* context) {
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const Instruction instruction(reinterpret_cast<const uint8_t*>(registers[REG_RIP]), registers);
  Execute(instruction);
  ++executed;
  registers[REG_RIP] += static_cast<greg_t>(instruction.size());
}

}  // namespace

bool EmulateTiles() {
  struct sigaction action = {};
  action.sa_sigaction = OnIllegal;
  action.sa_flags = SA_SIGINFO;
  return sigaction(SIGILL, &action, nullptr) == 0;
}

uint64_t EmulatedTileInstructions() { return executed; }

}  // namespace strata::cpu

#else

namespace strata::cpu {
bool EmulateTiles() { return false; }
uint64_t EmulatedTileInstructions() { return 0; }
}  // namespace strata::cpu

#endif
