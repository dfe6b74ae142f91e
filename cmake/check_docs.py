#!/usr/bin/env python3
"""What documents point to exists: links between pages and their anchors, pages in the index, sources that pages
name, constants of TUNING.md, scripts of findings/, and pages with sections that sources name. check_docs.py [ROOT]"""

import pathlib
import re
import sys

INDEX = "docs/README.md"
PAGES = ("*.md", "docs/**/*.md", "deploy/**/*.md", "findings/*.md", "bench/**/*.md", "sdk/**/README.md",
         "examples/**/*.md")
SOURCES = ("cli", "cmake", "common", "coordinator", "proto", "sdk", "text", "worker")
# A page of ours in a comment or a message, and the section that it may name behind it.
NAMED = re.compile(r'docs/((?:internals/)?[A-Za-z]+\.md)(?:(?:, | under )\\?"([^"\\]+)\\?")?')
# A path in backticks that begins with a folder of sources.
PATH = re.compile(r"`((?:%s|bench|deploy|docs|examples|findings|tests)/[\w./-]*[\w/])`" % "|".join(SOURCES))


def text_of(path):
    """The page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.M | re.S)


def slug(heading):
    """The anchor that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def headings(path):
    return re.findall(r"^#+ (.*?)\s*$", text_of(path), re.M)


def anchors_of(path):
    """Of headings that are equal the second has -1 behind it, and so on."""
    seen, anchors = {}, set()
    for anchor in map(slug, headings(path)):
        count = seen[anchor] = seen.get(anchor, -1) + 1
        anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def exists(root, named):
    """A folder, a file, or a file without its ending, as pages call a header and its source."""
    path = root / named
    return path.exists() or any(path.parent.glob(path.name + ".*")) or any(path.parent.glob(path.name + "_*"))


def complaints(root):
    pages = sorted({p for pattern in PAGES for p in root.glob(pattern)})
    anchors = {p: anchors_of(p) for p in pages}
    linked = {root / INDEX}
    for page in pages:
        text = text_of(page)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            other = (page.parent / name).resolve() if name else page
            if not other.exists():
                yield f"{page.relative_to(root)}: {target} does not exist"
                continue
            if page == root / INDEX:
                linked.add(other)
            if anchor and other.suffix == ".md" and anchor not in anchors.get(other, set()):
                yield f"{page.relative_to(root)}: {target} is no heading there"
        for named in PATH.findall(text):
            if not exists(root, named):
                yield f"{page.relative_to(root)}: {named} does not exist"
    for page in pages:
        if page.parent in (root / "docs", root / "docs/internals") and page not in linked:
            yield f"{page.relative_to(root)} is not in {INDEX}"
    for folder in SOURCES:
        for source in sorted((root / folder).rglob("*")):
            if source.suffix not in (".h", ".cc", ".py", ".proto") or source.name == "check_docs_test.py":
                continue
            # A message may be broken over several lines, and so may a comment.
            text = re.sub(r'"\s*\n\s*"|\n\s*(?://|#) ', lambda m: "" if '"' in m.group() else " ", source.read_text())
            for name, section in NAMED.findall(text):
                page = root / "docs" / name
                if not page.exists():
                    if name != "gguf.md":  # ggml's own page.
                        yield f"{source.relative_to(root)}: docs/{name} does not exist"
                elif section and section not in headings(page):
                    yield f"{source.relative_to(root)}: docs/{name} has no heading «{section}»"


def constants_gone(root):
    """Rows of TUNING.md: names in the first column, their file in the second."""
    page = root / "docs/TUNING.md"
    rows = re.findall(r"^\| (`\w+`[^|]*) \| `([^`]+)` \|", page.read_text(), re.M) if page.exists() else []
    for names, file in rows:
        for name in re.findall(r"`(\w+)`", names):
            if (root / file).exists() and not re.search(rf"\b{name}\b", (root / file).read_text()):
                yield f"docs/TUNING.md: {file} has no {name}"


def findings_unlisted(root):
    """Scripts of findings/ that their table lacks, and packages that are not pinned."""
    listed = (root / "findings/README.md").read_text() if (root / "findings").exists() else ""
    for script in sorted(root.glob("findings/*.sh")):
        if f"`{script.stem}`" not in listed:
            yield f"{script.relative_to(root)} is not in findings/README.md"
        installed = re.search(r"pip\" install((?: |\\\n)[^\n]*(?:\n +\S.*)?)", script.read_text())
        packages = [p for p in re.findall(r"[^\s\\]+", installed.group(1)) if not p.startswith("-")] if installed else []
        if not packages or any("==" not in package for package in packages):
            yield f"{script.relative_to(root)} does not pin what it installs"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found = [*complaints(root), *constants_gone(root), *findings_unlisted(root)]
    for complaint in found:
        print(complaint, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
