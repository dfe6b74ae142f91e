#include "worker/collective/rank_frame.h"

#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little);

// "STRK" and the version of the frame.
constexpr uint64_t kMagic = uint64_t{1} << 32 | 0x4b525453;

absl::Status Damaged(const std::string& what) {
  return Error(absl::StatusCode::kDataLoss, kRankFrame, what);
}

// Fields one behind another.
class Writer {
 public:
  explicit Writer(std::span<uint8_t> out) : out_(out) {}
  template <typename T>
  void Put(T value) {
    std::memcpy(out_.data() + at_, &value, sizeof(value));
    at_ += sizeof(value);
  }
  size_t at() const { return at_; }

 private:
  const std::span<uint8_t> out_;
  size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> in) : in_(in) {}
  template <typename T>
  T Take() {
    T value;
    std::memcpy(&value, in_.data() + at_, sizeof(value));
    at_ += sizeof(value);
    return value;
  }
  size_t at() const { return at_; }

 private:
  const std::span<const uint8_t> in_;
  size_t at_ = 0;
};

}  // namespace

uint32_t ShapeOf(std::span<const ByteColumns> columns) {
  uint32_t crc = 0;
  for (const ByteColumns& one : columns) {
    const std::array<uint64_t, 2> ends = {one.begin, one.end};
    crc = Crc32c(crc, ends.data(), sizeof(ends));
  }
  return crc;
}

void EncodeRankFrameHead(const RankFrameHead& head, std::span<uint8_t, kRankFrameHeadBytes> out) {
  Writer writer(out);
  writer.Put(kMagic);
  writer.Put(static_cast<uint32_t>(head.kind));
  writer.Put(head.rank);
  writer.Put(head.point.epoch);
  writer.Put(head.point.step);
  writer.Put(head.point.call);
  writer.Put(head.shape);
  writer.Put(head.rows);
  writer.Put(head.bytes);
  writer.Put(head.crc);
  writer.Put(Crc32c(0, out.data(), writer.at()));
}

absl::StatusOr<RankFrameHead> DecodeRankFrameHead(
    std::span<const uint8_t, kRankFrameHeadBytes> bytes) {
  Reader reader(bytes);
  if (reader.Take<uint64_t>() != kMagic) {
    return Damaged("what came from a rank is no frame of this version");
  }
  RankFrameHead head;
  head.kind = static_cast<RankFrameKind>(reader.Take<uint32_t>());
  head.rank = reader.Take<uint32_t>();
  head.point.epoch = reader.Take<uint64_t>();
  head.point.step = reader.Take<uint64_t>();
  head.point.call = reader.Take<uint32_t>();
  head.shape = reader.Take<uint32_t>();
  head.rows = reader.Take<uint64_t>();
  head.bytes = reader.Take<uint64_t>();
  head.crc = reader.Take<uint32_t>();
  const uint32_t crc = Crc32c(0, bytes.data(), reader.at());
  if (reader.Take<uint32_t>() != crc) {
    return Damaged("the head of a rank's frame is damaged");
  }
  uint64_t most = 0;
  switch (head.kind) {
    case RankFrameKind::kGather:
    case RankFrameKind::kGatherToFirst:
      most = kMaxRankFrameBytes;
      break;
    case RankFrameKind::kBarrier:
      break;
    case RankFrameKind::kAbort:
      most = kMaxAbortBytes;
      break;
    default:
      return Damaged("a rank's frame is of an unknown kind");
  }
  if (head.bytes > most) {
    return Damaged("a rank's frame has more bytes than it may have");
  }
  return head;
}

}  // namespace strata
