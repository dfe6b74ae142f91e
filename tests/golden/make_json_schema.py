#!/usr/bin/env python3
"""Writes tests/golden/json_schema/draft2020_12.jsonl from the public JSON Schema test suite.

usage: make_json_schema.py [JSONSCHEMA.tar.gz]

The suite (its LICENSE lies beside the result) is in the source package of jsonschema 4.26.0, which pip
fetches where no file is given. A line of the result is a group: `keyword` (the suite's file), `about`,
`schema` as text, and `tests`, each `[about, instance as text, whether it is valid]`. Files outside of
`optional/` are taken, as JSON has them and without blanks.
"""
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

VERSION = "4.26.0"
TARGET = pathlib.Path(__file__).parent / "json_schema" / "draft2020_12.jsonl"


def fetched(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "jsonschema",
                    "-d", folder, f"jsonschema=={VERSION}"], check=True)
    return next(pathlib.Path(folder).glob("jsonschema-*.tar.gz"))


def text(value):
    return json.dumps(value, separators=(",", ":"))


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else fetched(folder)
        lines = []
        with tarfile.open(path) as package:
            files = {}
            for member in package.getmembers():
                parts = pathlib.PurePosixPath(member.name).parts
                if parts[1:4] == ("json", "tests", "draft2020-12") and len(parts) == 5 and parts[4].endswith(".json"):
                    files[parts[4][:-5]] = json.load(package.extractfile(member))
        for name, groups in sorted(files.items()):
            for group in groups:
                lines.append(text({
                    "keyword": name, "about": group["description"], "schema": text(group["schema"]),
                    "tests": [[test["description"], text(test["data"]), test["valid"]] for test in group["tests"]]}))
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("".join(line + "\n" for line in lines))
    print(f"{len(lines)} groups, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
