#include "common/frame.h"

#include <gtest/gtest.h>

#include "common/status.h"

namespace strata {
namespace {

StepMessage Message(size_t floats) {
  StepMessage message;
  message.header.set_epoch(3);
  message.header.set_step(7);
  message.header.add_items()->add_token_ids(11);
  for (size_t i = 0; i < floats; ++i) {
    message.payload.push_back(static_cast<float>(i) * 0.5f);
  }
  return message;
}

TEST(Frame, ComesBackWholeFromItsParts) {
  for (size_t floats : {size_t{0}, size_t{1}, size_t{65536}, size_t{200000}}) {
    const StepMessage message = Message(floats);
    const auto parts = ToParts(message);
    FrameAssembler assembler;
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_LE(parts[i].data().size(), kFramePartBytes);
      auto whole = assembler.Add(parts[i]);
      ASSERT_TRUE(whole.ok()) << whole.status();
      EXPECT_EQ(*whole, i + 1 == parts.size());
    }
    auto back = assembler.TakeStep();
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->payload, message.payload);
    EXPECT_EQ(back->header.SerializeAsString(), message.header.SerializeAsString());
  }
}

TEST(Frame, AnyFlippedByteIsNoticed) {
  const auto parts = ToParts(Message(40));
  ASSERT_EQ(parts.size(), 1u);
  for (size_t i = 0; i < parts[0].data().size(); ++i) {
    v1::FramePart bad = parts[0];
    (*bad.mutable_data())[i] = static_cast<char>((*bad.mutable_data())[i] ^ 0x10);
    FrameAssembler assembler;
    EXPECT_EQ(ReasonOf(assembler.Add(bad).status()), "BAD_CRC") << i;
  }
}

TEST(Frame, PartsOutOfOrderMissingOrMixedBreakTheLink) {
  const auto parts = ToParts(Message(200000));
  ASSERT_GE(parts.size(), 3u);
  {
    FrameAssembler assembler;
    EXPECT_FALSE(assembler.Add(parts[1]).ok());
  }
  {
    FrameAssembler assembler;
    ASSERT_TRUE(assembler.Add(parts[0]).ok());
    EXPECT_FALSE(assembler.Add(parts[2]).ok());
  }
  {
    FrameAssembler assembler;
    ASSERT_TRUE(assembler.Add(parts[0]).ok());
    v1::FramePart other = parts[1];
    other.set_step(8);
    EXPECT_FALSE(assembler.Add(other).ok());
  }
}

TEST(Frame, AnnouncedSizesAreLimitedBeforeAnythingIsAllocated) {
  v1::FramePart part = ToParts(Message(1))[0];
  part.set_total_bytes(uint64_t{1} << 60);
  EXPECT_FALSE(FrameAssembler().Add(part).ok());
  part = ToParts(Message(1))[0];
  part.set_count(1u << 30);
  EXPECT_FALSE(FrameAssembler().Add(part).ok());
  part = ToParts(Message(1))[0];
  part.set_header_bytes(static_cast<uint32_t>(part.total_bytes()) + 1);
  EXPECT_FALSE(FrameAssembler().Add(part).ok());
}

}  // namespace
}  // namespace strata
