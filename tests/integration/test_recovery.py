"""A node is lost, leaves or is drained in the middle of answers, and the answers go on on other nodes (--recovery move)."""

import itertools
import json
import random
import re
import signal
import time

import pytest

from checkpoints import make_checkpoint
from cluster import BIN, GIVE_UP_S, NEVER, RECALL, SLOW, Cluster, cut, recall_cases, wait_until
from metrics_text import scrape, total

EMULATED = BIN.parent / "tests" / "strata-worker-emulated"
LAYERS = 6
PROMPTS = [[(7 * i * i + 13 * n + 5) % 2000 for i in range(20 + 30 * n)] for n in range(4)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One whose tokens take long enough for something to happen in the midst of an answer."""
    folder = tmp_path_factory.mktemp("models") / "m"
    make_checkpoint(folder, layers=LAYERS, context=1024, stored="bf16")
    return folder


def arguments(prompt, tokens, request_id, name="m"):
    """Without drafts, which would be those of the same answer before: it lasts until something has happened."""
    return ["generate", name, "--token-ids", ",".join(map(str, prompt)), "--max-tokens", tokens, "--temperature", 1,
            "--seed", 7, "--ignore-eos", "--logprobs", 2, "--speculate", "off", "--request-id", request_id, "--json"]


def essence(answer):
    return answer["token_ids"], answer["logprobs"]


def generated(cluster, request_id):
    for session in cluster.json("session", "list")["sessions"]:
        if session["request_id"].endswith(request_id):
            return session["generated_tokens"]
    return 0


def stages(cluster):
    return [(s["node"], s["first_layer"], s["last_layer"]) for s in cluster.json("model", "show", "m")["plan"]["stages"]]


def nodes_of(cluster):
    return {node for node, _, _ in stages(cluster)}


def wait_without(cluster, name):
    """Until the model is ready without a node."""
    wait_until(lambda: name not in nodes_of(cluster), f"the model leaves {name}")
    cluster.wait_ready("m")


class Asked:
    """A request in flight."""

    def __init__(self, cluster, prompt, tokens, request_id):
        self.cluster, self.prompt, self.tokens, self.request_id = cluster, prompt, tokens, request_id
        self.process = cluster.popen(*arguments(prompt, tokens, request_id))

    def reach(self, tokens):
        def there():
            assert self.process.poll() is None, self.process.communicate()
            return generated(self.cluster, self.request_id) >= tokens

        wait_until(there, f"{self.request_id} has {tokens} tokens")

    def reaches(self, tokens):
        """Whether it was seen with so many tokens before it ended: it goes on while it is looked at, and whoever looks may
        be late."""
        def there():
            return self.process.poll() is not None or generated(self.cluster, self.request_id) >= tokens

        wait_until(there, f"{self.request_id} has {tokens} tokens, or has ended")
        return self.process.poll() is None

    def answer(self):
        out, err = self.process.communicate(timeout=GIVE_UP_S)
        assert self.process.returncode == 0, err
        return essence(json.loads(out))


def under_way(asked, at, right):
    """The answer once it has `at` tokens, or, where it ended before that was seen, another one."""
    for again in itertools.count():
        if asked.reaches(at):
            return asked
        assert asked.answer() == right
        asked = Asked(asked.cluster, asked.prompt, asked.tokens, f"{asked.request_id}{again}")


@pytest.mark.parametrize("spare", ["avx2", *(pytest.param(spare, marks=pytest.mark.long) for spare in ("same", "none"))])
def test_one_answer_survives_each_of_its_workers(tmp_path, model, spare):
    tokens = 400 if SLOW == 1 else 120
    drawn = random.Random(3)
    env = {"STRATA_CPU_ISA": "avx2"} if spare == "avx2" else None
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        for i in range(3):
            c.start_worker(f"w{i}")
        c.load("m", model, cuts=cut(["w0", "w1", "w2"], LAYERS), context=512, recovery="move")
        right = essence(c.json(*arguments(PROMPTS[0], tokens, "alone")))
        if spare != "none":
            c.start_worker("w3", env=env)
        asked = Asked(c, PROMPTS[0], tokens, "moved")
        for i in range(3):
            victim = sorted(nodes_of(c))[0]
            asked = under_way(asked, tokens * i // 4 + drawn.randrange(5, tokens // 6), right)
            c.workers[victim].kill()
            wait_without(c, victim)
            c.start_worker(victim, env=env, wait=False)  # The answer does not wait for it.
        assert asked.answer() == right
        assert essence(c.json(*arguments(PROMPTS[0], tokens, "afterwards"))) == right
        c.nothing_is_left()


@pytest.mark.parametrize("stays, goes", [("cpu", "cuda"), ("cuda", "cpu")])
def test_an_answer_goes_on_on_a_backend_of_the_same_class(tmp_path, stays, goes):
    prompt = recall_cases()[0]["prompt_ids"][:30]
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        for name, kind in (("stays", stays), ("goes", goes)):
            if kind == "cuda":
                c.start_worker(name, "--backend", "cuda", binary=EMULATED)
            else:
                c.start_worker(name)
        c.load("m", RECALL, cuts=cut(["stays", "goes"], 8), context=256, recovery="move")
        right = essence(c.json(*arguments(prompt, 30, "alone")))
        asked = Asked(c, prompt, 30, "moved")
        asked.reach(3)
        c.workers["goes"].kill()
        wait_without(c, "goes")
        assert c.node("stays")["backend"] == stays
        assert asked.answer() == right


def test_many_answers_and_those_that_come_meanwhile_go_on_without_a_spare(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        for i in range(3):
            c.start_worker(f"w{i}")
        c.load("m", model, cuts=cut(["w0", "w1", "w2"], LAYERS), context=256, sessions=16, recovery="move")
        right = [essence(c.json(*arguments(PROMPTS[i % 4], 80, f"alone{i}"))) for i in range(4)]
        asked = [Asked(c, PROMPTS[i % 4], 80, f"moved{i}") for i in range(8)]
        asked[0].reach(10)
        c.workers["w1"].kill()
        asked += [Asked(c, PROMPTS[i % 4], 80, f"late{i}") for i in range(4)]
        for i, one in enumerate(asked):
            assert one.answer() == right[i % 4]
        assert "w1" not in nodes_of(c)
        c.nothing_is_left()


def test_where_nothing_fits_requests_wait_and_status_says_what_is_missing(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_worker("big")
        c.load("m", model, context=512, nodes="big", recovery="move")
        right = essence(c.json(*arguments(PROMPTS[0], 100, "alone")))
        asked = Asked(c, PROMPTS[0], 100, "waits")
        asked.reach(5)
        c.workers["big"].kill()

        def problem():
            return [p for p in c.json("status")["problems"] if "cannot do with those that are there" in p["what"]]

        assert "no live worker" in str(wait_until(problem, "status says what is missing"))
        assert asked.process.poll() is None
        c.start_worker("other")
        wait_without(c, "big")
        assert asked.answer() == right


def test_a_stopped_worker_is_replaced_and_comes_back_as_a_new_life(tmp_path, model):
    with Cluster(tmp_path, lease="2s") as c:
        for name in ("stays", "sleeps", "spare"):
            c.start_worker(name)
        c.load("m", model, cuts=cut(["stays", "sleeps"], LAYERS), context=512, recovery="move")
        right = essence(c.json(*arguments(PROMPTS[1], 200, "alone")))
        asked = Asked(c, PROMPTS[1], 200, "moved")
        asked.reach(10)
        with c.stalled("sleeps"):
            assert asked.answer() == right
            assert "sleeps" not in nodes_of(c)
        wait_until(lambda: c.node("sleeps")["state"] == "ready", "it has joined again")
        assert essence(c.json(*arguments(PROMPTS[1], 200, "afterwards"))) == right


def test_a_worker_that_is_told_to_stop_hands_its_requests_over(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        for name in ("stays", "leaves"):
            c.start_worker(name, drain="300s")
        c.load("m", model, cuts=cut(["stays", "leaves"], LAYERS), context=512, sessions=8, recovery="move")
        right = essence(c.json(*arguments(PROMPTS[1], 300, "alone")))
        asked = [Asked(c, PROMPTS[1], 300, f"moved{i}") for i in range(4)]
        asked[0].reach(10)
        worker = c.workers["leaves"]
        worker.kill(signal.SIGTERM)
        # There are answers under way until it has left, however long the load on the other node takes.
        waited = 0
        while worker.process.poll() is None:
            if asked[0].process.poll() is not None:
                assert asked.pop(0).answer() == right
                asked.append(Asked(c, PROMPTS[1], 300, f"later{waited}"))
                waited += 1
            time.sleep(0.02)
        assert worker.wait() == 0
        for one in asked:
            assert one.answer() == right
        assert nodes_of(c) == {"stays"}


def test_a_drained_node_hands_its_requests_over(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        for name in ("stays", "drained", "spare"):
            c.start_worker(name)
        c.load("m", model, cuts=cut(["stays", "drained"], LAYERS), context=512, sessions=16, recovery="move")
        right = essence(c.json(*arguments(PROMPTS[1], 150, "alone")))
        asked = [Asked(c, PROMPTS[1], 150, f"moved{i}") for i in range(16)]
        asked[0].reach(5)
        c.run("node", "drain", "drained")
        wait_without(c, "drained")
        for one in asked:
            assert one.answer() == right
        assert not c.json("node", "show", "drained")["models"]


def test_after_a_restart_without_one_of_its_nodes_the_model_is_placed_on_others(tmp_path, model):
    with Cluster(tmp_path, placement_grace="1s", lease="2s") as c:
        for name in ("stays", "goes", "spare"):
            c.start_worker(name)
        c.load("m", model, cuts=cut(["stays", "goes"], LAYERS), context=512, recovery="move")
        right = essence(c.json(*arguments(PROMPTS[0], 20, "before")))
        listen = c.address
        c.coordinator.kill()
        c.workers["goes"].kill()
        time.sleep(0.2)
        c.start_coordinator(listen)
        wait_until(lambda: c.node("stays") and "goes" not in nodes_of(c), "the model leaves the lost node")
        c.wait_ready("m")
        assert essence(c.json(*arguments(PROMPTS[0], 20, "after"))) == right


@pytest.mark.parametrize("recovery", ["wait", "off"])
def test_whoever_chose_the_nodes_keeps_them(tmp_path, model, recovery):
    with Cluster(tmp_path, step_timeout=NEVER, recovery_timeout="10ms") as c:
        for name in ("stays", "goes", "spare"):
            c.start_worker(name)
        flags = {} if recovery == "wait" else {"recovery": "off"}  # wait is what --layers has by default.
        c.load("m", model, cuts=cut(["stays", "goes"], LAYERS), context=512, **flags)
        asked = Asked(c, PROMPTS[0], 400, "r")
        asked.reach(5)
        c.workers["goes"].kill()
        if recovery == "wait":
            c.start_worker("goes")
            asked.answer()
        else:
            _, err = asked.process.communicate(timeout=GIVE_UP_S)
            assert asked.process.returncode == 1 and "goes" in err and "lost" in err, err
        assert nodes_of(c) == {"stays", "goes"}


def metric(cluster, name):
    return total(scrape(cluster.http), name)


def refused(cluster, *command):
    _, err, status = cluster.run(*command, check=False)
    assert status == 1, err
    return err


def test_a_model_is_moved_by_hand_while_it_answers(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER, lease=NEVER, load_timeout=NEVER) as c:
        for name in ("stays", "left", "taken"):
            c.start_worker(name)
        c.run("model", "add", model, "--name", "m")
        assert "is not loaded" in refused(c, "model", "move", "m")
        c.load("m", cuts=cut(["stays", "left"], LAYERS), context=512, sessions=8)
        right = [essence(c.json(*arguments(PROMPTS[i], 80, f"alone{i}"))) for i in range(2)]
        before = stages(c)
        layers = ",".join(f"{n}:{a}-{b}" for n, a, b in cut(["stays", "taken"], LAYERS))
        plan = c.json("model", "move", "m", "--layers", layers, "--plan-only")
        assert [s["node"] for s in plan["stages"]] == ["stays", "taken"] and stages(c) == before
        asked = [Asked(c, PROMPTS[i % 2], 80, f"moved{i}") for i in range(8)]
        asked[0].reach(5)
        with c.stalled("taken"):
            out, _, _ = c.run("model", "move", "m", "--layers", layers, "--detach")
            assert "m is on its way to" in out
            shown = c.json("model", "show", "m")
            assert shown["state"] == "ready" and [s["node"] for s in shown["moves_to"]["stages"]] == ["stays", "taken"]
            assert any("node taken to load layers" in w["what"] for w in c.json("status")["waits"])
            assert "is being moved to other nodes already" in refused(c, "model", "move", "m", "--nodes", "stays")
            assert "is being moved to other nodes" in refused(c, "model", "resize", "m", "--kv-tokens", 512)
            reached = generated(c, "moved0")
            asked[0].reach(reached + 5)  # What serves goes on.
            assert stages(c) == before
        wait_without(c, "left")
        for i, one in enumerate(asked):
            assert one.answer() == right[i % 2]
        assert metric(c, "strata_faults_total") == 0
        assert "links are opened ahead" in c.coordinator.text()
        assert "KV is taken over from the stage before" in c.workers["taken"].text()
        assert metric(c, "strata_rebuilds_total") == 0
        assert not c.json("node", "show", "left")["models"]
        assert essence(c.json(*arguments(PROMPTS[0], 80, "afterwards"))) == right[0]
        # A node that has layers of both placements, other ones, holds both meanwhile; and layers bring their KV from
        # whichever node had them, where they are cut otherwise, and where nodes swap theirs.
        for again, nodes in enumerate((["taken", "left", "stays"], ["stays", "left", "taken"], ["left", "stays"])):
            asked = [Asked(c, PROMPTS[i % 2], 80, f"again{again}-{i}") for i in range(8)]
            asked[0].reach(5)
            moved = c.json("model", "move", "m", "--layers", ",".join(f"{n}:{a}-{b}" for n, a, b in cut(nodes, LAYERS)))
            assert moved["ready"] and [node for node, _, _ in stages(c)] == nodes
            for i, one in enumerate(asked):
                assert one.answer() == right[i % 2]
            assert metric(c, "strata_faults_total") == 0
            assert metric(c, "strata_rebuilds_total") == 0
        # What `left` then had of layers 2 and 3 had been on two nodes; what `taken` had of 4 and 5 on one.
        assert re.search(r"KV is taken over from the stage before .* from=stays,taken ", c.workers["left"].text())
        assert re.search(r"KV is taken over from the stage before .* from=stays ", c.workers["taken"].text())
        c.nothing_is_left()


def test_a_move_that_fails_leaves_the_model_where_it_is(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER, lease=NEVER, load_timeout=NEVER) as c:
        for name in ("stays", "left", "taken"):
            c.start_worker(name)
        c.load("m", model, cuts=cut(["stays", "left"], LAYERS), context=512, sessions=8)
        right = essence(c.json(*arguments(PROMPTS[0], 80, "alone")))
        before = stages(c)
        asked = Asked(c, PROMPTS[0], 80, "r")
        asked.reach(5)
        with c.stalled("taken"):
            c.run("model", "move", "m", "--nodes", "taken", "--detach")
            c.workers["taken"].kill()

        def problem():
            return [p for p in c.json("status")["problems"] if "a move was given up" in p["what"]]

        assert "'taken'" in wait_until(problem, "status says that it was given up")[0]["what"]
        assert "taken" in c.json("model", "show", "m")["move_problem"]
        assert stages(c) == before and asked.answer() == right
        assert metric(c, "strata_faults_total") == 0


def test_a_model_goes_to_faster_nodes_that_join(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER, stall_timeout="0s", better_after="1s") as c:
        for name in ("a", "b"):
            c.start_worker(name)
        c.load("m", model, cuts=cut(["a", "b"], LAYERS), context=512, recovery="move", quantize="none")
        right = essence(c.json(*arguments(PROMPTS[0], 200, "alone")))
        faster = c.json("plan", "m", "--context", 512, "--quantize", "none")["predicted_tokens_per_s"]
        if faster < 1.2 * c.json("model", "show", "m")["plan"]["predicted_tokens_per_s"]:
            pytest.skip("one node is not a fifth faster than two, as they are measured here")
        asked = under_way(Asked(c, PROMPTS[0], 200, "r"), 5, right)
        c.start_worker("c", wait=False)
        wait_until(lambda: len(stages(c)) == 1, "the model has one stage")
        assert asked.answer() == right
        assert metric(c, "strata_faults_total") == 0
