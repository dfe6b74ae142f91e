"""Kills, mute workers, full disks and hostile clients at once, under sixteen requests: no token is
wrong, nobody waits for ever, `status` names every cause while it is there, and nothing once all is
well again.

With --all for twenty minutes; else for a few faults of each kind.
"""

import json
import random
import signal
import socket
import time

import pytest

from cluster import GIVE_UP_S, RECALL, SLOW, Cluster, wait_until
from small_disk import full, mounted

PROMPTS = [[7 + i] * (5 + 11 * i) for i in range(4)]
CUTS = [("w0", 0, 2), ("w1", 3, 5), ("w2", 6, 7)]
TOKENS = 40
STREAMS = 16
ALL_S = 20 * 60


@pytest.fixture
def small_disks(tmp_path):
    """{"coordinator", "w1"}: folders of disks that a test can fill."""
    with mounted(tmp_path / "disk-coordinator", "64m") as coordinator:
        with mounted(tmp_path / "disk-w1", "64m") as w1:
            yield {"coordinator": coordinator, "w1": w1}


class Days:
    """A cluster, requests on it, and what is done to both."""

    def __init__(self, cluster, disks, seed):
        self.cluster, self.disks = cluster, disks
        self.rng = random.Random(seed)
        self.right = [self.answer(i) for i in range(len(PROMPTS))]
        self.running = []
        self.number = self.answered = self.refused = 0
        self.hostile = []  # Connections that stay open.

    def arguments(self, i, request_id):
        return ["generate", "recall", "--token-ids", ",".join(map(str, PROMPTS[i])),
                "--max-tokens", TOKENS, "--temperature", 0, "--ignore-eos", "--request-id",
                request_id, "--json"]

    def answer(self, i):
        """The right one: of a request alone, on a cluster that is well."""
        def once():
            self.cluster.revive()
            out, err, status = self.cluster.run(*self.arguments(i, f"alone-{i}"), check=False)
            assert status == 0 or "send the request again" in err or "strata " in err, err
            return status == 0 and json.loads(out)["token_ids"]

        return wait_until(once, f"prompt {i} is answered")

    def keep_sixteen(self):
        for entry in [entry for entry in self.running if entry[1].poll() is not None]:
            self.running.remove(entry)
            self.reap(*entry)
        while len(self.running) < STREAMS:
            i = self.rng.randrange(len(PROMPTS))
            self.running.append((i, self.cluster.popen(*self.arguments(i, f"n{self.number}"))))
            self.number += 1

    def reap(self, i, process):
        """It is right, or one line says what happened and what to do."""
        out, err = process.communicate(timeout=GIVE_UP_S)
        if process.returncode == 0:
            assert json.loads(out)["token_ids"] == self.right[i]
            self.answered += 1
        else:
            assert process.returncode == 1 and err.count("\n") == 1, err
            assert "strata " in err or "send the request again" in err or "--" in err, err
            self.refused += 1

    def problems(self):
        self.cluster.revive()
        return self.cluster.json("status")["problems"]

    def named(self, *words):
        """Waits until a problem of `status` has all these words."""
        def seen():
            self.keep_sixteen()
            found = self.problems()
            return any(all(word in json.dumps(problem) for word in words) for problem in found)

        wait_until(seen, f"status names {' and '.join(words)}")

    def well(self):
        """Waits until `status` has nothing to say and the model is served."""
        def nothing():
            self.keep_sixteen()
            return not self.problems()

        wait_until(nothing, "status has nothing to say")
        self.cluster.wait_ready("recall")

    # ---- What is done.

    def kill(self):
        victim = self.rng.choice(list(self.cluster.workers))
        self.cluster.workers[victim].kill()
        if self.rng.random() < 0.5:
            self.named(victim)
        process = self.cluster.workers[victim]
        self.cluster.start_worker(victim, wait=False,
                                  data=process.command[process.command.index("--data-dir") + 1])

    def mute(self):
        victim = self.rng.choice(list(self.cluster.workers))
        self.cluster.workers[victim].kill(signal.SIGSTOP)
        try:
            self.named(victim)
        finally:
            self.cluster.workers[victim].kill(signal.SIGCONT)

    def fill(self):
        where = self.rng.choice(list(self.disks))
        with full(self.disks[where]):
            self.named("disk", *([] if where == "coordinator" else [where]))

    def client_goes_away(self):
        self.keep_sixteen()
        at = self.rng.randrange(len(self.running))
        _, process = self.running.pop(at)
        process.kill()
        process.communicate(timeout=GIVE_UP_S)

    def connect(self, text):
        host, port = self.cluster.http.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), timeout=GIVE_UP_S)
        try:
            connection.sendall(text)
        except OSError:  # Refused before all of it was sent.
            pass
        return connection

    def post(self, body, head=b""):
        return self.connect(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + head +
                            b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def hostile_client(self):
        stream = json.dumps({"model": "recall", "prompt": "Once upon a time", "max_tokens": 400,
                             "stream": True, "ignore_eos": True}).encode()
        huge = json.dumps({"model": "recall", "prompt": "a b " * 1_000_000}).encode()
        deed = self.rng.choice(["unread", "slow", "chunks", "huge", "page", "cut", "noise"])
        if deed == "unread":
            self.hostile.append(self.post(stream))
        elif deed == "slow":
            self.hostile.append(self.connect(b"POST /v1/completions HTTP/1.1\r\nHost: local"))
        elif deed == "chunks":
            self.connect(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                         b"Transfer-Encoding: chunked\r\n\r\nnothing\r\n").close()
        elif deed == "huge":
            self.hostile.append(self.post(huge))
        elif deed == "page":
            self.post(stream, b"Origin: http://elsewhere.example\r\n").close()
        elif deed == "cut":
            self.post(stream).close()
        else:
            self.connect(self.rng.randbytes(4096)).close()
        while len(self.hostile) > 8:
            self.hostile.pop(0).close()


def faults():
    """A few of each kind, or as many as fit into the time."""
    few = ["kill", "mute", "fill", "fill", *["client_goes_away"] * 2, *["hostile_client"] * 7]
    return [few, pytest.param(None, marks=pytest.mark.long)]


@pytest.mark.parametrize("kinds", faults(), ids=lambda kinds: "a few" if kinds else "many")
def test_everything_goes_wrong_at_once(tmp_path, small_disks, kinds):
    with Cluster(tmp_path / "cluster", step_timeout=f"{2 * SLOW}s", lease="5s",
                 data_dir=small_disks["coordinator"] / "data") as cluster:
        for name, _, _ in CUTS:
            data = small_disks[name] / "data" if name in small_disks else None
            cluster.start_worker(name, wait=False, data=data)
        for name, _, _ in CUTS:
            cluster.wait_node(name)
        cluster.load("recall", RECALL, cuts=CUTS, context=512, sessions=20)
        days = Days(cluster, small_disks, seed=56)
        end = time.monotonic() + ALL_S
        if kinds:
            days.rng.shuffle(kinds)
        done = 0
        while kinds if kinds is not None else time.monotonic() < end:
            days.keep_sixteen()
            kind = kinds.pop() if kinds is not None else days.rng.choice(
                ["kill", "mute", "fill", "client_goes_away", *["hostile_client"] * 3])
            getattr(days, kind)()
            done += 1
            time.sleep(days.rng.random() * 0.3 * SLOW)
            if days.rng.random() < 0.4:
                days.well()
        for connection in days.hostile:
            connection.close()
        days.well()
        for i, process in days.running:
            days.reap(i, process)
        assert [days.answer(i) for i in range(len(PROMPTS))] == days.right
        assert days.answered > 0
        assert cluster.coordinator.process.poll() is None
        cluster.nothing_is_left()
        print(f"{done} faults: {days.answered} answered, {days.refused} refused with a typed error")
