#include "coordinator/http/answer_framing.h"

#include <boost/beast/http/status.hpp>
#include <cstdio>

namespace strata {
namespace {

void AppendHeader(std::string_view name, std::string_view value, std::string* out) {
  out->append(name).append(": ");
  for (const char c : value) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) out->push_back(c);
  }
  out->append("\r\n");
}

}  // namespace

void AnswerFraming::Head(const HttpResponse& response, std::optional<size_t> length,
                         std::string* out) {
  begun_ = true;
  if (!length.has_value() && !chunked_) Close();
  const auto reason =
      boost::beast::http::obsolete_reason(static_cast<boost::beast::http::status>(response.status));
  out->append("HTTP/1.1 ").append(std::to_string(response.status)).append(" ");
  out->append(reason.data(), reason.size()).append("\r\n");
  AppendHeader("Content-Type", response.content_type, out);
  if (length.has_value()) {
    AppendHeader("Content-Length", std::to_string(*length), out);
  } else if (chunked_) {
    AppendHeader("Transfer-Encoding", "chunked", out);
  }
  AppendHeader("Connection", closes() ? "close" : "keep-alive", out);
  for (const auto& [name, value] : response.headers) {
    AppendHeader(name, value, out);
  }
  out->append("\r\n");
}

void AnswerFraming::Whole(const HttpResponse& response, std::string* out) {
  Head(response, response.body.size(), out);
  if (!head_only_) out->append(response.body);
}

void AnswerFraming::Begin(const HttpResponse& head, std::string* out) {
  Head(head, std::nullopt, out);
  Piece(head.body, out);
}

void AnswerFraming::Piece(std::string_view piece, std::string* out) const {
  if (piece.empty() || head_only_) {
    return;
  }
  if (!chunked_) {
    out->append(piece);
    return;
  }
  char size[24];
  const int n = std::snprintf(size, sizeof(size), "%zx\r\n", piece.size());
  out->append(size, static_cast<size_t>(n)).append(piece).append("\r\n");
}

void AnswerFraming::End(std::string_view piece, std::string* out) const {
  Piece(piece, out);
  if (chunked_ && !head_only_) out->append("0\r\n\r\n");
}

}  // namespace strata
