#!/usr/bin/env python3
"""What check_units.py finds, and what it lets pass."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("check_units.py")


def check(*sources):
    """The exit status for a unit of these sources, each within an anonymous namespace."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        unit = folder / "Unity" / "unity_0_cxx.cxx"
        unit.parent.mkdir()
        text = ""
        for i, source in enumerate(sources):
            file = folder / f"{i}.cc"
            file.write_text("namespace strata {\nnamespace {\n\n" + source +
                            "\n}  // namespace\n\nint Shared() { return 1; }\n\n}  // namespace strata\n")
            text += f'#include "{file}"\n'
        unit.write_text(text)
        (folder / "compile_commands.json").write_text(json.dumps([{"file": str(unit)}]))
        return subprocess.run([sys.executable, SCRIPT, folder], capture_output=True).returncode


class CheckUnits(unittest.TestCase):
    def test_finds_a_name_that_two_sources_have(self):
        for one, other in (
                ("int Sum(int a) { return a; }", "int Sum(const char* a) {\n  return 0;\n}"),
                ("struct Part {\n  int a;\n};", "class Part {\n};"),
                ("constexpr int kMost = 1;", "constexpr double kMost[] = {1};"),
                ("std::vector<int> Ids(\n    int a) {}", "absl::StatusOr<std::unique_ptr<A>> Ids() {}"),
                ("using Made = int;", "using Made = long;"),
                ("std::string Name();", "struct Name {};")):
            self.assertNotEqual(check(one, other), 0, (one, other))

    def test_lets_different_names_pass_and_what_is_within_others(self):
        self.assertEqual(check("int Sum(int a) {\n  int inner = a;\n  return inner;\n}",
                               "int Product(int a) {\n  int inner = a;\n  return inner;\n}"), 0)
        self.assertEqual(check("using Json = nlohmann::json;", "using Json = nlohmann::json;"), 0)
        self.assertEqual(check("TEST(Sum, IsRight) {}", "TEST(Product, IsRight) {}"), 0)


if __name__ == "__main__":
    unittest.main()
