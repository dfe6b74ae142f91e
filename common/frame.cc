#include "common/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/digest.h"
#include "common/status.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian floats");

template <typename Message>
std::vector<v1::FramePart> Cut(const Message& message) {
  std::string header = message.header.SerializeAsString();
  const size_t payload_bytes = message.payload.size() * sizeof(float);
  const auto* payload = reinterpret_cast<const char*>(message.payload.data());
  const size_t total = header.size() + payload_bytes;
  const uint32_t crc = Crc32c(Crc32c(0, header.data(), header.size()), payload, payload_bytes);
  const size_t count = std::max<size_t>(1, (total + kFramePartBytes - 1) / kFramePartBytes);
  std::vector<v1::FramePart> parts(count);
  for (size_t i = 0; i < count; ++i) {
    v1::FramePart& part = parts[i];
    part.set_epoch(message.header.epoch());
    part.set_step(message.header.step());
    part.set_index(static_cast<uint32_t>(i));
    part.set_count(static_cast<uint32_t>(count));
    part.set_header_bytes(static_cast<uint32_t>(header.size()));
    part.set_total_bytes(total);
    part.set_crc32c(crc);
    const size_t begin = i * kFramePartBytes;
    const size_t end = std::min(total, begin + kFramePartBytes);
    std::string* data = part.mutable_data();
    data->reserve(end - begin);
    if (begin < header.size()) {
      data->append(header, begin, std::min(end, header.size()) - begin);
    }
    if (end > header.size()) {
      const size_t from = std::max(begin, header.size()) - header.size();
      data->append(payload + from, end - header.size() - from);
    }
  }
  return parts;
}

absl::Status BadPart(std::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_FRAME", "frame part: " + std::string(what));
}

}  // namespace

std::vector<v1::FramePart> ToParts(const StepMessage& message) { return Cut(message); }
std::vector<v1::FramePart> ToParts(const ResultMessage& message) { return Cut(message); }

absl::StatusOr<bool> FrameAssembler::Add(const v1::FramePart& part) {
  if (part.data().size() > kFramePartBytes) {
    return BadPart("more than 256 KiB of data");
  }
  if (part.index() != next_index_) {
    return BadPart("index " + std::to_string(part.index()) + ", expected " +
                   std::to_string(next_index_));
  }
  if (part.index() == 0) {
    const uint64_t most_parts = max_bytes_ / kFramePartBytes + 1;
    if (part.count() == 0 || part.count() > most_parts || part.total_bytes() > max_bytes_) {
      return BadPart("a frame of " + std::to_string(part.total_bytes()) + " bytes in " +
                     std::to_string(part.count()) + " parts; the limit is " +
                     std::to_string(max_bytes_) + " bytes");
    }
    if (part.header_bytes() > part.total_bytes() || part.header_bytes() > kMaxFrameHeaderBytes) {
      return BadPart("a header of " + std::to_string(part.header_bytes()) + " bytes");
    }
    first_ = part;
    first_.clear_data();
    data_.clear();
  } else if (part.epoch() != first_.epoch() || part.step() != first_.step() ||
             part.count() != first_.count() || part.total_bytes() != first_.total_bytes() ||
             part.header_bytes() != first_.header_bytes() || part.crc32c() != first_.crc32c()) {
    return BadPart("parts of two frames are mixed");
  }
  if (data_.size() + part.data().size() > first_.total_bytes()) {
    return BadPart("more data than announced");
  }
  data_ += part.data();
  if (++next_index_ < first_.count()) {
    return false;
  }
  next_index_ = 0;
  if (data_.size() != first_.total_bytes()) {
    return BadPart("less data than announced");
  }
  if (Crc32c(0, data_.data(), data_.size()) != first_.crc32c()) {
    return Error(absl::StatusCode::kDataLoss, "BAD_CRC", "a frame's CRC-32C does not match")
        .Fact("epoch", first_.epoch())
        .Fact("step", first_.step());
  }
  return true;
}

template <typename Message>
absl::StatusOr<Message> FrameAssembler::Take() {
  Message message;
  const size_t header_bytes = first_.header_bytes();
  if (!message.header.ParseFromArray(data_.data(), static_cast<int>(header_bytes))) {
    return BadPart("the header does not parse");
  }
  if (message.header.epoch() != first_.epoch() || message.header.step() != first_.step()) {
    return BadPart("header and parts name different steps");
  }
  const size_t payload_bytes = data_.size() - header_bytes;
  if (payload_bytes % sizeof(float) != 0) {
    return BadPart("the payload is no whole number of floats");
  }
  message.payload.resize(payload_bytes / sizeof(float));
  if (payload_bytes > 0) {  // memcpy takes no null pointer, not even for nothing.
    std::memcpy(message.payload.data(), data_.data() + header_bytes, payload_bytes);
  }
  message.received_bytes = data_.size();
  data_.clear();
  return message;
}

absl::StatusOr<StepMessage> FrameAssembler::TakeStep() { return Take<StepMessage>(); }
absl::StatusOr<ResultMessage> FrameAssembler::TakeResult() { return Take<ResultMessage>(); }

}  // namespace strata
