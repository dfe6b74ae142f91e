"""Whatever dies, stalls or lies: every waiter gets the right answer or a typed error that names the
node and what to do, once the step timeout has passed; the rest goes on; nothing leaks. How soon it
is after that the engine's own tests say, which have a clock of their own.

A worker that sends finite numbers which are wrong is not covered: nobody could tell.
"""

import json
import random
import signal
import time

import pytest

from cluster import BIN, GIVE_UP_S, NEVER, RECALL, SLOW, Cluster, wait_until
from relay import Relay
from small_disk import full, mounted

FAULTY = BIN.parent / "tests"
# Where that time must pass: for a worker that stands still, or does not come back.
SOON = f"{2 * SLOW}s"


def arguments(prompt, request_id, max_tokens):
    return ["generate", "recall", "--token-ids", ",".join(map(str, prompt)), "--max-tokens",
            max_tokens, "--temperature", 0, "--ignore-eos", "--request-id", request_id, "--json"]


PROMPTS = [[7 + i] * (5 + 11 * i) for i in range(4)]
CUTS = [("w0", 0, 2), ("w1", 3, 5), ("w2", 6, 7)]


def start(folder, step_timeout=SOON, flags=(), **options):
    cluster = Cluster(folder, step_timeout=step_timeout, **options)
    cluster.start_workers(3, *flags)
    # Requests are in flight for long enough to be met by what happens; drafts beside faults are in test_drafts.py.
    cluster.load("recall", RECALL, cuts=CUTS, context=512, sessions=20, speculate="off")
    return cluster


def right_answers(cluster, max_tokens):
    """Of each prompt. On a machine that is busy with other things a step may take longer than a
    test's step timeout; such a request is sent again."""
    def answer(i):
        cluster.revive()
        out, err, status = cluster.run(*arguments(PROMPTS[i], f"alone-{i}", max_tokens),
                                       check=False)
        assert status == 0 or "step timeout" in err or "is lost" in err or "recover" in err, err
        return status == 0 and json.loads(out)["token_ids"]

    return [wait_until(lambda i=i: answer(i), f"prompt {i} is answered")
            for i in range(len(PROMPTS))]


def serves(cluster, right, max_tokens):
    """Again the right answers, once what was broken is mended."""
    def answers():
        cluster.revive()
        out, _, status = cluster.run(*arguments(PROMPTS[0], "again", max_tokens), check=False)
        return status == 0 and json.loads(out)["token_ids"] == right[0]

    wait_until(answers, "the model is served again")
    assert right_answers(cluster, max_tokens) == right
    cluster.nothing_is_left()


def in_flight(cluster, count, max_tokens):
    """Requests that have generated something, and are not done."""
    for _ in range(20):
        processes = [cluster.popen(*arguments(PROMPTS[i % 4], f"r{i}", max_tokens))
                     for i in range(count)]

        def seen():
            if any(process.poll() is not None for process in processes):
                return "over"
            sessions = cluster.json("session", "list")["sessions"]
            return sum(s["generated_tokens"] > 0 for s in sessions) == count

        if wait_until(seen, "all of them generate") != "over":
            return processes
        # This machine looks too seldom: the first was over before the last was seen.
        for process in processes:
            process.communicate(timeout=GIVE_UP_S)
    raise AssertionError("they were never seen to generate together")


def collect(processes, right, names=()):
    """Each is right, or says in one line what happened, where and what to do. How many were not."""
    failed = 0
    for i, process in enumerate(processes):
        out, err = process.communicate(timeout=GIVE_UP_S)
        if process.returncode == 0:
            assert json.loads(out)["token_ids"] == right[i % 4], f"r{i}"
            continue
        failed += 1
        assert process.returncode == 1 and err.count("\n") == 1, err
        assert "strata " in err or "send the request again" in err or "--" in err, err
        assert any(name in err for name in names) if names else True, err
    return failed


# Long enough that none is done before the fault.
LONG = 300


def one_of(usual):
    """Each worker in turn; the others than the usual one only with --all."""
    return [pytest.param(w, marks=() if w == usual else pytest.mark.long)
            for w in ("w0", "w1", "w2")]


@pytest.mark.parametrize("victim", one_of("w1"))
def test_a_killed_worker(tmp_path, victim):
    with start(tmp_path) as cluster:
        right = right_answers(cluster, LONG)
        processes = in_flight(cluster, 4, LONG)
        cluster.workers[victim].kill()
        failed = collect(processes, right, [victim])
        assert failed == 4, "its KV is gone, and nobody else has its layers"
        assert cluster.node(victim)["state"] == "lost"
        cluster.start_worker(victim)
        serves(cluster, right, LONG)


