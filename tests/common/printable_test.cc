#include "common/printable.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Printable, EscapesWhatATerminalObeys) {
  EXPECT_EQ(Printable("a\x1b[31mred\x07\r\n\tb\x7f"), "a\\x1b[31mred\\x07\\r\\n\\tb\\x7f");
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // The CSI of C1.
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "gpj.exe"),
            "\\u202egpj.exe");  // Right to left.
  EXPECT_EQ(Printable("a\xe2\x80\xa8"
                      "b"),
            "a\\u2028b");                                   // A line separator.
  EXPECT_EQ(Printable("\xf3\xa0\x81\x81"), "\\U000e0041");  // An invisible tag.
  EXPECT_EQ(Printable("a\xff"
                      "b"),
            "a\xef\xbf\xbd"
            "b");
}

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text : {"", "node-1", "gr\xc3\xbc\xc3\x9f", "\xe6\x97\xa5\xe6\x9c\xac",
                           "\xf0\x9f\x98\x80 ok", "a \\n b"}) {
    EXPECT_EQ(Printable(text), text);
    EXPECT_TRUE(IsPrintable(text));
  }
  for (const char* text : {"a\n", "\x1b", "\xc2\x85", "\xff"}) {
    EXPECT_FALSE(IsPrintable(text));
  }
}

TEST(Printable, CutsAtTheEndOfACharacter) {
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdefg", 6), "abc...");
  EXPECT_EQ(Printable("\x1b\x1b\x1b", 8), "\\x1b...");
  EXPECT_EQ(Printable("\xe6\x97\xa5\xe6\x97\xa5\xe6\x97\xa5", 7), "\xe6\x97\xa5...");
  EXPECT_LE(Printable(std::string(1 << 20, '\x1b'), 64).size(), 64u);
}

}  // namespace
}  // namespace strata
