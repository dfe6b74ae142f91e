"""A link between workers that breaks and comes back, while both live on."""

import json
import urllib.error
import urllib.request

import pytest

from cluster import GIVE_UP_S, NEVER, RECALL, Cluster, wait_until
from relay import Relay

LONG = ["generate", "recall", "--token-ids", "1,2,3", "--max-tokens", 400, "--temperature", 0,
        "--ignore-eos", "--json"]


def start(folder, behind, step_timeout):
    """Two workers; the one named `behind` is reached through the relay only."""
    cluster = Cluster(folder, step_timeout=step_timeout)
    cluster.relay = Relay()
    for name in ("w0", "w1"):
        if name == behind:
            worker = cluster.start_worker(name, "--listen", "127.0.0.1:0", "--advertise",
                                          cluster.relay.address, wait=False)
            cluster.relay.target = worker.wait_for(r"^listening on (\S+)").group(1)
        else:
            cluster.start_worker(name, wait=False)
    for name in ("w0", "w1"):
        cluster.wait_node(name)
    # Answers last until the link breaks.
    cluster.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512, speculate="off")
    return cluster


def health(cluster):
    try:
        with urllib.request.urlopen(f"http://{cluster.http}/health", timeout=GIVE_UP_S) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("behind, fault", [
    ("w1", "cut"), ("w0", "stall"),
    *(pytest.param(*both, marks=pytest.mark.long) for both in [("w0", "cut"), ("w1", "stall")])])
def test_status_tells_of_a_broken_link_and_it_heals(tmp_path, behind, fault):
    with start(tmp_path, behind, step_timeout="2s") as c, c.relay as relay:
        right = c.json(*LONG)["token_ids"]
        assert c.node(behind)["state"] == "serving"
        requests = [c.popen(*LONG) for _ in range(3)]
        c.wait_sessions(3)
        getattr(relay, fault)()

        wait_until(lambda: c.node(behind)["state"] == "unreachable", "node list says so")
        assert c.node("w1" if behind == "w0" else "w0")["state"] == "serving"
        problems = wait_until(lambda: [p for p in c.json("status")["problems"]
                                       if relay.address in p["what"]], "status says so")
        assert all(p["do"] for p in problems)
        assert any("firewall" in p["do"] and behind in p["do"] for p in problems)
        for request in requests:
            out, err = request.communicate(timeout=GIVE_UP_S)
            if request.returncode == 0:
                assert json.loads(out)["token_ids"] == right
            else:
                assert err.count("\n") == 1 and behind in err, err
        wait_until(lambda: health(c) == 503, "/health says so")
        _, err, status = c.run(*LONG, check=False)
        assert status == 1 and behind in err and err.count("\n") == 1

        relay.mend()
        wait_until(lambda: health(c) == 200, "it is served again")
        assert c.json(*LONG)["token_ids"] == right
        wait_until(lambda: not c.json("status")["problems"], "nothing is wrong any more")
        assert {n["state"] for n in c.json("node", "list")["nodes"]} == {"serving"}


def test_a_short_break_is_not_noticed_by_requests(tmp_path):
    with start(tmp_path, "w1", step_timeout=NEVER) as c, c.relay as relay:
        right = c.json(*LONG)["token_ids"]
        requests = [c.popen(*LONG) for _ in range(3)]
        c.wait_sessions(3)
        relay.cut()
        relay.mend()
        for request in requests:
            out, err = request.communicate(timeout=GIVE_UP_S)
            assert request.returncode == 0, err
            assert json.loads(out)["token_ids"] == right
