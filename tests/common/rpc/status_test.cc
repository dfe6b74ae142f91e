#include "common/rpc/status.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

TEST(RpcStatus, ATypedErrorComesBackWhole) {
  const absl::Status status =
      Error(absl::StatusCode::kResourceExhausted, "KV_NEVER_FITS", "too long")
          .Node("a")
          .Limit("kv_tokens=8192")
          .Hint("lower --max-tokens")
          .Fact("asked", 9000);
  const absl::Status back = FromGrpc(ToGrpc(status));
  EXPECT_EQ(back, status);
  EXPECT_EQ(DetailOf(back).SerializeAsString(), DetailOf(status).SerializeAsString());
  EXPECT_TRUE(FromGrpc(ToGrpc(absl::OkStatus())).ok());
}

TEST(RpcStatus, AStatusOfTheTransportGetsItsCodeAsReason) {
  const absl::Status status =
      FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection reset"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), "UNAVAILABLE");
  EXPECT_EQ(Describe(status), "connection reset");
}

TEST(RpcStatus, DetailsThatAreNotOursAreIgnored) {
  const absl::Status status =
      FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "odd", std::string("\xff\x01garbage", 9)));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "odd");
}

TEST(RpcStatus, LongMessagesAreCutAtACharacter) {
  std::string text;
  while (text.size() < 100'000) {
    text += "\xc3\xa4";  // U+00E4, two bytes.
  }
  const absl::Status back = FromGrpc(ToGrpc(Error(absl::StatusCode::kInternal, "LONG", text)));
  EXPECT_EQ(ReasonOf(back), "LONG");
  EXPECT_LT(back.message().size(), 1100u);
  EXPECT_EQ((back.message().size() - 3) % 2, 0u);
}

}  // namespace
}  // namespace strata
