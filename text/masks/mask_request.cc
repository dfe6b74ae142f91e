#include "text/masks/mask_request.h"

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace strata {
namespace {

// What an answer begins with, by its kind.
constexpr std::string_view kKinds = "+-!";

// Numbers as this machine has them: both ends are one program on one machine.
template <typename Number>
void AppendNumber(Number number, std::string* out) {
  static_assert(std::is_integral_v<Number>);
  out->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void AppendText(std::string_view text, std::string* out) {
  AppendNumber<uint64_t>(text.size(), out);
  out->append(text);
}

// Fails once and for all where bytes lack.
class ByteReader {
 public:
  explicit ByteReader(std::string_view left) : left_(left) {}

  template <typename Number>
  Number Take() {
    Number number = 0;
    if (left_.size() < sizeof(number)) {
      failed_ = true;
      left_ = {};
      return 0;
    }
    std::memcpy(&number, left_.data(), sizeof(number));
    left_.remove_prefix(sizeof(number));
    return number;
  }

  std::string TakeText() {
    const auto size = Take<uint64_t>();
    if (size > left_.size()) {
      failed_ = true;
      left_ = {};
      return "";
    }
    std::string text(left_.substr(0, static_cast<size_t>(size)));
    left_.remove_prefix(text.size());
    return text;
  }

  bool failed() const { return failed_; }
  bool Done() const { return !failed_ && left_.empty(); }

 private:
  std::string_view left_;
  bool failed_ = false;
};

}  // namespace

std::string Encode(const MaskRequest& request) {
  std::string bytes;
  AppendNumber<uint64_t>(request.tokens.size(), &bytes);
  for (const std::string& token : request.tokens) {
    AppendText(token, &bytes);
  }
  AppendNumber<uint64_t>(request.stop_ids.size(), &bytes);
  for (const int32_t id : request.stop_ids) {
    AppendNumber(id, &bytes);
  }
  AppendText(request.ebnf, &bytes);
  return bytes;
}

std::optional<MaskRequest> DecodeMaskRequest(std::string_view bytes) {
  ByteReader reader(bytes);
  MaskRequest request;
  for (auto left = reader.Take<uint64_t>(); left > 0 && !reader.failed(); --left) {
    request.tokens.push_back(reader.TakeText());
  }
  for (auto left = reader.Take<uint64_t>(); left > 0 && !reader.failed(); --left) {
    request.stop_ids.push_back(reader.Take<int32_t>());
  }
  request.ebnf = reader.TakeText();
  if (!reader.Done()) {
    return std::nullopt;
  }
  return request;
}

std::string Encode(const MaskAnswer& answer) {
  return kKinds[static_cast<size_t>(answer.kind)] + answer.text;
}

std::optional<MaskAnswer> DecodeMaskAnswer(std::string_view bytes) {
  const size_t kind = bytes.empty() ? std::string_view::npos : kKinds.find(bytes[0]);
  if (kind == std::string_view::npos) {
    return std::nullopt;
  }
  return MaskAnswer{.kind = static_cast<MaskAnswer::Kind>(kind),
                    .text = std::string(bytes.substr(1))};
}

}  // namespace strata
