"""The commands of a program, as --help of each says them."""

import dataclasses
import re
import subprocess


@dataclasses.dataclass
class Option:
    """A flag, or a positional argument."""
    names: list  # ["-h", "--help"]; of a positional its word, ["MODEL"].
    value: str  # "SIZE", "on|off"; "" where it takes none.
    text: str
    required: bool = False

    @property
    def choices(self):
        return self.value.split("|") if "|" in self.value else []


@dataclasses.dataclass
class Command:
    path: tuple  # ("strata", "model", "add")
    about: str
    usage: str
    sections: list  # (title, [Option])
    children: list  # [Command]
    footer: str = ""

    def options(self):
        return [o for title, options in self.sections for o in options if title != "Positionals"]

    def positionals(self):
        return [o for title, options in self.sections for o in options if title == "Positionals"]

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()


# Commands of the services' programs, which their --help names in its last lines only.
BESIDE = {"strata-coordinator": ("tokenize", "detokenize", "template", "new-admin-key"), "strata-worker": ("bench",)}

SECTION = re.compile(r"^([A-Z].*):$")


def entry(line):
    """An option that begins on this line, or None."""
    match = re.match(r"^  (\S.*)$", line)
    if not match:
        return None
    head, _, text = match.group(1).partition("  ") if "  " in match.group(1) else (match.group(1), "", "")
    words = head.split()
    # CLI11 leaves one space where the head fills its column.
    known = 1
    if len(words) > 1 and words[0].startswith("-") and (
            re.fullmatch(r"[A-Z][A-Z/:]*|\S*[|,:]\S*|DIR|N", words[1])):
        known = 2
    required = "REQUIRED" in words[known:known + 1]
    rest = [word for word in words[known + required:] if word != "..."]
    return Option(names=words[0].split(","), value=words[1] if known == 2 else "",
                  text=" ".join(rest + [text.strip()]).strip(), required=required)


def parse(path, text):
    """(Command without children, names and words of its subcommands)."""
    about, usage, sections, children, footer = [], "", [], [], []
    title = None
    for line in text.splitlines():
        heading = SECTION.match(line)
        if line.startswith("Usage: "):
            usage, title = line.removeprefix("Usage: "), ""
        elif heading and heading[1] not in ("Examples", "Offline"):
            title = heading[1]
            if title != "Subcommands":
                sections.append((title, []))
        elif title is None:
            about.append(line)
        elif title and line.startswith("  ") and title == "Subcommands":
            if match := re.match(r"^  (\w[\w-]*)\s+(.*)$", line):
                children.append((match[1], match[2]))
        elif title and line.startswith("    "):
            if sections[-1][1]:
                option = sections[-1][1][-1]
                option.text = (option.text + " " + line.strip()).strip()
        elif title and line.startswith("  ") and (option := entry(line)):
            sections[-1][1].append(option)
        elif line.strip() or footer:
            title = ""
            footer.append(line)
    return Command(path, " ".join(about).strip(), usage, sections, [], "\n".join(footer).strip()), children


def plain(path, text):
    """A command whose help is prose: its usage, its flags, and all of it as it stands."""
    usage = next(line for line in text.splitlines() if line.startswith(" ".join(path)))
    options = [o for o in map(entry, re.findall(r"^  --.*$", text, re.M)) if o]
    return Command(path, "", usage, [("Options", options)], [], text.strip())


def read(binary, name, *words, env=None):
    """The command NAME WORDS... of the program and all below it."""
    done = subprocess.run([binary, *words, "--help"], capture_output=True, text=True, check=True, env=env)
    if "\nUsage: " not in "\n" + done.stdout:
        return plain((name, *words), done.stdout)
    command, children = parse((name, *words), done.stdout)
    names = [child for child, _ in children] + list(() if words else BESIDE.get(name, ()))
    command.children = [read(binary, name, *words, child, env=env) for child in names]
    return command
