#include "worker/backend/cuda/shard/transfers.h"

#include <algorithm>
#include <cstring>

#include "common/status.h"

namespace strata::cuda {
namespace {

constexpr uint64_t kAlignment = 256;  // Of what is copied by itself.

absl::Status MakeEvent(Device* device, OwnedEvent* event) {
  ASSIGN_OR_RETURN(const Event made, device->MakeEvent());
  *event = OwnedEvent(device, made);
  return absl::OkStatus();
}

}  // namespace

Transfers::~Transfers() {
  if (loading_) {
    (void)EndLoading();  // So that no copy is left of what is freed.
  }
}

absl::Status Transfers::EndLoading() {
  loading_ = false;
  for (const Piece& piece : in_) {
    if (piece.used > 0) {
      RETURN_IF_ERROR(device_->Finish(piece.copied.get()));
    }
  }
  return absl::OkStatus();
}

absl::Status Transfers::Allocate(Device* device) {
  device_ = device;
  loading_ = true;
  ASSIGN_OR_RETURN(uint8_t * data, device->AllocatePinned(2 * kPinnedPieces * kPinnedPieceBytes));
  memory_ = PinnedMemory(device, data);
  for (auto* const pieces : {&in_, &out_}) {
    for (Piece& piece : *pieces) {
      piece.data = data;
      data += kPinnedPieceBytes;
      RETURN_IF_ERROR(MakeEvent(device, &piece.copied));
    }
  }
  return absl::OkStatus();
}

absl::Status Transfers::In(void* to, const void* from, uint64_t bytes) {
  const Stream stream = loading_ ? device_->copies() : device_->stream();
  const auto* source = static_cast<const uint8_t*>(from);
  auto* target = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    Piece* piece = &in_[filling_];
    if (piece->used > 0 && piece->used + bytes > kPinnedPieceBytes) {
      filling_ = (filling_ + 1) % in_.size();
      piece = &in_[filling_];
      // What it held is on the device before it holds something else.
      RETURN_IF_ERROR(device_->Finish(piece->copied.get()));
      piece->used = 0;
    }
    const uint64_t count = std::min(bytes, kPinnedPieceBytes);
    uint8_t* const held = piece->data + piece->used;
    piece->used += (count + kAlignment - 1) / kAlignment * kAlignment;
    std::memcpy(held, source, count);
    RETURN_IF_ERROR(device_->CopyIn(stream, target, held, count));
    RETURN_IF_ERROR(device_->Record(piece->copied.get(), stream));
    source += count;
    target += count;
    bytes -= count;
  }
  return absl::OkStatus();
}

absl::Status Transfers::Mark(OwnedEvent* computed) {
  if (computed->get() == nullptr) {
    RETURN_IF_ERROR(MakeEvent(device_, computed));
  }
  return device_->Record(computed->get(), device_->stream());
}

absl::Status Transfers::StartOut(Stream stream, const uint8_t* from, uint64_t bytes, Piece* piece) {
  if (piece->busy) {  // Since a copy that failed.
    RETURN_IF_ERROR(device_->Finish(piece->copied.get()));
  }
  piece->busy = true;
  if (bytes > 0) {
    RETURN_IF_ERROR(device_->CopyOut(stream, piece->data, from, bytes));
  }
  return device_->Record(piece->copied.get(), stream);
}

absl::Status Transfers::Out(void* to, const void* from, uint64_t bytes,
                            const OwnedEvent* computed) {
  const Stream stream = computed == nullptr ? device_->stream() : device_->copies();
  if (computed != nullptr) {
    RETURN_IF_ERROR(device_->WaitFor(stream, computed->get()));
  }
  const uint64_t pieces =
      std::max<uint64_t>(1, (bytes + kPinnedPieceBytes - 1) / kPinnedPieceBytes);
  const auto count_of = [&](uint64_t i) {
    return std::min(kPinnedPieceBytes, bytes - i * kPinnedPieceBytes);
  };
  uint64_t started = 0;
  for (uint64_t taken = 0; taken < pieces; ++taken) {
    for (; started < pieces && started < taken + out_.size(); ++started) {
      RETURN_IF_ERROR(StartOut(stream,
                               static_cast<const uint8_t*>(from) + started * kPinnedPieceBytes,
                               count_of(started), &out_[started % out_.size()]));
    }
    Piece& piece = out_[taken % out_.size()];
    RETURN_IF_ERROR(device_->Finish(piece.copied.get()));
    piece.busy = false;
    if (bytes > 0) {
      std::memcpy(static_cast<uint8_t*>(to) + taken * kPinnedPieceBytes, piece.data,
                  count_of(taken));
    }
  }
  return absl::OkStatus();
}

}  // namespace strata::cuda
