"""What errors, problems and help tell people to type is understood as it is typed. That it works
where it is said is test_hints_in_their_states.py's."""

import shlex
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S
from hints import WORD, told

# Nobody listens there: a command that is understood fails for want of a coordinator, with status 1.
NOWHERE = "127.0.0.1:9"


def commands():
    """Each command once, with one place where it is said."""
    return sorted({command: where for command, where in told()}.items())


@pytest.mark.parametrize("command, where", commands(), ids=lambda v: v)
def test_every_command_that_a_hint_names_is_understood(command, where, tmp_path):
    words = shlex.split(command)[1:]
    words = [WORD if word in ("N", "IDS") else word for word in words]
    # What stands for the name of a command, and of a group of them, in the text of --help.
    words = words[words.index("COMMAND") + 1:] if "COMMAND" in words else words
    done = subprocess.run([BIN / "strata", "--coordinator", NOWHERE, *words],
                          cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=GIVE_UP_S)
    # 2 is wrong usage; of the doctor, that it could not look.
    could_not_look = words[0] == "doctor" and "--help" not in done.stderr
    assert done.returncode in (0, 1) or could_not_look, f"{where}: {command}\n{done.stderr}"


def test_hints_are_found_where_they_are():
    named = {command for command, _ in commands()}
    assert {"strata node list", f"strata model load {WORD}", f"strata model unload {WORD}"} <= named
    assert len(named) > 30, named


def test_status_never_says_to_look_at_status():
    # Errors of the coordinator and of workers may become problems of `strata status`.
    # Help says where it is; the CLI, the SDK and HTTP are no part of what it shows.
    apart = ("cli", "sdk", "coordinator/http", "coordinator/serve_flags.cc")
    assert not [where for command, where in told()
                if command == "strata status" and not where.startswith(apart)]
