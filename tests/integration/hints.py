"""The commands that hints of errors and problems name, found in the sources."""

import re

from cluster import SOURCE

# What a program puts into its hints, and people into theirs, for which any word does.
WORD = "7"


def literals(text):
    """(position, string) of each string literal of C++, with what stands between joined literals:
    None for nothing, else an expression whose value is only known at run time."""
    for match in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', text):
        literal = match.group(1).replace(r"\n", "\n")
        yield match.start(), match.end(), re.sub(r'\\(["\'\\])', r"\1", literal)


def sentences(text):
    """The strings that a source makes: literals joined by + , << or nothing, expressions as WORD."""
    joined, end = "", None
    for begin, stop, literal in literals(text):
        between = "" if end is None else text[end:begin]
        if end is not None and re.fullmatch(r"\s*", between):
            joined += literal
        elif end is not None and re.fullmatch(r"\s*(?:[+,]|<<)[^;{}?]*(?:[+,]|<<)\s*", between):
            joined += WORD + literal
        else:
            yield joined
            joined = literal
        end = stop
    yield joined


def sources():
    for folder in ("coordinator", "worker", "common", "cli", "sdk/cpp"):
        yield from sorted(p for p in (SOURCE / folder).rglob("*") if p.suffix in (".cc", ".h"))


def told():
    """(command, source) of every `strata ...` that people are told."""
    for path in sources():
        text = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M)
        raw = r'R"\((.*?)\)"'
        for sentence in [*re.findall(raw, text, re.S), *sentences(re.sub(raw, '""', text))]:
            # What `strata status` says to do may be a command alone, the end of which is a name.
            alone = re.fullmatch(r"strata (?:node|model|key|session) [^`\n]*", sentence)
            found = re.findall(r"`(strata [^`]*)`", sentence)
            if alone and path.is_relative_to(SOURCE / "coordinator"):
                found = [sentence + WORD if sentence.endswith(" ") else sentence]
            for command in found:
                yield " ".join(command.split()), str(path.relative_to(SOURCE))
