"""A machine joins a coordinator that it finds on the local network (DNS-SD). The long test has avahi-daemon on hosts of
their own; the others a program that answers as avahi-browse does."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, Process, stop, wait_until
from test_joining import House


def authority_of(files):
    """SHA-256 of the authority's certificate, as tokens and announcements have it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert((files / "authority/ca.pem").read_text())).hexdigest()


def port_of(address):
    return address.rsplit(":", 1)[1]


def answer(house, authority, address="127.0.0.1", interface="e0"):
    """What avahi-browse writes of a coordinator."""
    return (f"+;{interface};IPv4;home\\032on\\032va;_strata._tcp;local\n"
            f"=;{interface};IPv4;home\\032on\\032va;_strata._tcp;local;va.local;{address};{port_of(house.join_address)};"
            f'"port={port_of(house.address)}" "ca={authority}"\n')


@pytest.fixture
def house(tmp_path):
    with contextlib.ExitStack() as stack:
        (tmp_path / "own").mkdir()
        house = House(tmp_path / "own")
        stack.callback(lambda: stop(house.processes))
        yield house


def program(folder, name, script):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return folder


def join(house, token, answers, folder, status=0):
    """strata-worker join where avahi-browse writes `answers`."""
    (folder / "answers").write_text(answers)
    programs = program(folder / "programs", "avahi-browse",
                       f'echo "$@" >>{folder}/asked\ncat {folder}/answers\n'
                       + (f"echo 'Daemon not running' >&2\nexit {status}\n" if status else ""))
    return subprocess.run([BIN / "strata-worker", "join", "--discover", token, "--name", "w0", "--hosts", "127.0.0.1",
                           "--config-dir", house.folder / "w0"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=GIVE_UP_S, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})


def test_a_machine_joins_where_the_network_says_whatever_the_token_does(house, tmp_path):
    token = house.token()
    before = house.address
    house.coordinator.stop()
    house.start_coordinator()  # At other ports: the token's address is of no use any more.
    assert house.address != before
    own = authority_of(house.files)
    (tmp_path / "other").mkdir()
    other = House(tmp_path / "other")
    try:
        # One of another cluster, which also poses as the token's.
        done = join(house, token, answer(other, "b" * 64) + answer(other, own) + answer(house, own), tmp_path)
        assert done.returncode == 0, done.stderr
        assert not re.search("token", other.coordinator.text()), "it was told nothing"
    finally:
        stop(other.processes)
    assert "by avahi-daemon" in done.stdout
    assert f"127.0.0.1:{port_of(other.join_address)} (e0), of another authority, bbbb" in done.stdout
    assert f"127.0.0.1:{port_of(house.join_address)} (e0), of the token's authority" in done.stdout
    assert f"at {house.address}" in done.stdout
    assert f'coordinator = "{house.address}"' in (house.folder / "w0/worker.toml").read_text()
    assert (tmp_path / "asked").read_text() == "--resolve --parsable --terminate --no-db-lookup _strata._tcp\n"
    house.start_worker("w0")


