"""An older version beside this one over the wire, as during an upgrade."""

import itertools
import json
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import older_version
from cluster import BIN, NEVER, RECALL, Cluster, wait_until

pytestmark = [pytest.mark.long, pytest.mark.skipif(not older_version.packages(), reason="no STRATA_OLDER_PACKAGES")]

GREEDY = ["generate", "recall", "--token-ids", "1,2,3", "--max-tokens", 100, "--ignore-eos", "--temperature", 0, "--json"]
SAMPLED = ["generate", "recall", "--token-ids", "3,2,1", "--max-tokens", 50, "--ignore-eos", "--temperature", 0.8,
           "--seed", 7, "--json"]
CUTS = [("a", 0, 3), ("b", 4, 7)]
STREAMS = 8


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """{"older": folder of programs, "newer": ...}"""
    older = older_version.binaries(tmp_path_factory.mktemp("older"))
    assert subprocess.run([older / "strata-worker", "--version"], capture_output=True, check=True).stdout
    return {"older": older, "newer": BIN}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """The tokens of this version alone."""
    with Cluster(tmp_path_factory.mktemp("right")) as c:
        c.start_worker("a")
        c.load("recall", RECALL, context=512)
        return [c.json(*request)["token_ids"] for request in (GREEDY, SAMPLED)]


@pytest.mark.parametrize("coordinator,a,b", [one for one in itertools.product(("older", "newer"), repeat=3)
                                             if len(set(one)) == 2])
def test_versions_work_together(versions, right, tmp_path, coordinator, a, b):
    with Cluster(tmp_path, binaries=versions[coordinator]) as c:
        for name, version in (("a", a), ("b", b)):
            c.start_worker(name, binary=versions[version] / "strata-worker")
        for cli in ("older", "newer"):
            c.binaries = versions[cli]
            c.load("recall", RECALL if cli == "older" else None, cuts=CUTS, context=512)
            assert [c.json(*request)["token_ids"] for request in (GREEDY, SAMPLED)] == right, cli
            c.run("model", "resize", "recall", "--kv-tokens", 4096)
            # Each worker computes the other's layers and compares the bits.
            c.run("model", "check", "recall")
            assert {node["state"] for node in c.json("node", "list")["nodes"]} == {"serving"}
            assert not c.json("status")["problems"]
            assert [c.json(*request)["token_ids"] for request in (GREEDY, SAMPLED)] == right, cli
            c.run("model", "unload", "recall")


class Streams:
    """Clients of both versions that ask one request after another, and send again what was refused for a while."""

    def __init__(self, cluster, versions, right):
        self.cluster, self.right = cluster, right
        self.programs = [versions[name] / "strata" for name in ("older", "newer")]
        self.answered = [0] * STREAMS
        self.again = 0
        self.failed = []
        self.ended = threading.Event()
        self.pool = ThreadPoolExecutor(STREAMS)
        self.runs = [self.pool.submit(self.run, i) for i in range(STREAMS)]

    def run(self, i):
        command = [self.programs[i % 2], "--coordinator", self.cluster.address, *map(str, GREEDY)]
        while not self.ended.is_set() and not self.failed:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                if json.loads(done.stdout)["token_ids"] != self.right:
                    self.failed.append(f"stream {i}: other tokens")
                self.answered[i] += 1
            else:
                if not re.search(older_version.SENT_AGAIN, done.stderr):
                    self.failed.append(f"stream {i}: {done.stderr}")
                self.again += 1

    def go_on(self):
        """Each has had two more answers: the second began after the call."""
        least = [count + 2 for count in self.answered]
        wait_until(lambda: self.failed or all(n >= m for n, m in zip(self.answered, least)), "all streams go on")
        assert not self.failed, self.failed

    def end(self):
        self.ended.set()
        for run in self.runs:
            run.result()
        assert not self.failed, self.failed
        print(f"answers: {sum(self.answered)}, sent again: {self.again}")


@pytest.mark.parametrize("drain", [NEVER, "1ms"], ids=["what is in flight ends", "what is in flight is cut off"])
def test_streams_go_on_while_a_cluster_is_upgraded_in_the_documented_order(versions, right, tmp_path, drain):
    with Cluster(tmp_path, binaries=versions["older"], drain_timeout=drain) as c:
        for name in ("a", "b"):
            c.start_worker(name, drain=drain)
        c.load("recall", RECALL, cuts=CUTS, context=512, sessions=STREAMS)
        streams = Streams(c, versions, right[0])
        streams.go_on()
        c.binaries = versions["newer"]
        # Workers, one after another.
        for name in ("a", "b"):
            c.workers[name].stop()
            c.start_worker(name, drain=drain)
            c.wait_ready("recall")
            streams.go_on()
        # Then the coordinator.
        address = c.address
        c.coordinator.stop()
        c.start_coordinator(listen=address)
        c.wait_ready("recall")
        streams.go_on()
        streams.end()
        c.run("model", "check", "recall")
