"""What holds for every command of the CLI, found by walking --help."""

import json
import re
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, Cluster

# What `path` needs beside its name, by the words of its usage line.
VALUES = {"PATH": RECALL, "ORG/NAME": "org/name", "MODEL": "recall", "NODE": "w0", "ID": "some-id",
          "PROMPT": "Hello", "MESSAGE": "Hello", "ROLE": "client", "NAME": "alice", "STEP": "status", "TOKEN": "strata-join-1.AA",
          "INVENTORY": "inventory.toml"}


def strata(*arguments, coordinator=None):
    command = [BIN / "strata", *map(str, arguments)]
    if coordinator:
        command += ["--coordinator", coordinator]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=GIVE_UP_S)


def leaves(*path):
    """Every command, down to the leaves, and its help."""
    done = strata(*path, "--help")
    assert done.returncode == 0 and done.stdout and not done.stderr, path
    match = re.search(r"^Subcommands:\n((?:  .*\n?)+)", done.stdout, re.M)
    children = re.findall(r"^  (\w[\w-]*)", match.group(1), re.M) if match else []
    below = {}
    for child in children:
        below |= leaves(*path, child)
    return below or {path: done.stdout}


COMMANDS = leaves()
# These work on files alone, or by ssh.
LOCAL = {"cluster init", "cluster certificate", "cluster deploy", "cluster upgrade", "login"}
# This does with what it has where nobody answers; test_support_bundle.py has it.
WITHOUT = {"support-bundle"}
# Exit statuses that say more than that it failed.
FAILED = {"doctor": 2}
NAMES = [" ".join(path) for path in COMMANDS]


def usage(path):
    return re.search(r"^Usage: (.*)", COMMANDS[path], re.M).group(1)


def complete(path):
    """The command with all that it needs."""
    words = re.findall(r"(\[?)([A-Z][A-Z/]*)(\]?)", usage(path).replace("[OPTIONS]", ""))
    unknown = [word for _, word, _ in words if word not in VALUES]
    assert not unknown, f"VALUES in {__file__} has no value for {unknown} of `{usage(path)}`"
    arguments = [VALUES[word] for _, word, _ in words]
    for flag in re.findall(r"^\s+(--[\w-]+)\b.*REQUIRED", COMMANDS[path], re.M):
        arguments += [flag, 4096]
    return [*path, *arguments]


def each(test):
    return pytest.mark.parametrize("path", list(COMMANDS), ids=NAMES)(test)


def each_that_connects(test):
    paths = [path for path in COMMANDS if " ".join(path) not in LOCAL | WITHOUT]
    return pytest.mark.parametrize("path", paths, ids=[" ".join(path) for path in paths])(test)


def test_the_promised_commands_are_there():
    assert set(NAMES) >= {"status", "top", "node list", "node show", "node drain", "node resume",
                          "node remove", "node token", "model add", "model pull", "model list", "model show",
                          "model remove", "model load", "model unload", "model resize",
                          "model check", "plan",
                          "generate", "chat", "session list", "session cancel", "key create",
                          "key list", "key revoke", "audit", "bench", "doctor", "support-bundle", "cluster init", "cluster certificate", "cluster token",
                          "cluster deploy", "cluster upgrade", "cluster authority", "cluster revoke", "login"}


@each
def test_help_says_what_it_takes(path):
    text = COMMANDS[path]
    assert usage(path).startswith("strata " + " ".join(path))
    for flag in ("--help", "--version", "--json", "--coordinator", "--tls-dir"):
        assert flag in text
    done = strata(*path, "--version")
    assert done.returncode == 0 and re.search(r"\d+\.\d+\.\d+", done.stdout)


@each
def test_wrong_use_exits_2_with_one_line(path):
    wrong = [[*complete(path), "--no-such-flag"], [*complete(path), "one", "too", "many"]]
    if " ".join(path) not in LOCAL:
        wrong.append([*complete(path), "--coordinator", "no port"])
    if len(complete(path)) > len(path) and "[" not in usage(path).replace("[OPTIONS]", ""):
        wrong.append(list(path))  # Something is missing.
    for arguments in wrong:
        done = strata(*arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
        assert f"strata {' '.join(path)} --help" in done.stderr, done.stderr


@each_that_connects
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_a_coordinator_that_is_not_there_gives_one_line(path, as_json):
    done = strata(*complete(path), *(["--json"] if as_json else []), coordinator="127.0.0.1:1")
    assert done.returncode == FAILED.get(" ".join(path), 1) and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "127.0.0.1:1" in done.stderr


def test_json_is_one_document_for_every_command(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_workers(2)
        # In an order in which each has what it needs.
        short = ["--max-tokens", 2]
        options = {"generate": ["--token-ids", "1,2", *short], "chat": short,
                   "bench": ["--requests", 2, "--clients", 1, "--prompt-tokens", 4, *short],
                   "top": ["--once"], "plan": ["--nodes", "w0"], "model load": ["--nodes", "w0", "--context", 512]}
        order = ["status", "doctor", "top", "node list", "node show", "node drain", "node resume", "model add",
                 "model list", "model show", "plan", "model load", "generate", "chat",
                 "session list", "bench", "model check", "model resize", "model move", "model unload", "model remove",
                 "key create", "key list", "audit"]
        fails = {"session cancel": "some-id", "model pull": "org/name", "node remove": "w0", "node token": "--authority", "cluster token": "--authority",
                 "cluster authority": "--authority", "cluster revoke": "strata cluster init",
                 "key revoke": "some-id"}
        placed = set(order) | set(fails) | LOCAL | WITHOUT
        assert placed == set(NAMES), (
            f"give {sorted(set(NAMES) - placed)} a place in `order` or `fails`, or in LOCAL if it asks no coordinator; "
            f"there is no command {sorted(placed - set(NAMES))}")
        for name in order:
            path = tuple(name.split())
            arguments = complete(path)
            if name == "generate":
                arguments = list(path) + ["recall"]
            done = strata(*arguments, *options.get(name, []), "--json", coordinator=c.address)
            assert done.returncode == 0, f"{name}: {done.stderr.strip()} (what it wants to succeed goes into `options`)"
            assert isinstance(json.loads(done.stdout), dict), name
        for name, named in fails.items():
            done = strata(*complete(tuple(name.split())), "--json", coordinator=c.address)
            assert done.returncode == 1 and done.stdout == "", name
            assert named in done.stderr.splitlines()[-1], done.stderr