def test_a_person_logs_in_where_the_network_says(house, tmp_path):
    made = house.strata("cluster", "token", "client")
    token = made.stdout.split()[2]
    house.coordinator.stop()
    house.start_coordinator()
    (tmp_path / "answers").write_text(answer(house, authority_of(house.files)))
    programs = program(tmp_path / "programs", "avahi-browse", f"cat {tmp_path}/answers\n")
    done = subprocess.run([BIN / "strata", "login", token, "--discover", "--dir", tmp_path / "me", "--json"], capture_output=True, text=True,
                          timeout=GIVE_UP_S, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert "of the token's authority" in done.stderr and json.loads(done.stdout)["coordinator"] == house.address
    assert (tmp_path / "me/coordinator").read_text() == house.address + "\n"


def test_who_finds_nobody_is_told_whom_it_asked_and_what_to_do(house, tmp_path):
    token = house.token()
    done = join(house, token, "", tmp_path)
    assert done.returncode == 1 and "no coordinator answered on" in done.stderr and "--announce" in done.stderr
    assert "nobody answered" in done.stdout
    assert len((tmp_path / "asked").read_text().splitlines()) == 3, "it asks again"
    done = join(house, token, answer(house, "b" * 64), tmp_path)
    assert done.returncode == 1 and "1 answer, none of the token's authority" in done.stderr
    assert "of another authority" in done.stdout
    done = join(house, token, "", tmp_path, status=1)
    assert done.returncode == 1 and "Daemon not running" in done.stderr and "avahi-daemon" in done.stderr
    (tmp_path / "none").mkdir()
    done = subprocess.run([BIN / "strata-worker", "join", token, "--discover", "--config-dir", tmp_path / "w1"],
                          capture_output=True, text=True, timeout=GIVE_UP_S, env={**os.environ, "PATH": str(tmp_path / "none")})
    assert done.returncode == 1 and "install avahi-utils" in done.stderr
    assert not (house.folder / "w0/worker.toml").exists() and not (tmp_path / "w1/worker.toml").exists()
    # What it was not told was wrong: the token is as good as before.
    assert house.join(token).returncode == 0


def test_a_coordinator_is_announced_while_it_runs_and_asked_to(house, tmp_path):
    programs = program(tmp_path / "programs", "avahi-publish", f'echo "$$ $@" >>{tmp_path}/said\nexec sleep 600\n')
    house.coordinator.stop()
    assert not (tmp_path / "said").exists()
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{programs}:{before}"
    try:
        house.start_coordinator("--announce")
        said = wait_until(lambda: (tmp_path / "said").exists() and (tmp_path / "said").read_text(), "it is announced")
    finally:
        os.environ["PATH"] = before
    process, words = said.split(" ", 1)
    assert re.fullmatch(rf"--service home on \S+ _strata._tcp {port_of(house.join_address)} ca={authority_of(house.files)} "
                        rf"port={port_of(house.address)}\n", words), words
    # However it ends.
    house.coordinator.kill()

    def has_ended():
        # Where nobody asks how it ended it stays as a zombie.
        found = subprocess.run(["ps", "-o", "stat=", "-p", process], capture_output=True, text=True).stdout.strip()
        return not found or found.startswith("Z")

    wait_until(has_ended, "nobody announces a coordinator that has gone")
    os.environ["PATH"] = f"{tmp_path / 'programs'}:{before}"
    program(tmp_path / "programs", "avahi-publish", "echo 'Daemon not running' >&2; exit 1\n")
    try:
        house.start_coordinator("--announce")
    finally:
        os.environ["PATH"] = before
    problem = wait_until(lambda: (found := house.strata("status").stdout) and "not announced" in found and found, "it says so")
    assert "Daemon not running" in problem and "avahi-daemon" in problem
    refused = subprocess.run([BIN / "strata-coordinator", "--announce", "--data-dir", tmp_path / "d"], capture_output=True,
                             text=True, timeout=GIVE_UP_S)
    assert refused.returncode == 2 and "--announce wants --authority" in refused.stderr


def missing():
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("avahi-daemon", "avahi-browse", "avahi-publish", "dbus-daemon", "ip", "unshare", "nsenter"):
        if not shutil.which(tool):
            return f"needs {tool}"
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode != 0:
        return "needs namespaces"
    return ""


class Machine:
    """A host on a switch, with avahi-daemon and a bus of its own."""

    STARTS = ("mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir -p /run/dbus /run/avahi-daemon && "
              "hostname {name} && dbus-daemon --system --fork && "
              "avahi-daemon --no-drop-root --no-chroot --no-rlimits --daemonize && echo ready && exec sleep 3600")

    def __init__(self, tag, name, address):
        self.space = f"{tag}-{name}"
        for command in (["netns", "add", self.space],
                        ["-n", self.space, "link", "add", "eth0", "type", "veth", "peer", "name", f"to-{name}", "netns", f"{tag}-switch"],
                        ["-n", f"{tag}-switch", "link", "set", f"to-{name}", "master", "br0", "up"],
                        ["-n", self.space, "link", "set", "lo", "up"],
                        ["-n", self.space, "addr", "add", f"{address}/24", "dev", "eth0"],
                        ["-n", self.space, "link", "set", "eth0", "up"]):
            subprocess.run(["ip", *command], check=True)
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child",
             "sh", "-c", self.STARTS.format(name=name)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=True)
        self.first = children.stdout.split()[0]

    def inside(self, *words):
        """A command line that runs there."""
        return ["nsenter", "--target", self.first, "--mount", "--uts", "--net", *map(str, words)]

    def close(self):
        self.process.kill()
        self.process.wait()
        subprocess.run(["ip", "netns", "del", self.space], check=False)


