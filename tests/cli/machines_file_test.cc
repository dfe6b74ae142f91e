#include "cli/machines_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/status.h"
#include "strata/v1/planning.pb.h"

namespace strata::cli {
namespace {

using ::testing::HasSubstr;

TEST(MachinesFileTest, MachinesComeInTheOrderOfTheFileWithTheirNetworks) {
  v1::PlanMachinesRequest request;
  const absl::Status read = ReadMachines(
      "[network]\ngbit-s = 10\n[machines.z]\nmemory = \"2GiB\"\nread-gb-s = 68.5\ntflop-s = 3\n"
      "[machines.a]\ndevice = \"mlx\"\nmemory = \"1GiB\"\nlatency-ms = 1\n",
      "m.toml", &request);
  ASSERT_TRUE(read.ok()) << read;
  ASSERT_EQ(request.machines_size(), 2);
  EXPECT_EQ(request.machines(0).name(), "z");
  EXPECT_EQ(request.machines(0).memory_bytes(), uint64_t{2} << 30);
  EXPECT_EQ(request.machines(0).read_bytes_per_s(), 68.5e9);
  EXPECT_EQ(request.machines(0).flops_per_s(), 3e12);
  EXPECT_FALSE(request.machines(0).has_network());
  EXPECT_EQ(request.machines(1).device(), "mlx");
  EXPECT_EQ(request.machines(1).network().bytes_per_s(), 1.25e9);  // The bandwidth of all.
  EXPECT_EQ(request.machines(1).network().latency_ms(), 1);
  EXPECT_EQ(request.network().latency_ms(), 0.3);
}

TEST(MachinesFileTest, WhatIsWrongIsNamedWithItsLine) {
  const struct {
    const char* text;
    const char* said;
  } kCases[] = {
      {"[network]\n", "there is no [machines.NAME]"},
      {"[machines.a]\nmemory = 3\n", "m.toml:2: 'memory' is none of"},
      {"[machines.a]\nmemory = \"3 elephants\"\n", "m.toml:2:"},
      {"[machines.a]\n\nread-gb-s = \"fast\"\n", "m.toml:3: this is to be a number"},
      {"[machines.a]\nspeed = 1\n", "m.toml:2: 'speed' is none of"},
      {"[machines]\na = 1\n", "m.toml:2: a machine is to be a table"},
      {"[network]\nmtu = 1\n", "m.toml:2: 'mtu' is none of gbit-s"},
      {"[machine.a]\n", "'machine' is none of"},
      {"[machines.a\n", "m.toml:1:"},
  };
  for (const auto& c : kCases) {
    v1::PlanMachinesRequest request;
    const absl::Status read = ReadMachines(c.text, "m.toml", &request);
    EXPECT_EQ(ReasonOf(read), "BAD_MACHINES") << c.text;
    EXPECT_THAT(std::string(read.message()), HasSubstr(c.said));
  }
  v1::PlanMachinesRequest request;
  EXPECT_THAT(
      std::string(
          ReadMachines(std::string(kMaxMachinesFileBytes + 1, '#'), "m.toml", &request).message()),
      HasSubstr("too large"));
}

}  // namespace
}  // namespace strata::cli
