#!/usr/bin/env python3
"""Adds up the results of a test run and prints the closing line.

    summarize.py FOLDER [--integration] [--asan]    # GoogleTest's and pytest's XML, and ctest.junit
    summarize.py FOLDER --again                     # pytest's names of what failed, if a few did
    summarize.py FOLDER --few                       # exits with 0 if a few unit-test programs failed

--asan adds the results in FOLDER/asan. A test binary that died before it could write its results counts as one failure. What failed
and was run a second time, alone (FOLDER/again: whole programs of unit tests, single tests on real processes), counts by that run, and is
named.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def cases_of(path):
    """The test cases of a result file; None where it was not written to its end, as on a full disk."""
    try:
        return list(ElementTree.parse(path).getroot().iter("testcase"))
    except ElementTree.ParseError:
        return None


def count(path):
    """(passed, failed, skipped, names of what failed) of one result file."""
    passed = failed = skipped = 0
    names = []
    cases = cases_of(path)
    if cases is None:
        return 0, 1, 0, [f"{path.name} (was not written to its end)"]
    for case in cases:
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
            names.append(name)
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped, names


# More than so many failures are no accident, and are not run again.
FEW = 5


def failed_on_processes(folder):
    """pytest's names (FILE::TEST) of the tests on real processes that failed."""
    path = folder / "integration.xml"
    if not path.exists():
        return []
    return [f"{case.get('classname').replace('.', '/')}.py::{case.get('name')}"
            for case in cases_of(path) or []
            if case.find("failure") is not None or case.find("error") is not None]


def programs(folder):
    """What ctest says of each program: {name: case}."""
    path = folder / "ctest.junit"
    return {case.get("name"): case for case in (cases_of(path) or [] if path.exists() else [])}


def few_programs_failed(folder):
    failed = [name for name, case in programs(folder).items() if case.get("status") == "fail"]
    return 0 < len(failed) <= FEW


def results_of(folder, flags):
    """(passed, failed, skipped, names of what failed) of one folder's files."""
    again = folder / "again"
    counts = {path.stem: count(path) for path in sorted(folder.glob("*.xml"))}
    second = {path.stem: count(path) for path in sorted(again.glob("*.xml"))}
    cases = programs(folder)
    cases_again = programs(again)
    passed_alone = set()
    named = set()  # Programs of which single tests failed.
    for stem, (p, f, s, names) in second.items():
        first = counts.get(stem, (0, 0, 0, []))
        passed_alone.update(set(first[3]) - set(names))
        if first[1]:
            named.add(stem)
        # The second run has all of a program's tests, but only those on real processes that failed.
        counts[stem] = (first[0] + p, f, first[2], names) if stem == "integration" else (p, f, s, names)
    for name, case in cases_again.items():
        if case.get("status") == "run" and name not in named:
            passed_alone.add(f"{name} (its process)")
    for name in sorted(passed_alone):
        print(f"FAILED AT FIRST, PASSED ALONE {name}", file=sys.stderr)

    passed = sum(p for p, _, _, _ in counts.values())
    failed = sum(f for _, f, _, _ in counts.values())
    skipped = sum(s for _, _, s, _ in counts.values())
    names = [name for _, _, _, failing in counts.values() for name in failing]
    for name, case in {**cases, **cases_again}.items():
        reason = case.find("skipped")
        # And not because its program is missing.
        if reason is not None and reason.get("message", "").startswith("SKIP"):
            skipped += 1
        elif case.get("status") == "run":
            passed += name not in counts  # Not one of GoogleTest's.
        elif name not in counts or not counts[name][1]:
            # Died, was not run, or failed at its end (a sanitizer's report) with all cases passed.
            failed += 1
            names.append(f"{name} (its process failed)")
    if not cases:
        failed += 1
        names.append("the unit tests were not run")
    if "--integration" in flags and "integration" not in counts:
        failed += 1
        names.append("the tests on real processes were not run")
    return passed, failed, skipped, names


def main(folder, *flags):
    folder = pathlib.Path(folder)
    if "--again" in flags:
        names = failed_on_processes(folder)
        print("\n".join(names if len(names) <= FEW else []))
        return 0
    if "--few" in flags:
        return 0 if few_programs_failed(folder) else 1
    passed, failed, skipped, names = results_of(folder, flags)
    if "--asan" in flags:
        p, f, s, n = results_of(folder / "asan", ())
        passed, failed, skipped = passed + p, failed + f, skipped + s
        names += [f"{name} (under address sanitizer)" for name in n]
    for name in names:
        print(f"FAILED {name}", file=sys.stderr)
    line = f"{passed} passed, {failed} failed"
    print(line + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
