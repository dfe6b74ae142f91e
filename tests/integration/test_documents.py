"""Manual pages, completion and the services' configuration, which are made from the commands."""

import gzip
import re
import subprocess
import sys
import tomllib

import pytest

from cluster import BIN, GIVE_UP_S, SOURCE

DOCUMENTS = SOURCE / "deploy" / "documents"
sys.path.insert(0, str(DOCUMENTS))
sys.dont_write_bytecode = True
import command_tree  # noqa: E402

PROGRAMS = ["strata", "strata-coordinator", "strata-worker"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    subprocess.run(["/usr/bin/python3", "-B", DOCUMENTS / "make_documents.py", BIN, folder], check=True)
    return folder


def help_of(*words):
    return subprocess.run([BIN / words[0], *words[1:], "--help"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_tree_has_each_flag_of_each_command(program):
    for command in command_tree.read(BIN / program, program).walk():
        flags = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", help_of(*command.path), re.M))
        assert flags == {n for o in command.options() for n in o.names if n.startswith("--")}, command.path
        assert all(option.text for option in command.options()), command.path


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_manual_has_each_command_and_flag(program, made):
    (page,) = (made / "man").glob(f"{program}.?.gz")
    text = gzip.decompress(page.read_bytes()).decode().replace("\\-", "-")
    for command in command_tree.read(BIN / program, program).walk():
        assert command.path[0] == program and (command.path[1:] == () or f'.SS "{" ".join(command.path)}"' in text)
        for option in command.options():
            assert option.names[-1] in text


def completions(made, program, *words):
    """What bash offers for the last word."""
    script = (f'source {made}/bash/{program}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              f'_{program.replace("-", "_")}; printf "%s\\n" "${{COMPREPLY[@]}}"')
    done = subprocess.run(["bash", "-c", script, "bash", program, *words], capture_output=True, text=True,
                          check=True, cwd=SOURCE)
    return done.stdout.split()


def test_bash_completes_commands_flags_values_and_files(made):
    assert set(completions(made, "strata", "mo")) == {"model"}
    assert {"add", "load", "unload"} <= set(completions(made, "strata", "model", ""))
    assert set(completions(made, "strata", "model", "load", "--go")) == {"--goal"}
    assert set(completions(made, "strata", "model", "load", "--goal", "")) == {"latency", "throughput", "capacity"}
    assert "models" in completions(made, "strata", "model", "add", "mod")
    assert set(completions(made, "strata-worker", "--coord")) == {"--coordinator"}


def test_zsh_has_a_function_for_each_command(made):
    text = (made / "zsh" / "_strata").read_text()
    assert text.startswith("#compdef strata\n")
    for command in command_tree.read(BIN / "strata", "strata").walk():
        assert f"_{'_'.join(command.path).replace('-', '_')}() {{" in text


def flags_of(program):
    """{flag: default} by --help."""
    flags = {}
    for entry in re.split(r"\n  (?=-)", help_of(program))[1:]:
        default = re.search(r"\(default ([^)]*)\)", entry)
        flags[entry.split()[0].removeprefix("--")] = default[1] if default else ""
    return {name: default for name, default in flags.items() if name not in ("-h,--help", "version", "config")}


@pytest.mark.parametrize("program", PROGRAMS[1:])
def test_the_configuration_names_each_flag_with_its_default(program, made, tmp_path):
    text = (made / f"{program.removeprefix('strata-')}.toml").read_text()
    lines = re.findall(r"^(# )?([a-z][\w-]*) = (.*)$", text, re.M)
    assert [name for _, name, _ in lines] == list(flags_of(program)), "each once, as --help has them"
    # Each has a comment of its own.
    for block in text.strip().split("\n\n")[1:]:
        assert re.match(r"# [A-Z`]", block) and block.count(" = ") >= 1, block
    # As it is, and with every default that can be written, it changes nothing.
    tomllib.loads(text)
    uncommented = "\n".join(f"{name} = {value}" for commented, name, value in lines
                            if value != '""' and not value.startswith('""  #') and name != "data-dir")
    tomllib.loads(uncommented)
    for content in (text, uncommented):
        file = tmp_path / "config.toml"
        file.write_text(content)
        done = subprocess.run([BIN / program, "--config", file, "--listen", "no address", "--data-dir",
                               tmp_path / "data"], capture_output=True, text=True, timeout=GIVE_UP_S)
        # It came as far as the address, which is wrong.
        assert "no address" in done.stderr and str(file) not in done.stderr, done.stderr


@pytest.mark.parametrize("program", PROGRAMS[1:])
def test_a_key_that_is_no_flag_is_refused_with_its_line(program, tmp_path):
    file = tmp_path / "config.toml"
    file.write_text("# Mine.\nlog-level = \"info\"\nlistne = \"127.0.0.1:0\"\n")
    done = subprocess.run([BIN / program, "--config", file], capture_output=True, text=True, timeout=GIVE_UP_S)
    assert done.returncode == 2 and f"{file}:3: there is no flag 'listne'" in done.stderr
