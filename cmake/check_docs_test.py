#!/usr/bin/env python3
"""check_docs.py finds what it is there for."""

import pathlib
import tempfile
import unittest

import check_docs

INDEX = "# Documents\n\n[A](A.md)\n"


def found(**changed):
    files = {"docs/README.md": INDEX, "docs/A.md": "# A\n\n## One thing\n", "common/a.h": ""}
    files |= {name.replace("__", "/").replace("_md", ".md").replace("_h", ".h"): text for name, text in changed.items()}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return [*check_docs.complaints(root), *check_docs.constants_gone(root),
                *check_docs.findings_unlisted(root)]


class CheckDocs(unittest.TestCase):
    def test_good_pages_pass(self):
        self.assertEqual(found(docs__A_md="# A\n\n## One *thing*: `x`\n\n[x](#one-thing-x) `common/a` [w](https://x.y/#z)\n"), [])

    def test_a_link_to_nothing_is_found(self):
        self.assertEqual(found(docs__A_md="[b](B.md)\n"), ["docs/A.md: B.md does not exist"])

    def test_an_anchor_that_is_no_heading_is_found(self):
        self.assertEqual(found(docs__A_md="# A\n[b](#two)\n"), ["docs/A.md: #two is no heading there"])

    def test_a_comment_in_a_block_of_code_is_no_heading(self):
        self.assertEqual(len(found(docs__A_md="# A\n[b](#two)\n```\n# two\n```\n")), 1)

    def test_a_page_outside_the_index_is_found(self):
        self.assertEqual(found(docs__B_md="# B\n"), ["docs/B.md is not in docs/README.md"])

    def test_a_source_that_is_gone_is_found(self):
        self.assertEqual(found(docs__A_md="`common/b.h`\n"), ["docs/A.md: common/b.h does not exist"])

    def test_a_page_or_section_that_a_source_names_is_looked_for(self):
        self.assertEqual(found(common__a_h='// docs/A.md, "One\n// thing".\n// docs/B.md\n// docs/A.md, "Two"\n'),
                         ["common/a.h: docs/B.md does not exist", "common/a.h: docs/A.md has no heading «Two»"])

    def test_a_constant_that_is_gone_is_found(self):
        self.assertEqual(found(docs__README_md="[a](A.md) [t](TUNING.md)\n", common__a_h="int kOne = 1;\n",
                               docs__TUNING_md="| `kOne`, `kTwo` | `common/a.h` | it |\n"),
                         ["docs/TUNING.md: common/a.h has no kTwo"])

    def test_a_finding_that_is_not_listed_or_pins_nothing_is_found(self):
        pinned = '"$folder/venv/bin/pip" install -q \\\n  one==1.0 "two[x]==2"\n"$folder/venv/bin/python"\n'
        self.assertEqual(found(**{"findings/README.md": "`a`\n", "findings/a.sh": pinned}), [])
        self.assertEqual(found(**{"findings/README.md": "\n", "findings/a.sh": pinned.replace("==1.0", "")}),
                         ["findings/a.sh is not in findings/README.md", "findings/a.sh does not pin what it installs"])


if __name__ == "__main__":
    unittest.main()
