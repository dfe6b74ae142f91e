// What another rank may send instead of its frames: right ones that were changed, or any bytes, in
// pieces of any size. A call ends, by what was sent or by an error of a collective; what is
// gathered is what came with a right CRC; and no more memory is taken than this rank itself
// expects.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"
#include "tests/fuzz/input.h"
#include "worker/collective/channel_collective.h"
#include "worker/collective/rank_frame.h"

namespace strata {
namespace {

constexpr size_t kWidth = 12;  // Of a row; this rank has the first four bytes, the other the rest.
const std::vector<ByteColumns> kColumns = {{0, 4}, {4, kWidth}};

class Sender : public RankChannel {
 public:
  Sender(std::string bytes, size_t piece) : bytes_(std::move(bytes)), piece_(piece) {}
  absl::StatusOr<size_t> Send(std::span<const uint8_t> bytes) override {
    return std::min(bytes.size(), piece_);
  }
  absl::StatusOr<size_t> Receive(std::span<uint8_t> out) override {
    STRATA_CHECK(out.size() <= kMaxAbortBytes);
    if (at_ == bytes_.size()) {
      return absl::UnavailableError("it is gone");
    }
    const size_t count = std::min({out.size(), piece_, bytes_.size() - at_});
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(at_), count, out.begin());
    at_ += count;
    return count;
  }
  void EndSending() override {}

 private:
  const std::string bytes_;
  const size_t piece_;
  size_t at_ = 0;
};

std::string Frame(const RankFrameHead& head, const std::string& payload) {
  std::array<uint8_t, kRankFrameHeadBytes> bytes;
  EncodeRankFrameHead(head, bytes);
  return std::string(bytes.begin(), bytes.end()) + payload;
}

// A frame as the other rank would send it, or nearly.
std::string DrawFrame(fuzz::Input* input, const CollectivePoint& point, size_t rows, bool right) {
  std::string payload(rows * (kWidth - 4), '\0');
  for (char& byte : payload) {
    byte = static_cast<char>(input->Byte());
  }
  RankFrameHead head = {.kind = RankFrameKind::kGather,
                        .rank = 1,
                        .point = point,
                        .rows = rows,
                        .shape = ShapeOf(kColumns),
                        .bytes = payload.size(),
                        .crc = Crc32c(0, payload.data(), payload.size())};
  if (right) {
    return Frame(head, payload);
  }
  switch (input->Below(9)) {
    case 0:
      head.kind = static_cast<RankFrameKind>(input->Below(6));
      break;
    case 1:
      head.rank = static_cast<uint32_t>(input->Number());
      break;
    case 2:
      head.point.epoch = input->Number();
      break;
    case 3:
      head.point.step = input->Number();
      break;
    case 4:
      head.rows = input->Number();
      break;
    case 5:
      head.shape = static_cast<uint32_t>(input->Number());
      break;
    case 6:
      head.bytes = input->Number();
      break;
    case 7:
      head.crc = static_cast<uint32_t>(input->Number());
      break;
    default:
      payload = input->Text();
  }
  std::string frame = Frame(head, payload);
  if (input->Bool()) {
    frame[input->Number() % frame.size()] ^= static_cast<char>(1 << input->Below(8));
  }
  return frame;
}

void Run(fuzz::Input* input) {
  const size_t piece = 1 + input->Byte();
  const size_t rows = input->Below(5);
  const bool right = input->Bool();
  std::string sent;
  for (uint32_t call = 1; call <= 2; ++call) {
    sent += input->Below(8) == 0 && !right ? input->Text()
                                           : DrawFrame(input, {1, 2, call}, rows, right);
  }
  const std::string expected = sent;
  const SystemClock clock;
  std::vector<std::unique_ptr<RankChannel>> channels(2);
  channels[1] = std::make_unique<Sender>(std::move(sent), piece);
  const auto collective = MakeChannelCollective(0, std::move(channels), {.clock = &clock});
  for (uint32_t call = 1; call <= 2; ++call) {
    std::vector<uint8_t> bytes(rows * kWidth, 0xee);
    const absl::Status status =
        collective->Gather({1, 2, call}, {bytes.data(), rows, kWidth, kColumns});
    if (!status.ok()) {
      const std::string reason = ReasonOf(status);
      STRATA_CHECK(!right);
      STRATA_CHECK(reason == kCollectiveDiffers || reason == kCollectiveAborted ||
                   reason == kRankFrame);
      STRATA_CHECK(!collective->Barrier({1, 2, call + 1}).ok());
      return;
    }
    for (size_t row = 0; row < rows; ++row) {
      STRATA_CHECK(bytes[row * kWidth] == 0xee);
      const size_t frame = kRankFrameHeadBytes + rows * (kWidth - 4);
      const size_t at = (call - 1) * frame + kRankFrameHeadBytes + row * (kWidth - 4);
      STRATA_CHECK(!right || std::equal(bytes.begin() + static_cast<ptrdiff_t>(row * kWidth + 4),
                                        bytes.begin() + static_cast<ptrdiff_t>((row + 1) * kWidth),
                                        expected.begin() + static_cast<ptrdiff_t>(at),
                                        [](uint8_t a, char b) { return a == uint8_t(b); }));
    }
  }
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  strata::fuzz::Input input(data, size);
  strata::Run(&input);
  return 0;
}
