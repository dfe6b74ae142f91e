"""A request that makes a stage fail, in any way, fails alone: with its id, the stage and the reason.
The requests of the same steps get their answers as if it had never come.

strata-worker-poison is a worker of the tests to which some token ids are poison (STRATA_POISON).
"""

import contextlib
import json
import random
import re
import threading

import pytest

from cluster import BIN, GIVE_UP_S, NEVER, RECALL, SLOW, Cluster, wait_until

POISONED = BIN.parent / "tests" / "strata-worker-poison"
CUTS = [("w0", 0, 3), ("w1", 4, 7)]
HANG, NAN, FAIL, CRASH = 989, 990, 991, 992
POISON = {"STRATA_POISON": f"nan:{NAN},fail:{FAIL},crash:{CRASH},hang:{HANG}"}
TOKENS = 300


def arguments(prompt, request_id):
    return ["generate", "recall", "--token-ids", ",".join(map(str, prompt)), "--max-tokens",
            TOKENS, "--temperature", 0, "--ignore-eos", "--logprobs", 1, "--request-id",
            request_id, "--json"]


def essence(answer):
    return answer["token_ids"], [entry["logprob"] for entry in answer["logprobs"]]


class Poisoned:
    """Two stages, of which `victim` is poisoned, and is started again whenever it has died."""

    def __init__(self, folder, victim, step_timeout=NEVER):
        self.victim = victim
        self.cluster = Cluster(folder, step_timeout=step_timeout, recovery_timeout=NEVER)
        for name, _, _ in CUTS:
            self.start(name)
        # Answers last until the request that breaks something has come.
        self.cluster.load("recall", RECALL, cuts=CUTS, context=512, sessions=12, speculate="off")
        self.deaths = 0
        self.over = threading.Event()
        self.keeper = threading.Thread(target=self.keep)
        self.keeper.start()

    def start(self, name):
        poisoned = name == self.victim
        self.cluster.start_worker(name, binary=POISONED if poisoned else None,
                                  env=POISON if poisoned else None)

    def keep(self):
        while not self.over.wait(0.02):
            worker = self.cluster.workers[self.victim]
            if worker.process.poll() is not None:
                worker.killed = True  # By what it computed: the test's deed.
                self.deaths += 1
                self.cluster.start_worker(self.victim, binary=POISONED, env=POISON, wait=False)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.over.set()
        self.keeper.join()
        return self.cluster.__exit__(*exception)


def prompts(rng, count):
    return [[rng.randrange(900) for _ in range(rng.choice([3, 17, 40]))] for _ in range(count)]


@contextlib.contextmanager
def requests(folder, victim, **flags):
    with Poisoned(folder, victim, **flags) as there:
        rng = random.Random(3)
        there.prompts = prompts(rng, 7)
        there.right = [essence(there.cluster.json(*arguments(p, f"alone-{i}")))
                       for i, p in enumerate(there.prompts)]
        yield there


@pytest.fixture(scope="module", params=["w0", "w1"])
def poisoned(request, tmp_path_factory):
    with requests(tmp_path_factory.mktemp(request.param), request.param) as there:
        yield there


def fails_alone(poisoned, token, reason, most_deaths):
    cluster = poisoned.cluster
    deaths = poisoned.deaths
    running = [cluster.popen(*arguments(p, f"r{i}")) for i, p in enumerate(poisoned.prompts)]
    wait_until(lambda: sum(s["generated_tokens"] > 0
                           for s in cluster.json("session", "list")["sessions"]) > 3,
               "several of them generate")
    bad = cluster.popen(*arguments([5, 6, 7, token], "poison"))
    out, err = bad.communicate(timeout=GIVE_UP_S)
    assert bad.returncode == 1, out
    assert '"poison"' in err and re.search(reason, err), err
    stage = [name for name, _, _ in CUTS].index(poisoned.victim)
    assert f'stage {stage} on node "{poisoned.victim}"' in err, err
    for i, process in enumerate(running):
        out, err = process.communicate(timeout=GIVE_UP_S)
        assert process.returncode == 0, err
        assert essence(json.loads(out)) == poisoned.right[i], f"r{i}"
    assert poisoned.deaths - deaths <= most_deaths
    assert (poisoned.deaths > deaths) == (most_deaths > 0)
    # And it goes on as if nothing had been.
    assert essence(cluster.json(*arguments(poisoned.prompts[0], "after"))) == poisoned.right[0]
    cluster.nothing_is_left()


@pytest.mark.parametrize("token, reason, most_deaths", [
    (NAN, "not finite|is .inf", 0), (FAIL, "the backend failed", 0), (CRASH, "were lost", 4)])
def test_a_request_that_breaks_a_stage_fails_alone(poisoned, token, reason, most_deaths):
    fails_alone(poisoned, token, reason, most_deaths)


def test_a_request_that_hangs_a_stage_fails_alone(tmp_path):
    with requests(tmp_path, "w1", step_timeout=f"{2 * SLOW}s") as poisoned:
        fails_alone(poisoned, HANG, "were lost", 4)
