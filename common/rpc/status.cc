#include "common/rpc/status.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/rpc/text_status.h"
#include "common/status.h"

namespace strata {
namespace {

constexpr size_t kMaxTextBytes = 1024;
constexpr size_t kMaxDetailBytes = 4096;

void Cut(std::string* text) {
  if (text->size() > kMaxTextBytes) {
    size_t end = kMaxTextBytes;
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
  if (status.error_details().empty()) {
    if (std::optional<absl::Status> typed = FromText(code, status.error_message())) {
      return *std::move(typed);
    }
  }
  return Error(code, absl::StatusCodeToString(code), status.error_message());
}

std::string ConnectCause(const std::string& message) {
  struct Known {
    const char* mark;
    const char* cause;
  };
  static constexpr Known kKnown[] = {
      {"Connection refused", "connection refused"},
      {"DNS resolution failed", "the name does not resolve"},
      {"tcp handshaker shutdown", "it takes the connection but says nothing"},
      {"before receiving SETTINGS", "it takes the connection but says nothing"},
      {"Failed parsing HTTP/2", "what listens there speaks no gRPC"},
      {"http1.x", "what listens there speaks no gRPC"},
      {"Connection timed out", "connection timed out"},
      {"Network is unreachable", "the network is unreachable"},
      {"No route to host", "no route to the host"},
      {"certificate verify failed", "its certificate is not of the CA in --tls-dir"},
      {"is not in peer certificate", "its certificate does not have this address"},
      {"Peer name", "its certificate does not have this address"},
      {"wrong version number", "it does not speak TLS"},
      {"Handshake read failed", "it does not speak TLS, or ended the handshake"},
      {"Socket closed", "it closes the connection"},
  };
  for (const Known& known : kKnown) {
    if (message.find(known.mark) != std::string::npos) {
      return known.cause;
    }
  }
  constexpr std::string_view kLast = "last error: ";
  const size_t at = message.rfind(kLast);
  return at == std::string::npos ? message : message.substr(at + kLast.size());
}

}  // namespace strata
