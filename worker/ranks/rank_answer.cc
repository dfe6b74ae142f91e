#include "worker/ranks/rank_answer.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kMostDetailBytes = kAnswerBytes - sizeof(uint32_t);

// Cuts a text where no character is cut in two.
void Shorten(std::string* text, size_t bytes) {
  size_t end = text->size() - std::min(text->size(), bytes);
  while (end > 0 && (static_cast<uint8_t>((*text)[end]) & 0xc0) == 0x80) {
    --end;
  }
  text->resize(end);
}

}  // namespace

void EncodeAnswer(const absl::Status& answer, std::span<uint8_t, kAnswerBytes> out) {
  std::fill(out.begin(), out.end(), uint8_t{0});
  if (answer.ok()) {
    return;
  }
  v1::ErrorDetail detail = DetailOf(answer);
  std::string text = detail.SerializeAsString();
  if (text.size() > kMostDetailBytes) {
    Shorten(detail.mutable_message(), text.size() - kMostDetailBytes);
    text = detail.SerializeAsString();
  }
  if (text.size() > kMostDetailBytes) {  // What is long is not the message.
    v1::ErrorDetail bare;
    bare.set_code(detail.code());
    bare.set_reason(detail.reason().substr(0, kMostDetailBytes / 2));
    text = bare.SerializeAsString();
  }
  const auto bytes = static_cast<uint32_t>(text.size());
  std::memcpy(out.data(), &bytes, sizeof(bytes));
  std::memcpy(out.data() + sizeof(bytes), text.data(), text.size());
}

absl::Status DecodeAnswer(std::span<const uint8_t, kAnswerBytes> bytes, absl::Status* answer) {
  *answer = absl::OkStatus();
  uint32_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  if (size == 0) {
    return absl::OkStatus();
  }
  v1::ErrorDetail detail;
  if (size > kMostDetailBytes ||
      !detail.ParseFromArray(bytes.data() + sizeof(size), static_cast<int>(size))) {
    return Error(absl::StatusCode::kDataLoss, kRankFrame, "what a rank answered is damaged");
  }
  *answer = StatusOf(detail);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::Status>> GatherAnswers(RankShard* shard, uint32_t rank,
                                                        uint32_t ranks, const absl::Status& own) {
  std::vector<uint8_t> row(ranks * kAnswerBytes);
  std::vector<ByteColumns> columns;
  for (size_t i = 0; i < ranks; ++i) {
    columns.push_back({i * kAnswerBytes, (i + 1) * kAnswerBytes});
  }
  const auto of = [&](size_t i) {
    return std::span<uint8_t, kAnswerBytes>(row.data() + i * kAnswerBytes, kAnswerBytes);
  };
  EncodeAnswer(own, of(rank));
  RETURN_IF_ERROR(shard->GatherBytes(row.data(), columns));
  std::vector<absl::Status> answers(ranks);
  for (size_t i = 0; i < ranks; ++i) {
    RETURN_IF_ERROR(DecodeAnswer(of(i), &answers[i]));
  }
  return answers;
}

}  // namespace strata
