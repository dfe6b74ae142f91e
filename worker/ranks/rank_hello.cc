#include "worker/ranks/rank_hello.h"

#include <bit>
#include <cstring>
#include <string>

#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little);

// "STRH" and the version of the hello.
constexpr uint64_t kHelloMagic = uint64_t{1} << 32 | 0x48525453;

// Calls field(value) of each field in the order in which they are sent.
template <typename Hello, typename Field>
void EachField(Hello& hello, const Field& field) {
  field(hello.secret);
  field(hello.epoch);
  field(hello.from);
  field(hello.to);
  field(hello.use);
}

absl::Status NoHello(const std::string& what) {
  return Error(absl::StatusCode::kInvalidArgument, kRankHelloRefused, what);
}

}  // namespace

void EncodeRankHello(const RankHello& hello, std::span<uint8_t, kRankHelloBytes> out) {
  size_t at = 0;
  const auto put = [&](const auto& value) {
    std::memcpy(out.data() + at, &value, sizeof(value));
    at += sizeof(value);
  };
  put(kHelloMagic);
  EachField(hello, put);
  put(Crc32c(0, out.data(), at));
}

absl::StatusOr<RankHello> DecodeRankHello(std::span<const uint8_t, kRankHelloBytes> bytes) {
  size_t at = 0;
  const auto take = [&](auto& value) {
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    at += sizeof(value);
  };
  uint64_t magic = 0;
  RankHello hello;
  take(magic);
  EachField(hello, take);
  const uint32_t wanted = Crc32c(0, bytes.data(), at);
  uint32_t crc = 0;
  take(crc);
  if (magic != kHelloMagic) {
    return NoHello("a connection to a rank begins with no hello of this version");
  }
  if (crc != wanted) {
    return NoHello("the hello of a connection to a rank is damaged");
  }
  if (hello.use != RankConnection::kGathers && hello.use != RankConnection::kCalls) {
    return NoHello("a connection to a rank is of an unknown kind");
  }
  return hello;
}

}  // namespace strata
