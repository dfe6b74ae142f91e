#include "common/rpc/status.h"

#include <string>

#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kMaxMessageBytes = 1024;
constexpr size_t kMaxDetailBytes = 4096;

void Cut(std::string* text) {
  if (text->size() > kMaxMessageBytes) {
    size_t end = kMaxMessageBytes;
    while (end > 0 && (static_cast<unsigned char>((*text)[end]) & 0xC0) == 0x80) {
      --end;  // Not within a character: proto strings are UTF-8.
    }
    text->resize(end);
    *text += "...";
  }
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) {
    return grpc::Status::OK;
  }
  v1::ErrorDetail detail = DetailOf(status);
  Cut(detail.mutable_message());
  Cut(detail.mutable_hint());
  Cut(detail.mutable_limit());
  if (detail.ByteSizeLong() > kMaxDetailBytes) {
    detail.clear_facts();
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), detail.message(),
                      detail.SerializeAsString());
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  v1::ErrorDetail detail;
  if (!status.error_details().empty() && detail.ParseFromString(status.error_details()) &&
      detail.code() == static_cast<uint32_t>(status.error_code())) {
    return StatusOf(detail);
  }
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  return Error(code, absl::StatusCodeToString(code), status.error_message());
}

}  // namespace strata
