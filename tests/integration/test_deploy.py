"""`strata cluster deploy` and `upgrade` over ssh, to three bare Debians with systemd."""

import json
import os
import re
import shutil
import subprocess
import threading
import time

import pytest

import debian_machines
import older_version
from cluster import BIN
from test_packages import newer, of_services, packages  # noqa: F401: a fixture

pytestmark = [pytest.mark.long,
              pytest.mark.skipif(bool(debian_machines.missing()), reason=debian_machines.missing() or "-"),
              pytest.mark.skipif(os.environ.get("STRATA_PRESET", "release") != "release", reason="packages are of release builds")]

NAMES = ["alpha", "beta", "gamma"]
STREAMS = 8


def inventory(machines, packages_in, settings=""):
    text = f'name = "home"\npackages = "{packages_in}"\n[coordinator]\nmachine = "alpha"\n'
    for name in NAMES:
        text += f'[machines.{name}]\nssh = "root@{machines.address(name)}"\nmemory = "1GiB"\nthreads = 1\n{settings}'
    return text


def strata(machines, *arguments, check=True):
    done = subprocess.run([BIN / "strata", *map(str, arguments)], capture_output=True, text=True, timeout=1500,
                          env={**os.environ, "PATH": f"{machines.bin}:{os.environ['PATH']}"})
    if check:
        assert done.returncode == 0, done.stderr
    return done


class Asking(threading.Thread):
    """Asks for answers one after another and keeps what came; asks again where a refusal says so."""

    def __init__(self, command, environment, stop):
        super().__init__()
        self.command, self.environment, self.stop = command, environment, stop
        self.answers, self.failures, self.again = [], [], 0

    def run(self):
        while not self.stop.is_set():
            done = subprocess.run(self.command, capture_output=True, text=True, env=self.environment)
            if done.returncode == 0:
                self.answers.append(done.stdout)
            elif re.search(older_version.SENT_AGAIN, done.stderr):
                self.again += 1
                time.sleep(0.2)
            else:
                self.failures.append(done.stderr)


def test_three_machines_are_deployed_twice_and_upgraded_under_streams(packages, tmp_path):  # noqa: F811
    with debian_machines.Machines(tmp_path / "m", NAMES, of_services(packages)) as machines:
        page = tmp_path / "inventory.toml"
        first = tmp_path / "first"
        first.mkdir()
        for deb in of_services(packages):
            shutil.copy(deb, first)
        page.write_text(inventory(machines, "first"))
        dry = json.loads(strata(machines, "cluster", "deploy", page, "--dry-run", "--json").stdout)
        assert dry["done"] is False and len(dry["steps"]) == 9, dry
        assert machines.run("beta", "ls /usr/bin/strata-worker", check=False).returncode != 0, "a dry run changes nothing"
        strata(machines, "cluster", "deploy", page)
        nodes = json.loads(machines.run("alpha", "strata node list --json").stdout)["nodes"]
        assert sorted(node["name"] for node in nodes) == NAMES
        assert {node["version"] for node in nodes} == {"0.1.0"}
        again = strata(machines, "cluster", "deploy", page, "--json")
        assert json.loads(again.stdout) == {"steps": [], "done": True}, again.stdout
        # A flag that changes is set on its machine alone, and what runs there starts anew.
        lives = {node["name"]: node["incarnation"] for node in nodes}
        page.write_text(inventory(machines, "first").replace("threads = 1\n[machines.gamma]", "threads = 2\n[machines.gamma]"))
        steps = json.loads(strata(machines, "cluster", "deploy", page, "--json").stdout)["steps"]
        assert [(step["machine"], step["step"]) for step in steps] == [
            ("beta", "set threads = 2 in /etc/strata/worker.toml"), ("beta", "restart strata-worker")]
        nodes = json.loads(machines.run("alpha", "strata node list --json").stdout)["nodes"]
        assert [node["name"] for node in nodes if node["incarnation"] != lives[node["name"]]] == ["beta"]

        machines.run("alpha", "strata model add /usr/share/strata/models/recall >&2; "
                              "strata model load recall --goal throughput >&2")
        # An operator's certificate for here.
        token = json.loads(machines.run("alpha", f"strata cluster token operator --json --host {machines.address('alpha')}").stdout)
        home = tmp_path / "home"
        home.mkdir()
        environment = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
        subprocess.run(machines.here(BIN / "strata", "login", token["token"], "--name", "tester"), env=environment, check=True,
                       capture_output=True)
        asking = machines.here(BIN / "strata", "generate", "recall", "Once upon a time", "--max-tokens", 200, "--ignore-eos",
                               "--temperature", 0)
        alone = subprocess.run(asking, env=environment, capture_output=True, text=True, check=True).stdout
        second = tmp_path / "second"
        second.mkdir()
        for deb in of_services(packages):
            newer(deb, second)
        page.write_text(page.read_text().replace('"first"', '"second"'))
        refused = strata(machines, "cluster", "deploy", page, check=False)
        assert refused.returncode == 1 and "strata cluster upgrade" in refused.stderr, refused.stderr
        stop = threading.Event()
        clients = [Asking(asking, environment, stop) for _ in range(STREAMS)]
        for client in clients:
            client.start()
        time.sleep(2)
        try:
            upgraded = strata(machines, "cluster", "upgrade", page)
        finally:
            stop.set()
            for client in clients:
                client.join()
        print(upgraded.stderr, "answers:", sum(len(client.answers) for client in clients), "sent again:",
              sum(client.again for client in clients))
        for client in clients:
            assert not client.failures, client.failures
            assert client.answers and set(client.answers) == {alone}
        for name in NAMES:
            assert machines.run(name, "dpkg-query -W -f '${Version}' strata-worker").stdout == "0.1.1"
        nodes = json.loads(machines.run("alpha", "strata node list --json").stdout)["nodes"]
        assert {node["state"] for node in nodes} <= {"ready", "serving"}, "none stays drained"
        assert "nothing differs" in strata(machines, "cluster", "upgrade", page).stdout
        # A machine that is not there is named, and what would mend it.
        page.write_text(page.read_text() + f'[machines.delta]\nssh = "root@{debian_machines.NET}.99"\n')
        away = strata(machines, "cluster", "deploy", page, check=False)
        assert away.returncode == 1 and "delta" in away.stderr and "ssh root@" in away.stderr, away.stderr
