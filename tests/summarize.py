#!/usr/bin/env python3
"""Adds up the results of a test run and prints the closing line.

    summarize.py FOLDER [--integration] [--asan]    # GoogleTest's and pytest's XML, and ctest.junit
    summarize.py FOLDER --again                     # pytest's names of what failed, if a few did

--asan adds the results in FOLDER/asan. A test binary that died before it could write its results counts as one failure. Tests on real
processes that failed and are run a second time (again.xml) count by that run, and are named.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count(path):
    """(passed, failed, skipped, names of what failed) of one result file."""
    passed = failed = skipped = 0
    names = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
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
            for case in ElementTree.parse(path).getroot().iter("testcase")
            if case.find("failure") is not None or case.find("error") is not None]


def results_of(folder, flags):
    """(passed, failed, skipped, names of what failed) of one folder's files."""
    passed = failed = skipped = 0
    names = []
    written = set()
    again = folder / "again.xml"
    for path in sorted(folder.glob("*.xml")):
        if path == again:
            continue
        p, f, s, n = count(path)
        if path.stem == "integration" and again.exists():
            p_again, f, _, still = count(again)
            p += p_again
            for name in n:
                if name not in still:
                    print(f"FAILED AT FIRST, PASSED ALONE {name}", file=sys.stderr)
            n = still
        passed, failed, skipped, names = passed + p, failed + f, skipped + s, names + n
        written.add(path.stem)
    junit = folder / "ctest.junit"
    if junit.exists():
        failing = {path.stem for path in folder.glob("*.xml") if count(path)[1]}
        for case in ElementTree.parse(junit).getroot().iter("testcase"):
            reason = case.find("skipped")
            # And not because its program is missing.
            if reason is not None and reason.get("message", "").startswith("SKIP"):
                skipped += 1
                continue
            if case.get("status") == "run" and case.get("name") not in written:
                passed += 1  # Not one of GoogleTest's.
                continue
            # Died, was not run, or failed at its end (a sanitizer's report) with all cases passed.
            if case.get("status") != "run" and case.get("name") not in failing:
                failed += 1
                names.append(f"{case.get('name')} (its process failed)")
    else:
        failed += 1
        names.append("the unit tests were not run")
    if "--integration" in flags and "integration" not in written:
        failed += 1
        names.append("the tests on real processes were not run")
    return passed, failed, skipped, names


def main(folder, *flags):
    folder = pathlib.Path(folder)
    if "--again" in flags:
        names = failed_on_processes(folder)
        print("\n".join(names if len(names) <= FEW else []))
        return 0
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
