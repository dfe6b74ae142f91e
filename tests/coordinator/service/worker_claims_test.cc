#include "coordinator/service/nodes/worker_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "common/printable.h"
#include "common/status.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

v1::NodeInfo Good() {
  v1::NodeInfo info;
  info.set_name("n0");
  info.set_incarnation(7);
  info.set_address("10.0.0.1:7071");
  info.set_version("0.1.0");
  info.set_backend("cpu");
  info.set_isa("avx2");
  info.set_threads(8);
  info.set_memory_bytes(uint64_t{8} << 30);
  info.set_fixed_bytes(uint64_t{80} << 20);
  info.set_read_bytes_per_s(2e10);
  info.set_flops_per_s(1e12);
  return info;
}

TEST(WorkerClaims, ANodeThatCannotBeIsRefusedAtTheDoor) {
  EXPECT_EQ(CheckNodeInfo(Good()), absl::OkStatus());
  const std::pair<std::function<void(v1::NodeInfo*)>, const char*> cases[] = {
      {[](v1::NodeInfo* i) { i->set_name("-rf"); }, "BAD_NAME"},
      {[](v1::NodeInfo* i) { i->set_name("a\x1b[2J"); }, "BAD_NAME"},
      {[](v1::NodeInfo* i) { i->set_name(std::string(65, 'n')); }, "BAD_NAME"},
      {[](v1::NodeInfo* i) { i->set_address("10.0.0.1:0"); }, "BAD_ADDRESS"},
      {[](v1::NodeInfo* i) { i->set_address("a b:7071"); }, "BAD_ADDRESS"},
      {[](v1::NodeInfo* i) { i->set_version("1\n2"); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_version(std::string(65, '1')); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_backend("cpu\x07"); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) {
         i->set_isa(
             "\xe2\x80\xae"
             "avx");
       },
       "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_device("\x7f"); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_numerics("\r"); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_platform("\xc2\x9b"); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_incarnation(0); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_memory_bytes(0); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_memory_bytes(~uint64_t{0}); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_fixed_bytes(~uint64_t{0}); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_threads(~uint32_t{0}); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_read_bytes_per_s(kNaN); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_read_bytes_per_s(-1); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_read_bytes_per_s(kInfinity); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_read_bytes_per_s(1e300); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_flops_per_s(kNaN); }, "BAD_NODE_INFO"},
      {[](v1::NodeInfo* i) { i->set_flops_per_s(-kInfinity); }, "BAD_NODE_INFO"},
  };
  for (const auto& [spoil, reason] : cases) {
    v1::NodeInfo info = Good();
    spoil(&info);
    const absl::Status status = CheckNodeInfo(info);
    EXPECT_EQ(ReasonOf(status), reason) << info.ShortDebugString();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_TRUE(IsPrintable(Describe(status)));
  }
}

v1::NodeInfo GoodOfTwoDevices() {
  v1::NodeInfo info = Good();
  info.set_backend("cuda");
  info.set_host_memory_bytes(uint64_t{4} << 30);
  for (const uint32_t i : {0u, 1u}) {
    v1::NodeDevice& device = *info.add_devices();
    device.set_index(i);
    device.set_name("GPU");
    device.set_memory_bytes(uint64_t{4} << 30);
    device.set_share_begin(i * 32768);
    device.set_share_end((i + 1) * 32768);
    device.set_read_bytes_per_s(3e12);
  }
  return info;
}

TEST(WorkerClaims, DevicesThatCannotBeAreRefusedAtTheDoor) {
  EXPECT_EQ(CheckNodeInfo(GoodOfTwoDevices()), absl::OkStatus());
  const std::function<void(v1::NodeInfo*)> cases[] = {
      [](v1::NodeInfo* i) { i->mutable_devices()->RemoveLast(); },
      [](v1::NodeInfo* i) { i->mutable_devices(0)->set_name("\x1b[2J"); },
      [](v1::NodeInfo* i) { i->mutable_devices(0)->set_memory_bytes(0); },
      [](v1::NodeInfo* i) { i->mutable_devices(0)->set_memory_bytes(~uint64_t{0}); },
      [](v1::NodeInfo* i) { i->mutable_devices(1)->set_memory_bytes(1); },  // Not the node's.
      [](v1::NodeInfo* i) { i->mutable_devices(1)->set_share_begin(1); },
      [](v1::NodeInfo* i) { i->mutable_devices(0)->set_share_end(0); },
      [](v1::NodeInfo* i) { i->mutable_devices(1)->set_share_end(65535); },
      [](v1::NodeInfo* i) { i->mutable_devices(1)->set_share_end(65537); },
      [](v1::NodeInfo* i) { i->mutable_devices(1)->set_read_bytes_per_s(kNaN); },
      [](v1::NodeInfo* i) { i->set_host_memory_bytes(0); },
      [](v1::NodeInfo* i) {
        for (int n = 0; n < 7; ++n) *i->add_devices() = i->devices(0);
      },
  };
  for (const auto& spoil : cases) {
    v1::NodeInfo info = GoodOfTwoDevices();
    spoil(&info);
    const absl::Status status = CheckNodeInfo(info);
    EXPECT_EQ(ReasonOf(status), "BAD_NODE_INFO") << info.ShortDebugString();
    EXPECT_TRUE(IsPrintable(Describe(status)));
  }
}

TEST(WorkerClaims, ALinkThatWasMeasuredAsNoneCanBeIsBroken) {
  for (const auto& [latency, rate] : {std::pair(kNaN, 1e9),
                                      {-1.0, 1e9},
                                      {kInfinity, 1e9},
                                      {0.1, kNaN},
                                      {0.1, -5.0},
                                      {0.1, kInfinity},
                                      {0.1, 1e300}}) {
    v1::WorkerMessage message;
    message.mutable_peer_measured()->set_node("n1");
    message.mutable_peer_measured()->set_latency_ms(latency);
    message.mutable_peer_measured()->set_bytes_per_s(rate);
    EXPECT_EQ(ReasonOf(CleanMessage(&message)), "BAD_MEASURE") << latency << " " << rate;
    EXPECT_EQ(message.peer_measured().error().reason(), "BAD_MEASURE");
    EXPECT_EQ(message.peer_measured().latency_ms(), 0);
    EXPECT_EQ(message.peer_measured().bytes_per_s(), 0);
  }
  v1::WorkerMessage good;
  good.mutable_peer_measured()->set_latency_ms(0.1);
  good.mutable_peer_measured()->set_bytes_per_s(1e9);
  EXPECT_EQ(CleanMessage(&good), absl::OkStatus());
  EXPECT_FALSE(good.peer_measured().has_error());
}

TEST(WorkerClaims, FiguresOfAHeartbeatThatNoMachineHasAreTakenOut) {
  v1::WorkerMessage message;
  message.mutable_heartbeat()->set_term(3);
  message.mutable_heartbeat()->set_used_bytes(~uint64_t{0});
  EXPECT_EQ(ReasonOf(CleanMessage(&message)), "BAD_NODE_INFO");
  EXPECT_EQ(message.heartbeat().used_bytes(), 0u);
  EXPECT_EQ(message.heartbeat().term(), 3u);
}

TEST(WorkerClaims, ErrorsOfWorkersArePrintableAndShort) {
  const std::string bad = "\x1b[31m" + std::string(100'000, 'x') + "\n";
  const auto check = [&](v1::WorkerMessage* message, v1::ErrorDetail* error) {
    error->set_code(14);
    for (std::string* text :
         {error->mutable_reason(), error->mutable_message(), error->mutable_hint(),
          error->mutable_limit(), error->mutable_node(), error->mutable_request_id()}) {
      *text = bad;
    }
    (*error->mutable_facts())[bad] = bad;
    EXPECT_EQ(CleanMessage(message), absl::OkStatus());
    EXPECT_LE(error->ByteSizeLong(), 8192u);
    EXPECT_TRUE(IsPrintable(error->message()) && IsPrintable(error->hint()) &&
                IsPrintable(error->node()) && IsPrintable(error->reason()));
    for (const auto& [key, value] : error->facts()) {
      EXPECT_TRUE(IsPrintable(key) && IsPrintable(value));
    }
    EXPECT_THAT(error->message(), HasSubstr("\\x1b[31mxx"));
  };
  v1::WorkerMessage message;
  check(&message, message.mutable_load_progress()->mutable_error());
  check(&message, message.mutable_fence_ack()->mutable_error());
  check(&message, message.mutable_link_fault()->mutable_error());
  check(&message, message.mutable_layers_computed()->mutable_error());
  check(&message, message.mutable_peer_measured()->mutable_error());
}

}  // namespace
}  // namespace strata
