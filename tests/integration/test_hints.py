"""What errors and problems tell people to type works when it is typed."""

import re
import shlex
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, SOURCE, Cluster, wait_until

# Nobody listens there: a command that is understood fails for want of a coordinator, with status 1.
NOWHERE = "127.0.0.1:9"
# What a program puts into its hints, and people into theirs, for which any word does.
WORD = "7"


def literals(text):
    """(position, string) of each string literal of C++, with what stands between joined literals:
    None for nothing, else an expression whose value is only known at run time."""
    for match in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', text):
        literal = match.group(1).replace(r"\n", "\n")
        yield match.start(), match.end(), re.sub(r'\\(["\'\\])', r"\1", literal)


def sentences(text):
    """The strings that a source makes: literals joined by + , or nothing, expressions as WORD."""
    joined, end = "", None
    for begin, stop, literal in literals(text):
        between = "" if end is None else text[end:begin]
        if end is not None and re.fullmatch(r"\s*", between):
            joined += literal
        elif end is not None and re.fullmatch(r"\s*[+,][^;{}?]*[+,]\s*", between):
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
        for sentence in sentences(text):
            # What `strata status` says to do may be a command alone, the end of which is a name.
            alone = re.fullmatch(r"strata (?:node|model|key|session) [^`\n]*", sentence)
            found = re.findall(r"`(strata [^`]*)`", sentence)
            if alone and path.parts[-3] == "coordinator":
                found = [sentence + WORD if sentence.endswith(" ") else sentence]
            for command in found:
                yield " ".join(command.split()), str(path.relative_to(SOURCE))


def commands():
    """Each command once, with one place where it is said."""
    return sorted({command: where for command, where in told()}.items())


@pytest.mark.parametrize("command, where", commands(), ids=lambda v: v)
def test_every_command_that_a_hint_names_is_understood(command, where):
    words = shlex.split(command)[1:]
    words = [WORD if word == "N" else word for word in words]
    # What stands for the name of a command, and of a group of them, in the text of --help.
    words = words[words.index("COMMAND") + 1:] if "COMMAND" in words else words
    done = subprocess.run([BIN / "strata", "--coordinator", NOWHERE, *words],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=GIVE_UP_S)
    # 2 is wrong usage.
    assert done.returncode in (0, 1), f"{where}: {command}\n{done.stderr}"


def test_hints_are_found_where_they_are():
    named = {command for command, _ in commands()}
    assert {"strata node list", f"strata model load {WORD}", f"strata model unload {WORD}"} <= named
    assert len(named) > 30, named


def mended(cluster, *command):
    """Runs a command that fails, what its hint names, and the command again, which then works."""
    _, err, status = cluster.run(*command, check=False)
    assert status == 1, err
    hinted = re.findall(r"`(strata [^`]*)`", err)
    assert hinted, err
    for hint in hinted:
        cluster.run(*shlex.split(hint)[1:])
    return cluster.run(*command)


def test_what_hints_name_mends_what_they_are_about(tmp_path):
    with Cluster(tmp_path) as cluster:
        cluster.start_worker("w0")
        cluster.run("model", "add", RECALL, "--name", "recall")
        generate = ["generate", "recall", "--token-ids", "1,2", "--max-tokens", 2]
        mended(cluster, *generate)  # It is not loaded.
        # A problem that is nothing but a command.
        cluster.start_worker("w1")
        wait_until(lambda: cluster.json("status")["problems"], "w1 holds nothing yet")
        (problem,) = cluster.json("status")["problems"]
        assert "w1" in problem["what"]
        assert problem["do"] == "strata model load recall"
        cluster.run(*shlex.split(problem["do"])[1:])
        mended(cluster, "model", "remove", "recall")  # It is loaded.
        # Another model has the name.
        cluster.run("model", "add", RECALL, "--name", "recall")
        tiny = SOURCE / "tests" / "golden" / "models" / "llama"
        mended(cluster, "model", "add", tiny, "--name", "recall")
        cluster.run("model", "load", "recall", "--nodes", "w1")
        cluster.workers["w1"].stop()
        wait_until(lambda: cluster.node("w1")["state"] == "lost", "w1 is gone")
        mended(cluster, "node", "remove", "w1")  # A model has layers on it.


def test_status_never_says_to_look_at_status():
    # Errors of the coordinator and of workers may become problems of `strata status`.
    # Help says where it is; the CLI, the SDK and HTTP are no part of what it shows.
    apart = ("cli", "sdk", "coordinator/http", "coordinator/main.cc")
    assert not [where for command, where in told()
                if command == "strata status" and not where.startswith(apart)]
