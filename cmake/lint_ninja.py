#!/usr/bin/env python3
"""Writes FOLDER/lint.ninja, the checks of `./dev lint`: ninja then repeats only what changed.

    lint_ninja.py FOLDER      # a build folder configured for clang, with compile_commands.json

Sources go through clang-tidy (lint_together.py), which reports broken thread annotations as well;
tests go through clang's analysis of these only.
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys

TOGETHER = 12

RULES = """\
builddir = lint

rule tidy
  command = /usr/bin/python3 $top/cmake/lint_together.py $out $in -- $flags
  description = $count
  depfile = $out.d
  deps = gcc

rule annotations
  command = clang++ $flags -fsyntax-only -MD -MT $out -MF $out.d $in && touch $out
  description = 1
  depfile = $out.d
  deps = gcc

"""


def flags_by_source(folder, top):
    """What each source is compiled with; of one that is in two targets, the first's."""
    flags = {}
    for entry in json.loads((folder / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        start = next(i for i, word in enumerate(words) if word.endswith("clang++")) + 1
        at = words.index("-o")
        words = words[start:at] + words[at + 2:-2]  # Without -o OBJECT and -c SOURCE.
        flags.setdefault(os.path.relpath(entry["file"], top),
                         shlex.join(word for word in words if word not in ("-fPIC", "-fPIE")))
    return flags


def groups(sources, flags):
    """Lists of sources of one folder that are compiled alike."""
    alike = {}
    for source in sources:
        alike.setdefault((os.path.dirname(source), flags[source]), []).append(source)
    for members in alike.values():
        parts = -(-len(members) // TOGETHER)
        size = -(-len(members) // parts)
        yield from (members[i:i + size] for i in range(0, len(members), size))


def edge(rule, sources, top, flags, settings=""):
    name = "lint/" + sources[0].replace("/", "_") + ".ok"
    inputs = " ".join(f"{top}/{source}" for source in sources)
    needs = f" | {top}/.clang-tidy" if rule == "tidy" else ""
    return f"build {name}: {rule} {inputs}{needs}\n  flags = {flags.replace('$', '$$')}\n{settings}"


def main(folder):
    folder = pathlib.Path(folder).resolve()
    top = pathlib.Path(__file__).resolve().parent.parent
    listed = subprocess.run(["git", "-C", top, "ls-files", "*.cc"], check=True, text=True,
                            stdout=subprocess.PIPE).stdout.split()
    flags = flags_by_source(folder, top)
    if unbuilt := [source for source in listed if source not in flags]:
        sys.exit("./dev lint: in no target, and so not checked: " + " ".join(unbuilt))
    (folder / "lint").mkdir(exist_ok=True)
    tests = [source for source in listed if source.startswith("tests/")]
    rules = [f"top = {top}\n", RULES]
    for members in groups([s for s in listed if s not in tests], flags):
        rules.append(edge("tidy", members, top, flags[members[0]], f"  count = {len(members)}\n"))
    rules += [edge("annotations", [test], top, flags[test]) for test in tests]
    (folder / "lint.ninja").write_text("".join(rules))


if __name__ == "__main__":
    main(*sys.argv[1:])