@pytest.mark.parametrize("victim", one_of("w2"))
def test_a_stopped_worker(tmp_path, victim):
    with start(tmp_path) as cluster:
        right = right_answers(cluster, LONG)
        processes = in_flight(cluster, 4, LONG)
        cluster.workers[victim].kill(signal.SIGSTOP)
        failed = collect(processes, right, [victim])
        assert failed == 4
        cluster.workers[victim].kill(signal.SIGCONT)
        serves(cluster, right, LONG)


def test_a_worker_that_stalls_for_less_than_the_timeout_costs_no_request(tmp_path):
    with start(tmp_path, step_timeout=NEVER, lease=NEVER) as cluster:
        right = right_answers(cluster, LONG)
        processes = in_flight(cluster, 4, LONG)
        cluster.workers["w1"].kill(signal.SIGSTOP)
        time.sleep(1)
        cluster.workers["w1"].kill(signal.SIGCONT)
        assert collect(processes, right) == 0
        cluster.nothing_is_left()


@pytest.mark.parametrize("victim", one_of("w0"))
def test_a_worker_that_is_started_again_in_time_costs_no_request(tmp_path, victim):
    with start(tmp_path, step_timeout=NEVER) as cluster:
        right = right_answers(cluster, LONG)
        processes = in_flight(cluster, 4, LONG)
        cluster.workers[victim].kill()
        cluster.start_worker(victim, wait=False)
        assert collect(processes, right) == 0
        cluster.nothing_is_left()


def relayed(folder, name, **options):
    """Like start, with `name` behind a relay."""
    cluster = Cluster(folder, step_timeout=SOON, **options)
    cluster.relay = Relay()
    for worker, _, _ in CUTS:
        flags = ["--listen", "127.0.0.1:0", "--advertise", cluster.relay.address]
        process = cluster.start_worker(worker, *(flags if worker == name else []), wait=False)
        if worker == name:
            cluster.relay.target = process.wait_for(r"^listening on (\S+)").group(1)
        cluster.wait_node(worker)
    cluster.load("recall", RECALL, cuts=CUTS, context=512, sessions=20, speculate="off")
    return cluster


@pytest.mark.parametrize("behind", one_of("w1"))
def test_a_half_closed_connection(tmp_path, behind):
    with relayed(tmp_path, behind, recovery_timeout=NEVER) as cluster, cluster.relay:
        right = right_answers(cluster, LONG)
        processes = in_flight(cluster, 4, LONG)
        cluster.relay.half_close()
        # The link is opened again, and the requests go on from what was committed.
        assert collect(processes, right) == 0
        cluster.nothing_is_left()


@pytest.mark.parametrize("behind", one_of("w2"))
def test_a_wire_that_flips_bits(tmp_path, behind):
    with relayed(tmp_path, behind) as cluster, cluster.relay:
        right = right_answers(cluster, 60)
        cluster.relay.flip = 0.02
        for _ in range(4):
            processes = [cluster.popen(*arguments(PROMPTS[i], f"r{i}", 60)) for i in range(4)]
            collect(processes, right)
        cluster.relay.flip = 0
        serves(cluster, right, 60)


KINDS = ["nan", "shape", "rows", "position", "token", "gap", "epoch", "deployment", "pages",
         "duplicate"]
USUAL = {"w1": ["nan", "shape", "position", "gap"], "w2": ["token", "pages", "duplicate"]}


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    with start(tmp_path_factory.mktemp("honest")) as cluster:
        yield cluster, right_answers(cluster, 30)


@pytest.mark.parametrize("liar,kind", [
    pytest.param(liar, kind, marks=() if kind in USUAL[liar] else pytest.mark.long)
    for liar in USUAL for kind in KINDS])
def test_a_worker_that_sends_garbage(honest, liar, kind):
    cluster, right = honest

    def replace(binary=None, env=None):
        cluster.workers[liar].kill()
        cluster.workers[liar].process.wait()
        wait_until(lambda: cluster.node(liar)["state"] == "lost", "the loss is noticed")
        cluster.start_worker(liar, binary=binary, env=env, wait=False)
        wait_until(lambda: cluster.json("model", "list")["models"][0]["state"] == "ready",
                   "the model is back")

    replace(FAULTY / "strata-worker-garbage", {"STRATA_GARBAGE": kind})
    processes = [cluster.popen(*arguments(PROMPTS[i % 4], f"r{i}", 30)) for i in range(6)]
    collect(processes, right)
    # Every process lives, and with an honest one in the liar's place all is as before.
    for process in [cluster.coordinator, *cluster.workers.values()]:
        assert process.process.poll() is None, process.text()
    replace()
    serves(cluster, right, 30)


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "small", "2m") as folder:
        yield folder


