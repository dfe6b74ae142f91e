"""What `strata doctor` finds between hosts of their own: ports, firewalls, links, clocks. In network namespaces, as root."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import planted_faults
from cluster import wait_until
from planted_faults import ANYWHERE, OF_THE_SYSTEM, WITH_FAKED_TIME, World

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fault_suite"))
import hosts as networks  # noqa: E402

NUMBERS = {"coordinator": 1, "a": 2, "b": 3}

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(networks.what_is_missing()), reason=networks.what_is_missing() or "-"),
              pytest.mark.skipif(not shutil.which("nft"), reason="needs nft, of Debian's package nftables")]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    hosts = networks.Hosts(NUMBERS)
    made = None
    try:
        places = {name: (networks.address(number), hosts.command(name, [])) for name, number in NUMBERS.items()}
        made = World(tmp_path_factory.mktemp("doctor"), places)
        made.hosts = hosts
        yield made
    finally:
        if made is not None:
            made.close()
        hosts.close()


def port_of(world, name):
    return world.cluster.node(name)["address"].rsplit(":", 1)[1]


def filtered(rules):
    """`rules` of nft for what comes in, by host; PORT is that of b's worker, ADDRESS-A and ADDRESS-B those of the two."""
    @contextlib.contextmanager
    def fault(world):
        for host, rule in rules.items():
            for word, value in (("PORT", port_of(world, "b")), ("ADDRESS-A", world.address("a")), ("ADDRESS-B", world.address("b"))):
                rule = rule.replace(word, value)
            subprocess.run(world.hosts.command(host, ["nft", "-f", "-"]), input=TABLE % rule, text=True, check=True)
        yield
        for host in rules:
            subprocess.run(world.hosts.command(host, ["nft", "delete", "table", "inet", "planted"]), check=True)

    return fault


TABLE = "table inet planted {\n chain in { type filter hook input priority 0; policy accept; %s; }\n}\n"
LOSES = "meta l4proto tcp numgen inc mod 16 == 0 drop"
closed = filtered({"b": "tcp dport PORT reject with tcp reset"})
dropped = filtered({"b": "tcp dport PORT drop"})
one_way = filtered({"b": "ip saddr ADDRESS-A tcp dport PORT drop"})
lossy = filtered({"b": LOSES, "a": "ip saddr ADDRESS-B " + LOSES, "coordinator": "ip saddr ADDRESS-B " + LOSES})


@contextlib.contextmanager
def cut_off(world):
    world.hosts.cut("a", "b")
    world.hosts.cut("b", "a")
    yield
    world.hosts.join("a", "b")
    world.hosts.join("b", "a")


@contextlib.contextmanager
def slow(world):
    world.hosts.slow_down("b", "30mbit")
    yield
    world.hosts.speed_up("b")


def refused_for(advertised):
    """A third worker on the host b, that never gets in."""
    @contextlib.contextmanager
    def fault(world):
        at = advertised(world)
        world.certificate("c", hosts=f"{world.address('b')},{at.rsplit(':', 1)[0]}")
        worker = world.start("c", "--advertise", at, on="b", wait=False)
        worker.killed = True
        worker.wait()
        del world.cluster.workers["c"]
        yield

    return fault


NETWORK = [
    ("a closed port", closed, "PORT_CLOSED", "b", "open TCP port"),
    ("a firewall that drops", dropped, "PORT_SILENT", "b", "open TCP port"),
    ("a firewall of one direction", one_way, "FIREWALL_ONE_WAY", "b", "let node a through"),
    ("two that do not reach each other", cut_off, "LINK_BLOCKED", "b", "nft list ruleset"),
    ("a lossy link", lossy, "LINK_LOSSY", "b", "ethtool -S"),
    ("a slow link", slow, "LINK_SLOW", "b", "ethtool"),
]
# The coordinator remembers those for two minutes: last.
REFUSED = [
    ("another node's address", refused_for(lambda world: world.cluster.node("a")["address"]), "ADVERTISE_WRONG", "c", "--advertise"),
    ("loopback is advertised", refused_for(lambda world: "127.0.0.1:7999"), "ADVERTISE_LOOPBACK", "c", "--advertise"),
]
MACHINE = [fault for fault in [*ANYWHERE, *OF_THE_SYSTEM, *(WITH_FAKED_TIME if planted_faults.FAKETIME else [])]]
PLANTED = [*NETWORK, *MACHINE, *REFUSED]


def test_there_are_at_least_twenty():
    assert len(PLANTED) >= 20


def test_nothing_is_found_where_all_is_well(world):
    planted_faults.check_healthy(world)


@pytest.mark.parametrize("fault", PLANTED, ids=[fault[0].replace(" ", "-") for fault in PLANTED])
def test_a_planted_fault_is_found_alone_with_its_remedy(world, fault):
    if fault in OF_THE_SYSTEM and os.geteuid() != 0:
        pytest.skip("needs root")
    planted_faults.check(world, fault)
    if fault not in REFUSED:
        wait_until(lambda: world.state("b") == "ready", "b is there again")
        planted_faults.check_healthy(world)
