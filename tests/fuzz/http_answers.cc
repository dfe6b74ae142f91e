#include "tests/fuzz/http_answers.h"

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/check.h"

namespace strata::fuzz {
namespace {

// Bytes of a connection, from front to back. Empty answers where they end before what is wanted.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }
  // Up to the next line's end, which is taken too.
  std::optional<std::string_view> Line() {
    const size_t end = left_.find("\r\n");
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view line = left_.substr(0, end);
    left_.remove_prefix(end + 2);
    return line;
  }
  std::optional<std::string_view> Bytes(size_t n) {
    if (left_.size() < n) {
      return std::nullopt;
    }
    const std::string_view bytes = left_.substr(0, n);
    left_.remove_prefix(n);
    return bytes;
  }
  std::string_view Rest() { return std::exchange(left_, {}); }

 private:
  std::string_view left_;
};

size_t Number(std::string_view text, int base) {
  size_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base);
  STRATA_CHECK(read.ec == std::errc() && read.ptr == text.data() + text.size());
  return value;
}

struct Head {
  size_t status = 0;
  std::map<std::string, std::string, std::less<>> headers;

  std::string_view Get(std::string_view name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }
};

std::optional<Head> ReadHead(Reader* reader) {
  Head head;
  const auto first = reader->Line();
  if (!first.has_value()) {
    return std::nullopt;
  }
  STRATA_CHECK(first->substr(0, 9) == "HTTP/1.1 " && first->size() > 13 && (*first)[12] == ' ');
  head.status = Number(first->substr(9, 3), 10);
  while (const auto line = reader->Line()) {
    if (line->empty()) {
      return head;
    }
    const size_t colon = line->find(": ");
    STRATA_CHECK(colon != std::string_view::npos);
    const bool first_of_name =
        head.headers.emplace(line->substr(0, colon), line->substr(colon + 2)).second;
    STRATA_CHECK(first_of_name);
  }
  return std::nullopt;
}

// The chunks' bytes; whether the last one is there is said in `whole`.
std::string ReadChunks(Reader* reader, bool* whole) {
  std::string body;
  *whole = false;
  while (const auto line = reader->Line()) {
    const size_t size = Number(*line, 16);
    const auto chunk = reader->Bytes(size);
    const auto end = chunk.has_value() ? reader->Line() : std::nullopt;
    if (!end.has_value()) {
      return body;
    }
    STRATA_CHECK(end->empty());
    body += *chunk;
    if (size == 0) {
      *whole = true;
      return body;
    }
  }
  return body;
}

void CheckEvents(std::string_view events, bool whole) {
  bool ended = false;
  while (!events.empty()) {
    const size_t end = events.find("\n\n");
    if (end == std::string_view::npos) {
      STRATA_CHECK(!whole);
      return;
    }
    std::string_view event = events.substr(0, end);
    events.remove_prefix(end + 2);
    STRATA_CHECK(!ended);
    if (event == ": keep-alive") {
      continue;
    }
    STRATA_CHECK(event.substr(0, 5) == "data:");
    event.remove_prefix(event.substr(0, 6) == "data: " ? 6 : 5);
    ended = event == "[DONE]";
    STRATA_CHECK(ended || nlohmann::json::accept(event));
  }
}

void CheckBody(const Head& head, std::string_view body, bool whole) {
  const std::string_view type = head.Get("Content-Type");
  if (type == "text/event-stream") {
    CheckEvents(body, whole);
  } else if (whole && type == "application/json") {
    STRATA_CHECK(nlohmann::json::accept(body));
  }
}

// False when the bytes end within it.
bool CheckAnswer(Reader* reader, bool head_only) {
  const auto head = ReadHead(reader);
  if (!head.has_value()) {
    return false;
  }
  if (head->status == 100) {
    // Whole in itself: the client may never send the body that it was told to.
    return reader->empty() || CheckAnswer(reader, head_only);
  }
  STRATA_CHECK(head->status >= 200 && head->status < 600);
  if (head_only) {
    return true;
  }
  if (head->headers.contains("Content-Length")) {
    const auto body = reader->Bytes(Number(head->Get("Content-Length"), 10));
    if (body.has_value()) CheckBody(*head, *body, true);
    return body.has_value();
  }
  bool whole = false;
  if (head->Get("Transfer-Encoding") == "chunked") {
    const std::string body = ReadChunks(reader, &whole);
    CheckBody(*head, body, whole);
    return whole;
  }
  STRATA_CHECK(head->Get("Connection") == "close");
  CheckBody(*head, reader->Rest(), false);  // To the connection's end, whatever ends it.
  return true;
}

}  // namespace

void CheckAnswers(std::string_view bytes, const std::vector<std::string>& methods,
                  bool broken_off) {
  Reader reader(bytes);
  size_t answers = 0;
  while (!reader.empty()) {
    STRATA_CHECK(answers <= methods.size());
    const bool head_only = answers < methods.size() && methods[answers] == "HEAD";
    const bool whole = CheckAnswer(&reader, head_only);
    if (!whole) {  // The bytes end within it.
      STRATA_CHECK(broken_off);
      return;
    }
    ++answers;
  }
}

}  // namespace strata::fuzz