@pytest.mark.long
@pytest.mark.skipif(bool(missing()), reason=missing() or "-")
def test_two_hosts_find_each_other_by_avahi(tmp_path):
    tag = f"avahi{os.getpid()}"
    with contextlib.ExitStack() as stack:
        subprocess.run(["ip", "netns", "add", f"{tag}-switch"], check=True)
        stack.callback(lambda: subprocess.run(["ip", "netns", "del", f"{tag}-switch"], check=False))
        subprocess.run(["ip", "-n", f"{tag}-switch", "link", "add", "br0", "up", "type", "bridge"], check=True)
        a, b = (Machine(tag, name, address) for name, address in (("a", "10.66.0.1"), ("b", "10.66.0.2")))
        stack.callback(a.close)
        stack.callback(b.close)
        started = []
        stack.callback(lambda: stop(started))

        def run(machine, *words):
            done = subprocess.run(machine.inside(*words), capture_output=True, text=True, timeout=GIVE_UP_S, cwd=tmp_path)
            return done

        def coordinator(machine, name, address):
            made = run(machine, BIN / "strata", "cluster", "init", "--name", name, "--hosts", f"{address},127.0.0.1", "--dir", tmp_path / name)
            assert made.returncode == 0, made.stderr
            process = Process(name, machine.inside(
                BIN / "strata-coordinator", "--listen", "0.0.0.0:7070", "--http-listen", "127.0.0.1:0", "--data-dir", tmp_path / f"{name}-data",
                "--tls-dir", tmp_path / name / "coordinator", "--authority", tmp_path / name / "authority", "--announce"), tmp_path)
            started.append(process)
            process.wait_for("^joining on")
            return process

        home = coordinator(a, "home", "10.66.0.1")
        coordinator(b, "away", "10.66.0.2")
        token = run(a, BIN / "strata", "--coordinator", "127.0.0.1:7070", "--tls-dir", tmp_path / "home/operator", "node", "token", "--uses", 500).stdout
        token = re.search(r"strata-join-1\S+", token).group(0)

        def joins():
            done = run(b, BIN / "strata-worker", "join", token, "--discover", "--name", "box", "--hosts", "10.66.0.2",
                       "--config-dir", tmp_path / "box")
            return done.returncode == 0 and "away on b" in done.stdout and done.stdout

        said = wait_until(joins, "it finds the one and hears the other")
        print(said)
        assert "asking for coordinators on eth0 (10.66.0.2)" in said
        assert re.search(r"home on a at 10\.66\.0\.1:7069 \(eth0\), of the token's authority", said)
        assert re.search(r"away on b at \S+:7069 \(\w+\), of another authority", said)
        worker = Process("box", b.inside(BIN / "strata-worker", "--config", tmp_path / "box/worker.toml", "--data-dir", tmp_path / "box-data",
                                         "--threads", "1", "--memory", "1GiB"), tmp_path)
        started.append(worker)
        worker.wait_for("joined the cluster")
        # It is not announced any more once it has ended.
        started.remove(home)
        home.stop()

        def has_gone():
            left = run(b, "avahi-browse", "--parsable", "--terminate", "--no-db-lookup", "_strata._tcp").stdout
            return "away" in left and "home" not in left

        wait_until(has_gone, "nobody announces a coordinator that has ended")
