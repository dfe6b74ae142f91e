#include "common/rpc/status.h"

#include <gtest/gtest.h>

#include "common/rpc/text_status.h"
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

TEST(RpcStatus, ATypedErrorComesBackFromATextAlone) {
  const absl::Status revoked =
      Error(absl::StatusCode::kPermissionDenied, "TLS_REVOKED", "it was revoked").Hint("join anew");
  const grpc::Status told = ToGrpcAsText(revoked);
  EXPECT_EQ(told.error_message(), "it was revoked\nreason: TLS_REVOKED\nhint: join anew");
  EXPECT_EQ(FromGrpc({told.error_code(), told.error_message()}), revoked);
  const absl::Status bare = Error(absl::StatusCode::kUnauthenticated, "TLS_EXPIRED", "it expired");
  EXPECT_EQ(FromGrpc(ToGrpcAsText(bare)), bare);
  // One that others made up does not change what its lines are.
  const absl::Status odd =
      Error(absl::StatusCode::kInternal, "ODD", "a\nreason: OTHER").Hint("b\nc");
  EXPECT_EQ(ReasonOf(FromGrpc(ToGrpcAsText(odd))), "ODD");
}

TEST(RpcStatus, ATextThatOnlyLooksLikeOneIsATransports) {
  for (const char* text : {"a\nreason: ", "a\nreason: lower", "a\nreason: R\nmore",
                           "a\nreason: R\nhint: b\nc", "a reason: R", "a\nb\nreason: R"}) {
    EXPECT_EQ(ReasonOf(FromGrpc({grpc::StatusCode::UNAVAILABLE, text})), "UNAVAILABLE") << text;
  }
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
