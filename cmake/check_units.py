#!/usr/bin/env python3
"""Sources that are compiled together must not have a name twice in their anonymous namespaces.

usage: check_units.py BUILD_FOLDER

The compiler refuses most of that; an overload that fits better than the file's own it takes without
a word. Reads the files that CMake made of several sources (STRATA_UNITS), and these; relies on what
clang-format makes of them: what is in a namespace begins in the first column.
"""
import collections
import json
import pathlib
import re
import sys

INCLUDED = re.compile(r'^#include "(.+\.cc)"$', re.M)
TYPE = re.compile(r"^(?:template .*)?(?:struct|class|enum class|enum|union) (\w+)\b(?!;|::)|^using (\w+) =")
FUNCTION = re.compile(r"^[A-Za-z_][\w:<>,*&\[\]() ]*?[\w>*&] ?\**&?\b(\w+)\(")
VARIABLE = re.compile(r"^(?:inline |static |constexpr |const |thread_local )+[\w:<>,*& ]*?\b(k?\w+)(?:\[\w*\])*(?: =|;|\{|\()")
NO_FUNCTIONS = {"TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P", "MATCHER", "MATCHER_P",
                "static_assert", "BENCHMARK"}


def names(text):
    """Those that the file's anonymous namespaces declare; of an alias, its line."""
    found = {}
    spaces = []
    for line in text.splitlines():
        if match := re.match(r"^namespace ([\w:]+ )?\{$", line):
            spaces.append(match.group(1) is None)
        elif re.match(r"^\}  // namespace", line):
            spaces.pop()
        elif any(spaces) and not line.startswith("namespace "):
            for pattern in (TYPE, VARIABLE, FUNCTION):
                if match := pattern.match(line):
                    name = next(group for group in match.groups() if group)
                    if name not in NO_FUNCTIONS:
                        # The same alias may be there twice.
                        found[name] = line if line.startswith("using ") else None
                    break
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    commands = json.loads((pathlib.Path(sys.argv[1]) / "compile_commands.json").read_text())
    units = sorted(pathlib.Path(one["file"]) for one in commands if "/Unity/unity_" in one["file"])
    problems = 0
    for unit in units:
        where = collections.defaultdict(list)
        for source in INCLUDED.findall(unit.read_text()):
            if not pathlib.Path(source).exists():
                continue  # Generated, and not yet.
            for name, alias in names(pathlib.Path(source).read_text()).items():
                where[name].append((source, alias))
        for name, found in sorted(where.items()):
            sources = [source for source, _ in found]
            aliases = {alias for _, alias in found}
            if len(sources) > 1 and (len(aliases) > 1 or None in aliases):
                problems += 1
                print(f"{name} is in the anonymous namespaces of " + " and ".join(sources))
    if problems:
        sys.exit("rename all but one, or give the target the file behind APART (cmake/StrataTargets.cmake)")
    print(f"{len(units)} units: no name twice")


if __name__ == "__main__":
    main()
