#!/usr/bin/env python3
"""Writes what packages have beside the programs, out of what --help of each command says:

    make_documents.py BIN_FOLDER OUT_FOLDER

OUT_FOLDER/man/*.gz, bash/NAME, zsh/_NAME, and coordinator.toml and worker.toml, which name every flag
with its default.
"""

import gzip
import os
import pathlib
import re
import sys
import textwrap

import command_tree

PROGRAMS = {"strata": 1, "strata-coordinator": 8, "strata-worker": 8}
# Under systemd, which gives the folder of state.
STATE = {"strata-coordinator": "/var/lib/strata/coordinator", "strata-worker": "/var/lib/strata/worker"}
WHAT = {"strata": "use and look after a Strata cluster",
        "strata-coordinator": "the coordinator of a Strata cluster",
        "strata-worker": "computes layers of models for a Strata cluster"}
SEE = {"strata": "strata-coordinator(8), strata-worker(8)",
       "strata-coordinator": "strata(1), strata-worker(8)",
       "strata-worker": "strata(1), strata-coordinator(8)"}


# ---- man

def roff(text):
    """Text that troff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def man_options(options):
    out = []
    for option in options:
        head = ", ".join(f"\\fB{roff(n)}\\fR" if n.startswith("-") else f"\\fI{roff(n)}\\fR" for n in option.names)
        if option.value:
            head += f" \\fI{roff(option.value)}\\fR"
        out += [".TP", head, roff(option.text) or "\\&"]
    return out


def man_command(command):
    out = []
    for title, options in command.sections:
        if title == "Global options" and len(command.path) > 1:
            continue
        if options:
            out += [f".PP\n{roff(title)}:"] + man_options(options)
    if command.footer:
        out += [".PP", ".nf", roff(command.footer), ".fi"]
    return out


def man(root, version):
    name, section = root.path[0], PROGRAMS[root.path[0]]
    out = [f'.TH {roff(name.upper())} {section} "" "Strata {version}" "Strata"',
           ".SH NAME", f"{roff(name)} \\- {WHAT[name]}",
           ".SH SYNOPSIS", f".B {roff(root.usage)}", ".SH DESCRIPTION", roff(root.about)]
    out += man_command(root)
    below = [c for c in root.walk() if c is not root]
    if below:
        out.append(".SH COMMANDS")
    for command in below:
        out += [f'.SS "{roff(" ".join(command.path))}"', roff(command.about)]
        if not command.children:
            out += [".PP", f".B {roff(command.usage)}"]
        out += man_command(command)
    if name in STATE:
        toml = name.removeprefix("strata-") + ".toml"
        out += [".SH FILES", ".TP", f".I /etc/strata/{toml}", "Flags of the service, with every default.",
                ".TP", f".I {STATE[name]}", "Its state."]
    out += [".SH SEE ALSO", roff(SEE[name])]
    return "\n".join(out) + "\n"


# ---- completion

def words_of(command):
    return [c.path[-1] for c in command.children] + [
        n for o in command.options() for n in o.names if n.startswith("--")]


def bash(root):
    function = "_" + root.path[0].replace("-", "_")
    cases, values = [], {}
    for command in root.walk():
        path = " ".join(command.path)
        cases.append(f'        "{path}") words="{" ".join(words_of(command))}" ;;')
        for option in command.options():
            for name in option.names:
                if option.choices:
                    values[name] = f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$cur")); return'
                elif re.search(r"DIR|PATH|FILE", option.value) or name in ("--config", "--data-dir", "--tls-dir"):
                    values[name] = 'COMPREPLY=($(compgen -f -- "$cur")); return'
                elif option.value:
                    values.setdefault(name, "return")
    groups = [f'        "{" ".join(c.path)}") case "$word" in {"|".join(x.path[-1] for x in c.children)}) path="$path $word" ;; esac ;;'
              for c in root.walk() if c.children]
    files = [f'"{" ".join(c.path)}"' for c in root.walk() if any(p.names[0] == "PATH" for p in c.positionals())]
    newline = "\n"
    return f"""# bash completion of {root.path[0]}, made from its commands.
{function}() {{
    local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} path={root.path[0]} words= word
    case "$prev" in
{newline.join(f"        {name}) {action} ;;" for name, action in sorted(values.items()))}
    esac
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD - 1}}"; do
        case "$path" in
{newline.join(groups) or '        *) ;;'}
        esac
    done
    case "$path" in
{newline.join(cases)}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    case "$path" in
        {"|".join(files) or '""'}) [[ $cur == -* ]] || COMPREPLY+=($(compgen -f -- "$cur")) ;;
    esac
}}
complete -o filenames -F {function} {root.path[0]}
"""


def zsh_quoted(text):
    text = text.split(";")[0]
    return text.replace("\\", "").replace("'", "'\\''").replace("[", "(").replace("]", ")").replace(":", "\\:")


def zsh_function(command):
    name = "_" + "_".join(command.path).replace("-", "_")
    lines = [f"{name}() {{"]
    arguments = []
    for option in command.options():
        for flag in option.names:
            value = ""
            if option.choices:
                value = f":value:({' '.join(option.choices)})"
            elif re.search(r"DIR|PATH|FILE", option.value) or flag in ("--config", "--data-dir"):
                value = ":file:_files"
            elif option.value:
                value = ":value: "
            arguments.append(f"'{flag}[{zsh_quoted(option.text)}]{value}'")
    if command.children:
        commands = " ".join(f"'{c.path[-1]}:{zsh_quoted(c.about)}'" for c in command.children)
        lines += ["    local line state",
                  "    _arguments -C " + " ".join(arguments) + " '1:command:->command' '*::argument:->argument'",
                  '    case "$state" in',
                  f"        command) local -a commands; commands=({commands}); _describe command commands ;;",
                  '        argument) case "$line[1]" in']
        lines += [f"            {c.path[-1]}) _{'_'.join(c.path).replace('-', '_')} ;;" for c in command.children]
        lines += ["        esac ;;", "    esac"]
    else:
        for positional in command.positionals():
            word = positional.names[0]
            arguments.append(f"'::{word}:{'_files' if word == 'PATH' else ' '}'")
        lines.append("    _arguments " + " ".join(arguments))
    return "\n".join([*lines, "}"])


def zsh(root):
    functions = "\n".join(zsh_function(c) for c in root.walk())
    own = "_" + root.path[0].replace("-", "_")
    return f"#compdef {root.path[0]}\n# Made from its commands.\n{functions}\n{own} \"$@\"\n"


# ---- configuration

# What the services' files say beside the defaults.
SET = {"strata-worker": {"coordinator": '"127.0.0.1:7070"'}}
HEAD = {
    "strata-coordinator": """\
