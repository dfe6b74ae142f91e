// What may come in place of a leader's calls: right frames that were changed, or any bytes. A frame
// is refused by a typed error, or is a call within the stage's limits that reads the same when it
// is written again.
#include <algorithm>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/digest.h"
#include "common/status.h"
#include "tests/fuzz/input.h"
#include "worker/collective/collective.h"
#include "worker/ranks/rank_call.h"

namespace strata {
namespace {

constexpr RankCallLimits kLimits = {
    .rows = 8, .items = 3, .groups = 2, .table_pages = 4, .page_bytes = 40};

void CheckBatch(const Batch& batch) {
  STRATA_CHECK(batch.rows <= kLimits.rows && batch.items.size() <= kLimits.items);
  uint32_t rows = 0;
  for (const BatchItem& item : batch.items) {
    STRATA_CHECK(item.first_row == rows && item.tables.size() == kLimits.groups);
    rows += item.rows;
    for (const PageTableView& table : item.tables) {
      STRATA_CHECK(table.pages.size() <= kLimits.table_pages);
      // They are there.
      STRATA_CHECK(std::count(table.pages.begin(), table.pages.end(), 0u) >= 0);
    }
  }
  STRATA_CHECK(rows == batch.rows);
}

void CheckTyped(const absl::Status& status) {
  STRATA_CHECK(status.code() == absl::StatusCode::kDataLoss && ReasonOf(status) == kRankFrame);
}

// What is behind a head, whatever it is, with a right CRC or not.
std::vector<uint8_t> DrawFrame(fuzz::Input* input) {
  RankCall call{.kind = static_cast<RankCallKind>(input->Below(16))};
  std::vector<uint8_t> frame;
  EncodeRankCall(call, 1, 1, &frame);
  std::string body;
  if (input->Bool()) {
    body = input->Text();
  } else {  // Small numbers, as sizes and pages are.
    const size_t words = input->Below(40);
    for (size_t i = 0; i < words; ++i) {
      const uint32_t word =
          input->Below(8) == 0 ? static_cast<uint32_t>(input->Number()) : input->Below(6);
      body.append(reinterpret_cast<const char*>(&word), sizeof(word));
    }
  }
  frame.resize(kRankCallHeadBytes);
  frame.insert(frame.end(), body.begin(), body.end());
  const auto put = [&](size_t at, auto value) {
    std::copy_n(reinterpret_cast<const uint8_t*>(&value), sizeof(value),
                frame.begin() + static_cast<ptrdiff_t>(at));
  };
  put(32, uint64_t{body.size()});
  put(40, Crc32c(0, body.data(), body.size()));
  put(44, Crc32c(0, frame.data(), 44));
  if (input->Below(8) == 0) {
    frame[input->Number() % frame.size()] ^= static_cast<uint8_t>(1 << input->Below(8));
  }
  return frame;
}

void Run(fuzz::Input* input) {
  HeldRankCall held;
  const std::string any = input->Bytes(input->Bool() ? kRankCallHeadBytes : 0);
  if (any.size() == kRankCallHeadBytes) {
    const auto head =
        DecodeRankCallHead(std::span<const uint8_t, kRankCallHeadBytes>(
                               reinterpret_cast<const uint8_t*>(any.data()), kRankCallHeadBytes),
                           kLimits);
    if (!head.ok()) {
      CheckTyped(head.status());
    }
  }
  for (int calls = 0; calls < 4 && !input->empty(); ++calls) {
    const std::vector<uint8_t> frame = DrawFrame(input);
    const auto head = DecodeRankCallHead(
        std::span<const uint8_t, kRankCallHeadBytes>(frame.data(), kRankCallHeadBytes), kLimits);
    if (!head.ok()) {
      CheckTyped(head.status());
      continue;
    }
    const auto body = std::span(frame).subspan(kRankCallHeadBytes);
    const absl::Status status = held.Decode(*head, body, kLimits);
    CheckBatch(held.call().batch);
    if (!status.ok()) {
      CheckTyped(status);
      continue;
    }
    std::vector<uint8_t> again;
    EncodeRankCall(held.call(), head->epoch, head->number, &again);
    // Of tables it leaves out what their items do not see.
    STRATA_CHECK(held.call().kind == RankCallKind::kBegin ? again.size() <= frame.size()
                                                          : again == frame);
  }
}

}  // namespace
}  // namespace strata

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  strata::fuzz::Input input(data, size);
  strata::Run(&input);
  return 0;
}
