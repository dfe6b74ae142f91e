// Text of an answer that was not read yet, in which special tokens stand apart from text that
// spells the same.
#ifndef STRATA_TEXT_TOOLS_MARKED_TEXT_H_
#define STRATA_TEXT_TOOLS_MARKED_TEXT_H_

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace strata {

// A special token is its name between two bytes that no UTF-8 has.
inline constexpr char kTokenBegins = '\xff';
inline constexpr char kTokenEnds = '\xfe';

std::string MarkedToken(std::string_view name);
// `text` without special tokens.
std::string WithoutTokens(std::string_view text);
// `literal` with those of `tokens` in it marked that are special.
std::string Marked(std::string_view literal, std::span<const std::string_view> tokens,
                   const std::function<bool(std::string_view)>& is_special);
bool IsBlank(char byte);
// More bytes than any markup of a format has.
inline constexpr size_t kMarkupBytes = 64;
// `text` without white space around it.
std::string_view Stripped(std::string_view text);
// Behind the last byte of `text` that is no white space.
size_t BlanksAtEnd(std::string_view text);

class MarkedText {
 public:
  enum class Match { kNo, kMaybe, kYes };

  void Add(std::string_view text);
  void AddToken(std::string_view name) { text_ += MarkedToken(name); }
  void End() { ended_ = true; }
  bool ended() const { return ended_; }

  std::string_view left() const { return std::string_view(text_).substr(at_); }
  void Take(size_t bytes) { at_ += bytes; }
  // Forgets what was taken.
  void Trim() {
    text_.erase(0, at_);
    at_ = 0;
  }

  // Whether `pattern` stands at `at` of what is left. kMaybe where what is left ends too early to
  // know; never once there is no more to come, nor for an empty pattern.
  Match At(std::string_view pattern, size_t at = 0) const;
  // Where `pattern` first stands, or may begin, of what is left.
  struct Found {
    Match match = Match::kNo;
    size_t at = 0;
  };
  Found Find(std::string_view pattern) const;

 private:
  std::string text_;
  size_t at_ = 0;
  bool ended_ = false;
};

}  // namespace strata

#endif  // STRATA_TEXT_TOOLS_MARKED_TEXT_H_
