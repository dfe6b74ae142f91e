"""Whoever waits for a model may go away; the work goes on."""

import json
import signal
import threading

import pytest

from cluster import GIVE_UP_S, RECALL, Cluster, wait_until
from hub import Hub
from relay import Relay
from checkpoints import make_checkpoint


@pytest.fixture
def slow(tmp_path):
    """A cluster whose worker's weights stop arriving after 1 MiB until the relay lets them pass."""
    with Cluster(tmp_path / "cluster") as c, Relay(c.address, hold_after=1 << 20) as relay:
        c.start_worker("w0", coordinator=relay.address)
        c.run("model", "add", RECALL)
        c.relay = relay
        yield c


def state(cluster, model):
    return {m["name"]: m["state"] for m in cluster.json("model", "list")["models"]}.get(model)


def interrupt_once(process, text):
    """Ctrl-C once `text` appears on stderr; (stdout, stderr)."""
    said = ""
    while text not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=GIVE_UP_S)
    return out, said + err


def test_load_detach_returns_while_the_load_goes_on(slow):
    out, _, _ = slow.run("model", "load", "recall", "--detach", "--context", 512)
    assert "is being loaded on w0" in out and "strata model show recall" in out
    assert state(slow, "recall") == "loading"
    assert slow.relay.held.wait(GIVE_UP_S)
    assert state(slow, "recall") == "loading"
    slow.relay.release()
    slow.wait_ready("recall")
    assert slow.generate("recall", ids=[1, 2], max_tokens=2)["token_ids"]


def test_load_detach_with_json_gives_one_document(slow):
    document = slow.json("model", "load", "recall", "--detach", "--context", 512)
    assert document["model"] == "recall" and document["ready"] is False
    assert document["plan"]["stages"]
    slow.relay.release()


def test_ctrl_c_during_a_load_detaches_and_says_so(slow):
    loading = slow.popen("model", "load", "recall", "--context", 512)
    out, err = interrupt_once(loading, "fetching")
    assert loading.returncode == 1 and out == ""
    last = err.strip().splitlines()[-1]
    assert "detached" in last and "goes on" in last and "strata model show recall" in last
    assert state(slow, "recall") == "loading"
    slow.relay.release()
    slow.wait_ready("recall")


def test_processes_stop_in_good_order_in_the_middle_of_a_load(slow):
    slow.run("model", "load", "recall", "--detach", "--context", 512)
    assert slow.relay.held.wait(GIVE_UP_S)
    slow.workers["w0"].stop()
    assert any("w0" in p["what"] for p in slow.json("status")["problems"])
    slow.coordinator.stop()


# Zeros that take no room on the disk, and a second to digest.
LARGE = {"layers": 2, "hidden": 4096, "ffn": 4096, "vocab": 1024}


def test_add_detach_returns_while_digesting_goes_on(tmp_path):
    make_checkpoint(tmp_path / "large", **LARGE, sparse=True)
    with Cluster(tmp_path / "cluster") as c:
        document = c.json("model", "add", tmp_path / "large", "--detach")
        assert document == {"detached": True, "source": str(tmp_path / "large")}
        assert state(c, "large") is None
        wait_until(lambda: state(c, "large") == "registered", "it is registered")


def test_ctrl_c_during_add_detaches_and_says_so(tmp_path):
    make_checkpoint(tmp_path / "large", **LARGE, sparse=True)
    with Cluster(tmp_path / "cluster") as c:
        adding = c.popen("model", "add", tmp_path / "large")
        out, err = interrupt_once(adding, "digesting")
        assert adding.returncode == 1 and out == ""
        last = err.strip().splitlines()[-1]
        assert "detached" in last and "goes on" in last and "strata model list" in last
        assert state(c, "large") is None
        wait_until(lambda: state(c, "large") == "registered", "it is registered")


def test_pull_detach_returns_while_the_download_goes_on(tmp_path, monkeypatch):
    with Hub(RECALL, breaks=False, hold=True) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        with Cluster(tmp_path) as c:
            out, _, _ = c.run("model", "pull", "org/name", "--detach")
            assert "org/name is being registered" in out
            assert hub.held.wait(GIVE_UP_S)
            assert state(c, "name") is None
            hub.release()
            wait_until(lambda: state(c, "name") == "registered", "it is registered")


def test_ctrl_c_during_pull_detaches_and_a_coordinator_stops_in_the_middle_of_it(tmp_path,
                                                                                monkeypatch):
    with Hub(RECALL, breaks=False, hold=True) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        with Cluster(tmp_path) as c:
            pulling = c.popen("model", "pull", "org/name")
            out, err = interrupt_once(pulling, "downloading")
            assert pulling.returncode == 1 and out == ""
            assert "detached" in err and "strata model list" in err
            assert hub.held.wait(GIVE_UP_S)
            c.coordinator.stop()
            hub.release()
            # What had arrived is kept, and the download goes on when it is asked for again.
            c.start_coordinator()
            c.run("model", "pull", "org/name")
            assert state(c, "name") == "registered"
