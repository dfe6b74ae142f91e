#include "common/status.h"

#include <cctype>
#include <utility>

#include "common/printable.h"
#include "common/utf8.h"

namespace strata {
namespace {

constexpr char kDetailUrl[] = "type.googleapis.com/strata.v1.ErrorDetail";

absl::string_view ToAbsl(std::string_view s) { return {s.data(), s.size()}; }

// Whether `name` stands in `text` by itself, not as a part of a longer word.
bool Mentions(const std::string& text, const std::string& name) {
  const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) {
      return true;
    }
  }
  return false;
}

v1::ErrorDetail Cleaned(v1::ErrorDetail detail) {
  for (std::string* text :
       {detail.mutable_message(), detail.mutable_reason(), detail.mutable_node(),
        detail.mutable_limit(), detail.mutable_hint(), detail.mutable_request_id()}) {
    *text = Printable(*text);
  }
  return detail;
}

}  // namespace

Error::Error(absl::StatusCode code, std::string_view reason, std::string_view message) {
  detail_.set_code(static_cast<uint32_t>(code));
  detail_.set_reason(Printable(reason));
  detail_.set_message(Printable(message));
}

Error&& Error::Node(std::string_view node) && {
  detail_.set_node(Printable(node));
  return std::move(*this);
}

Error&& Error::Limit(std::string_view limit) && {
  detail_.set_limit(Printable(limit));
  return std::move(*this);
}

Error&& Error::Hint(std::string_view hint) && {
  detail_.set_hint(Printable(hint));
  return std::move(*this);
}

Error&& Error::RequestId(std::string_view request_id) && {
  detail_.set_request_id(Printable(request_id));
  return std::move(*this);
}

Error&& Error::Fact(std::string_view key, std::string_view value) && {
  (*detail_.mutable_facts())[ReplaceInvalidUtf8(key)] = ReplaceInvalidUtf8(value);
  return std::move(*this);
}

Error&& Error::Fact(std::string_view key, uint64_t value) && {
  return std::move(*this).Fact(key, std::to_string(value));
}

Error::operator absl::Status() const { return StatusOf(detail_); }

v1::ErrorDetail DetailOf(const absl::Status& status) {
  v1::ErrorDetail detail;
  if (auto payload = status.GetPayload(kDetailUrl);
      payload.has_value() && detail.ParseFromString(std::string(*payload))) {
    return detail;
  }
  detail.set_code(static_cast<uint32_t>(status.code()));
  detail.set_message(Printable(std::string_view(status.message().data(), status.message().size())));
  return detail;
}

absl::Status StatusOf(const v1::ErrorDetail& detail) {
  auto code = static_cast<absl::StatusCode>(detail.code());
  if (detail.code() == 0 || detail.code() > 16) {
    code = absl::StatusCode::kUnknown;
  }
  const bool clean = IsPrintable(detail.message()) && IsPrintable(detail.reason()) &&
                     IsPrintable(detail.node()) && IsPrintable(detail.limit()) &&
                     IsPrintable(detail.hint()) && IsPrintable(detail.request_id());
  const v1::ErrorDetail& said = clean ? detail : Cleaned(detail);
  absl::Status status(code, ToAbsl(said.message()));
  status.SetPayload(kDetailUrl, absl::Cord(said.SerializeAsString()));
  return status;
}

std::string ReasonOf(const absl::Status& status) { return DetailOf(status).reason(); }

std::string Describe(const absl::Status& status) {
  const v1::ErrorDetail detail = DetailOf(status);
  std::string line = detail.message();
  if (line.empty()) {
    line = absl::StatusCodeToString(status.code());
  }
  if (!detail.node().empty() && !Mentions(line, detail.node())) {
    line += " (node " + detail.node() + ")";
  }
  if (!detail.limit().empty()) {
    line += " [" + detail.limit() + "]";
  }
  if (!detail.hint().empty()) {
    line += "; " + detail.hint();
  }
  return line;
}

absl::Status Annotate(const absl::Status& status, std::string_view where) {
  if (status.ok()) {
    return status;
  }
  v1::ErrorDetail detail = DetailOf(status);
  detail.set_message(Printable(where) + ": " + detail.message());
  return StatusOf(detail);
}

}  // namespace strata
