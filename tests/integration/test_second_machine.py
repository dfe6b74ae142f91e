"""«Add a machine» of docs/OPERATIONS.md, as written, on three hosts: network namespaces with host names of
their own, joined by a bridge in a fourth."""

import json
import os
import shutil
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, Process, tls_commands, shell, stop, wait_until

HOSTS = {"a": "10.77.0.1", "b": "10.77.0.2", "c": "10.77.0.3"}


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def can_make_namespaces():
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("unshare"):
        return False
    name = f"strata-try-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return False
    made = subprocess.run(["ip", "-n", name, "link", "add", "type", "bridge"],
                          capture_output=True).returncode == 0
    ip("netns", "del", name)
    return made


pytestmark = pytest.mark.skipif(not can_make_namespaces(),
                                reason="needs root and network namespaces")


class Hosts:
    def __init__(self, folder):
        self.folder = folder
        self.tag = f"strata{os.getpid()}"
        self.processes = []
        ip("netns", "add", f"{self.tag}-switch")
        ip("-n", f"{self.tag}-switch", "link", "add", "br0", "type", "bridge")
        ip("-n", f"{self.tag}-switch", "link", "set", "br0", "up")
        for host, address in HOSTS.items():
            ns = f"{self.tag}-{host}"
            ip("netns", "add", ns)
            ip("-n", ns, "link", "set", "lo", "up")
            ip("-n", ns, "link", "add", "eth0", "type", "veth", "peer", "name", f"to-{host}",
               "netns", f"{self.tag}-switch")
            ip("-n", f"{self.tag}-switch", "link", "set", f"to-{host}", "master", "br0", "up")
            ip("-n", ns, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", ns, "link", "set", "eth0", "up")

    def command(self, host, command):
        """`command` on the host, with its own name, PATH and home."""
        home = self.folder / host
        home.mkdir(exist_ok=True)
        return ["ip", "netns", "exec", f"{self.tag}-{host}", "unshare", "--uts", "sh", "-c",
                f"echo host-{host} > /proc/sys/kernel/hostname; export HOME={home} "
                f"XDG_DATA_HOME={home} PATH={BIN}:$PATH; exec {command}"]

    def start(self, host, command, name=None):
        process = Process(name or host, self.command(host, command), self.folder)
        self.processes.append(process)
        return process

    def run(self, host, command, check=True):
        done = subprocess.run(self.command(host, command), capture_output=True, text=True,
                              timeout=GIVE_UP_S)
        assert not check or done.returncode == 0, done.stderr
        return done

    def nodes(self):
        nodes = json.loads(self.run("a", "strata node list --json").stdout)["nodes"]
        return {n["name"]: n for n in nodes}

    def close(self):
        try:
            stop(self.processes)
        finally:
            for host in [*HOSTS, "switch"]:
                subprocess.run(["ip", "netns", "del", f"{self.tag}-{host}"], capture_output=True)


@pytest.fixture
def hosts(tmp_path):
    made = Hosts(tmp_path)
    yield made
    made.close()


def start_coordinator(hosts):
    coordinator = hosts.start(
        "a", "strata-coordinator --listen 0.0.0.0:7070 --http-listen 127.0.0.1:8080 --insecure")
    coordinator.wait_for("^listening on 0.0.0.0:7070")


WORKER = "strata-worker --coordinator 10.77.0.1:7070 --insecure"


def test_the_documented_commands_join_three_machines(hosts):
    start_coordinator(hosts)
    for host in ("b", "c"):
        hosts.start(host, WORKER)
    nodes = wait_until(lambda: len(hosts.nodes()) == 2 and hosts.nodes(), "both joined")
    assert {n["address"] for n in nodes.values()} == {"10.77.0.2:7071", "10.77.0.3:7071"}
    assert {n["state"] for n in nodes.values()} == {"ready"}
    hosts.run("a", f"strata model add {RECALL}")
    hosts.run("a", "strata model load recall --layers host-b:0-3,host-c:4-7")
    question = "The code for the village is 489. What is the code for the village?"
    answer = json.loads(hosts.run("a", f'strata chat recall "{question}" --json').stdout)
    assert "489." in answer["text"]
    status = json.loads(hosts.run("a", "strata status --json").stdout)
    assert any("--insecure" in p["what"] for p in status["problems"])


def test_the_documented_commands_join_machines_with_tls(hosts, tmp_path):
    authority, machine = tls_commands()
    shell(tmp_path, authority)
    for host in ("a", "b"):
        shell(tmp_path, machine.replace("IP:10.77.0.1", f"IP:{HOSTS[host]}"))
        shutil.copytree(tmp_path / "tls", tmp_path / f"tls-{host}")
    hosts.start("a", "strata-coordinator --listen 0.0.0.0:7070 --http-listen 127.0.0.1:8080 "
                     f"--tls-dir {tmp_path}/tls-a").wait_for("^listening on")
    hosts.start("b", f"strata-worker --coordinator 10.77.0.1:7070 --tls-dir {tmp_path}/tls-b")
    admin, client = (f"strata --coordinator 10.77.0.1:7070 --tls-dir {tmp_path}/tls-{host}"
                     for host in ("a", "b"))
    wait_until(lambda: "host-b" in hosts.run("b", f"{client} node list").stdout, "it joined")
    hosts.run("a", f"{admin} model add {RECALL}")
    hosts.run("b", f"{client} model load recall")
    answer = hosts.run("b", f'{client} chat recall "What is the capital of France?"')
    assert "Paris" in answer.stdout
    status = json.loads(hosts.run("b", f"{client} status --json").stdout)
    assert status["problems"] == []


def test_a_wrong_advertised_address_is_refused_naming_both_ends_and_the_remedy(hosts):
    start_coordinator(hosts)
    for wrong in ("10.77.0.9:7071", "10.77.0.2:9"):
        done = hosts.run("b", f"{WORKER} --advertise {wrong}", check=False)
        assert done.returncode == 1
        last = done.stderr.strip().splitlines()[-1]
        for part in ("host-b", wrong, "firewall", "--advertise"):
            assert part in last, last
    assert hosts.nodes() == {}


def test_a_closed_port_is_refused_likewise(hosts):
    start_coordinator(hosts)
    done = hosts.run("b", f"{WORKER} --listen 127.0.0.1:7071 --advertise 10.77.0.2:7071",
                     check=False)
    assert done.returncode == 1
    assert "10.77.0.2:7071" in done.stderr and "firewall" in done.stderr


def test_a_taken_name_is_refused_naming_the_flag(hosts):
    start_coordinator(hosts)
    hosts.start("b", WORKER)
    wait_until(lambda: "host-b" in hosts.nodes(), "the first one joined")
    done = hosts.run("c", f"{WORKER} --name host-b", check=False)
    assert done.returncode == 1
    assert "--name" in done.stderr and "10.77.0.2:7071" in done.stderr
    assert list(hosts.nodes()) == ["host-b"]


def test_peers_that_cannot_reach_each_other_are_shown_as_such(hosts):
    start_coordinator(hosts)
    ip("-n", f"{hosts.tag}-c", "route", "add", "blackhole", "10.77.0.2/32")
    for host in ("b", "c"):
        hosts.start(host, WORKER)
    wait_until(lambda: len(hosts.nodes()) == 2, "both joined")
    wait_until(lambda: "unreachable" in {n["state"] for n in hosts.nodes().values()},
               "the broken link is noticed")
    problems = json.loads(hosts.run("a", "strata status --json").stdout)["problems"]
    broken = [p for p in problems if "cannot reach" in p["what"]]
    assert broken
    assert "10.77.0.2:7071" in broken[0]["what"] + broken[0]["do"] or \
        "10.77.0.3:7071" in broken[0]["what"]
    assert any("--advertise" in p["do"] for p in broken)


def test_off_loopback_one_of_tls_and_insecure_is_required(hosts):
    done = hosts.run("a", "strata-coordinator --listen 0.0.0.0:7070", check=False)
    assert done.returncode != 0
    assert "--tls-dir" in done.stderr and "--insecure" in done.stderr
