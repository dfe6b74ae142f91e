// Parts of frames as a link brings them: parts of a right frame that were changed, or parsed from
// any bytes. What comes out whole is a frame whose CRC was right; memory stays below the limit.
#include <cmath>

#include "common/check.h"
#include "common/frame.h"
#include "common/status.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/quiet_protobuf.h"

namespace strata {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

StepMessage DrawFrame(fuzz::Input* input) {
  StepMessage message;
  message.header.set_epoch(input->Number());
  message.header.set_step(input->Number());
  for (uint32_t i = input->Below(4); i > 0; --i) {
    v1::StepItem* item = message.header.add_items();
    item->mutable_sequence()->set_request_id(std::to_string(input->Number()));
    item->set_last_stage_payload(input->Text());
  }
  // Several parts, seldom.
  message.payload.assign(input->Byte() * (input->Below(8) == 0 ? 1000u : 1u), 1.5f);
  return message;
}

void Change(fuzz::Input* input, std::vector<v1::FramePart>* parts) {
  v1::FramePart& part = (*parts)[input->Byte() % parts->size()];
  switch (input->Below(12)) {
    case 0:
      return part.set_epoch(input->Number());
    case 1:
      return part.set_step(input->Number());
    case 2:
      return part.set_index(static_cast<uint32_t>(input->Number()));
    case 3:
      return part.set_count(static_cast<uint32_t>(input->Number()));
    case 4:
      return part.set_header_bytes(static_cast<uint32_t>(input->Number()));
    case 5:
      return part.set_total_bytes(input->Number());
    case 6:
      return part.set_crc32c(static_cast<uint32_t>(input->Number()));
    case 7:
      return part.set_data(input->Text());
    case 8:
      part.mutable_data()->append(input->Text());
      return;
    case 9:
      parts->push_back(part);
      return;
    case 10:
      parts->pop_back();
      return;
    default:
      if (!part.data().empty()) {
        (*part.mutable_data())[input->Number() % part.data().size()] ^= 1;
      }
  }
}

// Until the link breaks. Returns the frames that came out.
std::vector<StepMessage> Feed(const std::vector<v1::FramePart>& parts, bool results) {
  FrameAssembler assembler(kMaxBytes);
  std::vector<StepMessage> frames;
  for (const v1::FramePart& part : parts) {
    const auto whole = assembler.Add(part);
    if (!whole.ok()) {
      STRATA_CHECK(ReasonOf(whole.status()) == "BAD_FRAME" ||
                   ReasonOf(whole.status()) == "BAD_CRC");
      break;
    }
    if (!*whole) {
      continue;
    }
    if (results) {
      if (!assembler.TakeResult().ok()) {
        break;
      }
      continue;
    }
    auto frame = assembler.TakeStep();
    if (!frame.ok()) {
      STRATA_CHECK(!ReasonOf(frame.status()).empty());
      break;
    }
    STRATA_CHECK(frame->payload.size() * sizeof(float) <= kMaxBytes);
    frames.push_back(*std::move(frame));
  }
  return frames;
}

void FeedRaw(fuzz::Input* input) {
  std::vector<v1::FramePart> parts;
  while (!input->empty() && parts.size() < 64) {
    const size_t size = size_t{input->Byte()} << 8 | input->Byte();
    v1::FramePart part;
    if (part.ParseFromString(input->Bytes(size))) {
      parts.push_back(std::move(part));
    }
  }
  Feed(parts, false);
  Feed(parts, true);
}

void FeedChanged(fuzz::Input* input) {
  const StepMessage frame = DrawFrame(input);
  std::vector<v1::FramePart> parts = ToParts(frame);
  const auto frames = Feed(parts, false);
  if (frame.header.ByteSizeLong() + frame.payload.size() * sizeof(float) <= kMaxBytes) {
    STRATA_CHECK(frames.size() == 1 && frames[0].payload == frame.payload &&
                 frames[0].header.SerializeAsString() == frame.header.SerializeAsString());
  }
  for (uint32_t i = 1 + input->Below(3); i > 0 && !parts.empty(); --i) {
    Change(input, &parts);
  }
  Feed(parts, input->Bool());
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  strata::fuzz::Input input(data, size);
  input.Bool() ? strata::FeedRaw(&input) : strata::FeedChanged(&input);
  return 0;
}