Flags of strata-coordinator.service: NAME = VALUE, where a line `# NAME = VALUE` is the default. After a
change: systemctl restart strata-coordinator. An unknown name is refused, with its line. The same by
hand: strata-coordinator --config /etc/strata/coordinator.toml; a flag beats this file.
Certificates for `tls-dir` have to be readable by the group strata.""",
    "strata-worker": """\
Flags of strata-worker.service: NAME = VALUE, where a line `# NAME = VALUE` is the default. After a
change: systemctl restart strata-worker. An unknown name is refused, with its line. For several workers
on a machine copy this file to worker-NAME.toml, and enable strata-worker@NAME.""",
}


def toml_value(option, default):
    """The default as a file has it; None where there is none that could be written."""
    if option.value == "":
        return "false"
    if default is None:
        return '""'
    if option.value == "N":
        return default
    if option.value == "TIME":
        written = re.sub(r"[ ]", "", default).replace(".0", "")
        return f'"{written}"' if written[0].isdigit() else None
    if option.value == "SIZE":
        return f'"{default.replace(" ", "")}"' if re.fullmatch(r"[\d.]+ ?\w+", default) else None
    return f'"{default}"'


def toml(root):
    name = root.path[0]
    out = textwrap.indent(HEAD[name], "# ").splitlines()
    for option in root.options():
        flag = option.names[-1].removeprefix("--")
        if flag in ("help", "version", "config"):
            continue
        text = re.sub(r"\s*\[[A-Z_]+\]", "", option.text)
        match = re.search(r"\s*\(default ([^)]*)\)$", text)
        default = match[1] if match else None
        text = text[:match.start()] if match else text
        value = toml_value(option, default)
        shown = f"{flag} = {value}" if value is not None else f"{flag} = \"\"  # {default}"
        out.append("")
        about = text + (f" ({option.value})" if option.choices else "")
        out += textwrap.wrap(about + ".", 98, initial_indent="# ", subsequent_indent="# ")
        out.append(f"{flag} = {SET[name][flag]}" if flag in SET.get(name, {}) else f"# {shown}")
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    binaries, out = map(pathlib.Path, sys.argv[1:])
    for folder in ("man", "bash", "zsh"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name, section in PROGRAMS.items():
        env = {**os.environ, "COLUMNS": "100"}
        if name in STATE:
            env["STATE_DIRECTORY"] = STATE[name]
        root = command_tree.read(binaries / name, name, env=env)
        version = command_tree.subprocess.run([binaries / name, "--version"], capture_output=True, text=True,
                                              check=True).stdout.split()[-1]
        page = out / "man" / f"{name}.{section}.gz"
        with open(page, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            packed.write(man(root, version).encode())
        (out / "bash" / name).write_text(bash(root))
        (out / "zsh" / f"_{name}").write_text(zsh(root))
        if name in STATE:
            (out / f"{name.removeprefix('strata-')}.toml").write_text(toml(root))


if __name__ == "__main__":
    main()
