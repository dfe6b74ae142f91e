// A word of a command that people may copy into a shell.
#ifndef STRATA_COMMON_SHELL_WORD_H_
#define STRATA_COMMON_SHELL_WORD_H_

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace strata {

// As it is where a POSIX shell takes it so, else in quotes.
inline std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain = "/._-+=:,@%";
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return std::isalnum(c) != 0 || kPlain.find(static_cast<char>(c)) != kPlain.npos;
  });
  if (plain) {
    return std::string(text);
  }
  std::string word = "'";
  for (const char c : text) {
    word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return word + "'";
}

// The same as an argument of a command whose flags come before: one that looks like a flag is none.
inline std::string ShellArgument(std::string_view text) {
  return (text.substr(0, 1) == "-" ? "-- " : "") + ShellWord(text);
}

}  // namespace strata

#endif  // STRATA_COMMON_SHELL_WORD_H_
