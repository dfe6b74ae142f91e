"""README's «Two machines», typed word for word on two bare Debians with systemd: each command is printed by one before."""

import os
import re

import pytest

import debian_machines
from cluster import SOURCE
from test_packages import of_services, packages  # noqa: F401: a fixture

pytestmark = [pytest.mark.long,
              pytest.mark.skipif(bool(debian_machines.missing()), reason=debian_machines.missing() or "-"),
              pytest.mark.skipif(os.environ.get("STRATA_PRESET", "release") != "release", reason="packages are of release builds")]


def commands():
    """[(machine, command)] as the page has them."""
    text = (SOURCE / "README.md").read_text()
    section = re.search(r"^## Two machines\n(.*?)^## ", text, re.M | re.S)[1]
    block = re.search(r"^```\n(.*?)^```", section, re.M | re.S)[1]
    return [re.match(r"(\w+)#\s+(.*)", line).groups() for line in block.splitlines()]


def test_the_page_has_six_commands():
    assert len(commands()) <= 6


def test_two_bare_machines_answer_together_by_the_page_alone(packages, tmp_path):  # noqa: F811
    with debian_machines.Machines(tmp_path / "m", ["first", "second"], of_services(packages)) as machines:
        said = ""
        for i, (machine, command) in enumerate(commands()):
            begin = command.split("…")[0]
            # Each is printed by what ran before, but for the first, and for asking, which is one's own question.
            if command != begin:
                command = re.search(rf"^\s*({re.escape(begin)}\S+)", said, re.M)[1]
            elif i > 0:
                part = command.split('"')[0].strip()
                assert i == 1 or part in said, f"{part!r} is not in\n{said}"
            done = machines.run(machine, f"cd /debs && export DEBIAN_FRONTEND=noninteractive; "
                                f"{command.replace('apt install', 'apt install -q -y')}")
            said += done.stdout + done.stderr
        assert "Paris" in said, said
        placed = machines.run("first", "strata model show recall --json").stdout
        assert '"first"' in placed and '"second"' in placed, placed
        # What holds without them is in no plain text.
        config = machines.run("second", "cat /etc/strata/worker.toml").stdout
        assert re.search(r'^tls-dir = "/etc/strata/worker-tls"$', config, re.M), config
        listens = machines.run("first", "cat /etc/strata/coordinator.toml").stdout
        assert re.search(r'^listen = "0.0.0.0:7070"$', listens, re.M), listens
        again = machines.run("first", "strata cluster init", check=False)
        assert again.returncode == 1 and "strata node token" in again.stderr, again.stderr
        # After a boot both are there again by themselves.
        assert machines.run("second", "systemctl is-enabled strata-worker").stdout == "enabled\n"
        assert machines.run("first", "systemctl is-enabled strata-coordinator strata-worker").stdout == "enabled\nenabled\n"
