"""A coordinator that stands still for longer than --lease, as on a laptop that was suspended."""

import signal
import subprocess
import time

import pytest

from cluster import BIN, GIVE_UP_S, NEVER, RECALL, Cluster


# Longer than keepalives and their answers take.
@pytest.mark.parametrize("least_s", [0, pytest.param(40, marks=pytest.mark.long)])
def test_workers_keep_what_a_coordinator_comes_back_to(tmp_path, least_s):
    with Cluster(tmp_path, lease="1s", heartbeat="200ms", step_timeout=NEVER) as c:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        alone = c.json("generate", "recall", "the", "--max-tokens", 8, "--temperature", 0)
        c.coordinator.kill(signal.SIGSTOP)
        for worker in c.workers.values():
            worker.wait_for("the lease has lapsed; what is loaded stays")
        time.sleep(least_s)
        c.coordinator.kill(signal.SIGCONT)
        for worker in c.workers.values():
            worker.wait_for("has renewed the lease again")
        again = c.json("generate", "recall", "the", "--max-tokens", 8, "--temperature", 0)
        assert again["token_ids"] == alone["token_ids"]
        for worker in c.workers.values():
            assert worker.text().count("joined the cluster") == 1
            assert worker.text().count("loading layers") == 1


def test_bad_names_and_addresses_are_refused_while_nobody_listens(tmp_path):
    for arguments, said in ((["--coordinator", "127.0.0.1:0"], "127.0.0.1:0"),
                            (["--coordinator", "127.0.0.1:1", "--name=-rf"], "-rf"),
                            (["--coordinator", "127.0.0.1:1", "--name", "a b"], "a b"),
                            (["--coordinator", "127.0.0.1:1", "--name", "x", "--memory", "10"],
                             "96 MiB"),
                            (["--coordinator", "127.0.0.1:1", "--name", "x", "--memory", "0"],
                             "96 MiB"),
                            (["--config", tmp_path], str(tmp_path)),
                            (["unknown", "--help"], "unknown")):
        done = subprocess.run([BIN / "strata-worker", *arguments, "--data-dir", tmp_path / "data"],
                              capture_output=True, text=True, timeout=GIVE_UP_S)
        assert done.returncode == 2 and said in done.stderr and done.stdout == "", done
    done = subprocess.run([BIN / "strata-coordinator", "unknown", "--help"], capture_output=True,
                          text=True, timeout=GIVE_UP_S)
    assert done.returncode == 2 and "unknown" in done.stderr