def test_a_full_disk_of_a_worker_is_named_and_the_rest_goes_on(tmp_path, small_disk):
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start_worker("w0", data=str(small_disk / "w0"))
        cluster.start_worker("w1")
        (small_disk / "ballast").write_bytes(bytes(1_200_000))
        cluster.run("model", "add", RECALL, "--name", "recall")
        _, err, status = cluster.run("model", "load", "recall", "--layers", "w0:0-3,w1:4-7",
                                     check=False)
        assert status == 1 and "w0" in err and "space" in err.lower(), err
        cluster.load("recall", cuts=[("w1", 0, 7)])
        assert cluster.json(*arguments(PROMPTS[0], "fine", 4))["token_ids"]


def test_a_full_disk_of_the_coordinator_is_said_and_what_runs_goes_on(tmp_path, small_disk):
    with Cluster(tmp_path / "cluster", data_dir=small_disk / "coordinator") as cluster:
        cluster.start_workers(2)
        cluster.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        right = cluster.json(*arguments(PROMPTS[0], "before", 20))["token_ids"]
        with full(small_disk):
            assert cluster.json(*arguments(PROMPTS[0], "during", 20))["token_ids"] == right
            # What would have to be recorded is refused, with the reason.
            _, err, status = cluster.run("model", "resize", "recall", "--kv-tokens", 65536,
                                         check=False)
            assert status == 1 and ("full" in err or "space" in err), err
            assert cluster.coordinator.process.poll() is None
        assert cluster.json(*arguments(PROMPTS[0], "after", 20))["token_ids"] == right


@pytest.mark.parametrize("faults", [15, pytest.param(300, marks=pytest.mark.long)])
def test_random_kills_and_stops_under_sixteen_requests(tmp_path, faults):
    rng = random.Random(faults)
    flags = ["--metrics-listen", "127.0.0.1:0"]
    with start(tmp_path, f"{SLOW}s", flags, lease="5s") as cluster:
        right = right_answers(cluster, 40)
        heap = []  # Of the largest process, as the faults go on.
        running = []
        answered = failed = 0

        def reap(entry):
            nonlocal answered, failed
            i, killed, process = entry
            if killed:
                process.communicate(timeout=GIVE_UP_S)
                return
            wrong = collect([process], [right[i]] * 4)
            failed += wrong
            answered += 1 - wrong

        def ready():
            cluster.revive()
            return cluster.json("model", "list")["models"][0]["state"] == "ready"

        def heap_bytes():
            cluster.revive()
            try:
                return max(cluster.heap_bytes().values())
            except (OSError, AssertionError):  # Of one that has just given up.
                return None

        number = 0
        for fault in range(faults):
            wait_until(ready, "the model is served again")
            # Once every buffer has been needed. A sanitizer counts nothing.
            if SLOW == 1 and fault >= faults // 5:
                heap.append(wait_until(heap_bytes, "all workers say what they have allocated"))
            while len(running) < 16:
                i = rng.randrange(4)
                process = cluster.popen(*arguments(PROMPTS[i], f"n{number}", 40))
                number += 1
                running.append((i, False, process))
            time.sleep(rng.random() * 0.6 * SLOW)
            kind = rng.choice(["kill", "stop", "client", "client", "pause"])
            victim = rng.choice(list(cluster.workers))
            if kind == "kill":
                cluster.workers[victim].kill()
                cluster.workers[victim].process.wait()
                cluster.start_worker(victim, *flags, wait=False)
            elif kind == "stop":
                cluster.workers[victim].kill(signal.SIGSTOP)
                time.sleep(1.5 * SLOW)
                cluster.workers[victim].kill(signal.SIGCONT)
            elif kind == "pause":
                cluster.workers[victim].kill(signal.SIGSTOP)
                time.sleep(0.2)
                cluster.workers[victim].kill(signal.SIGCONT)
            else:
                at = rng.randrange(len(running))
                i, _, process = running[at]
                process.kill()
                running[at] = (i, True, process)
            done = [entry for entry in running if entry[2].poll() is not None]
            running = [entry for entry in running if entry not in done]
            for entry in done:
                reap(entry)
        for entry in running:
            reap(entry)
        assert answered > 0
        serves(cluster, right, 40)
        if SLOW == 1:
            third = len(heap) // 3
            assert max(heap[-third:]) <= 1.25 * max(heap[:third]), heap
        print(f"{faults} faults: {answered} answered, {failed} refused with a typed error")
