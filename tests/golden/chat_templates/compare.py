#!/usr/bin/env python3
"""Renders a folder's templates with strata-coordinator and compares with what make_cases.py recorded there.

    python make_cases.py --folder DIR                        # DIR/templates/*.jinja, any ones, and DIR/conversations.py
    python compare.py DIR --coordinator build/bin/strata-coordinator

Exit status 1 when an output differs, when only one of the two refuses, or when an error of raise_exception is another text.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path


def rendered(coordinator, template, cases):
    lines = [json.dumps({key: case[key] for key in ("input", "now") if key in case}) for case in cases]
    out = subprocess.run([coordinator, "template", template, "--jsonl"], input="\n".join(lines) + "\n", text=True,
                         capture_output=True)
    # Not splitlines(), which also ends lines at characters that JSON leaves in strings.
    answers = [json.loads(line) for line in out.stdout.split("\n")[:-1]]
    if len(answers) != len(cases):
        return [{"error": f"no answer; exit status {out.returncode}: {out.stderr.strip()}"}] * len(cases)
    return answers


def difference(case, answer):
    """What is wrong, or nothing."""
    if "output" in case:
        if answer.get("output") != case["output"]:
            return f"expected {case['output']!r}\n     got {answer!r}"
    elif "output" in answer:
        return f"expected the error {case['error']!r}\n     got {answer['output']!r}"
    elif case.get("error_type") == "TemplateError" and case["error"] not in answer["error"]:
        return f"expected the error {case['error']!r}\n     got {answer['error']!r}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--coordinator", required=True)
    parser.add_argument("--show", type=int, default=3, help="differences shown of each template")
    args = parser.parse_args()
    wrong = total = 0
    for path in sorted((args.folder / "cases").glob("*.jsonl")):
        cases = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        answers = rendered(args.coordinator, args.folder / "templates" / f"{path.stem}.jinja", cases)
        found = [(case, text) for case, answer in zip(cases, answers) if (text := difference(case, answer))]
        total += len(cases)
        wrong += len(found)
        for case, text in found[: args.show]:
            print(f"{path.stem}, {case['conversation']}: {text}")
    print(f"{total} cases of {len(list((args.folder / 'templates').glob('*.jinja')))} templates, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
