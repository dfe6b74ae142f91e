#!/usr/bin/env python3
"""Runs clang-tidy on sources that are compiled alike, as few times as it can.

    lint_together.py OUT SOURCE... -- FLAG...

clang-tidy spends nearly all of its time in headers, so it sees one file that includes all of the
sources. Where they cannot stand in one file (two helpers of one name), it sees each half of them.
Leaves OUT.d (make's rule of what OUT depends on), and OUT if nothing was found.
"""
import pathlib
import subprocess
import sys


def tidy(out, sources, flags):
    """Whether clang-tidy finds nothing; what it finds is printed."""
    if len(sources) == 1:
        command = ["clang-tidy", "--quiet", sources[0]]
    else:
        together = include_all(out, sources)
        parsed = subprocess.run(["clang++", *flags, "-w", "-fsyntax-only", together],
                                stderr=subprocess.DEVNULL)
        if parsed.returncode != 0:
            half = len(sources) // 2
            found = [not tidy(f"{out}.{i}", part, flags)
                     for i, part in enumerate((sources[:half], sources[half:]))]
            return not any(found)
        command = ["clang-tidy", "--quiet", "--checks=-bugprone-suspicious-include", together]
    return subprocess.run([*command, "--", *flags]).returncode == 0


def include_all(out, sources):
    together = pathlib.Path(f"{out}.cc")
    together.write_text("".join(f'#include "{source}"\n' for source in sources))
    return str(together)


def main(out, *arguments):
    at = arguments.index("--")
    sources, flags = arguments[:at], arguments[at + 1:]
    subprocess.run(["clang++", *flags, "-M", "-MT", out, "-MF", f"{out}.d",
                    include_all(out, sources)], check=True)
    if not tidy(out, sources, flags):
        sys.exit(1)
    pathlib.Path(out).touch()


if __name__ == "__main__":
    main(*sys.argv[1:])
