"""Stages that several workers compute together (--ranks, --layers a+b:0-7): the same tokens as on one worker."""

import concurrent.futures
import itertools
import pathlib
import re
import socket

import pytest

from checkpoints import make_checkpoint
from cluster import GOLDEN, NEVER, SLOW, Cluster, Failed, served_cases, wait_until
from test_recovery import PROMPTS, Asked, arguments, essence, under_way
from test_tls import make_authority, make_identity

LLAMA_LAYERS = 3
LAYERS = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One whose tokens take long enough for something to happen in the midst of an answer."""
    folder = tmp_path_factory.mktemp("models") / "m"
    make_checkpoint(folder, layers=LAYERS, context=1024, stored="bf16")
    return folder


def plan_of(cluster, model):
    return cluster.json("model", "show", model)["plan"]


def ranks_of(cluster, model):
    """By stage, the nodes of its ranks."""
    return [[rank["node"] for rank in stage["ranks"]] for stage in plan_of(cluster, model)["stages"]]


def wait_without(cluster, name):
    wait_until(lambda: name not in itertools.chain(*ranks_of(cluster, "m")), f"the model leaves {name}")
    cluster.wait_ready("m")


def greedy(cluster, model, case):
    return cluster.generate(model, ids=case["prompt_ids"], max_tokens=len(case["greedy_ids"]), temperature=0,
                            ignore_eos=True)["token_ids"]


def expect_golden(cluster, model, cases):
    for case in cases:
        assert greedy(cluster, model, case) == case["greedy_ids"], case["name"]


@pytest.mark.parametrize("name", ["llama", "gemma2", "mixtral"])
def test_ranks_give_the_golden_ids_however_stages_are_divided(tmp_path, name):
    cases = served_cases(name)[0]
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_workers(3)
        c.run("model", "add", GOLDEN / "models" / name, "--name", name)
        layers = c.json("model", "show", name)["layers"]
        divided = [["--ranks", "2"], ["--ranks", "3"], ["--layers", f"w0=2+w1=1+w2=1:0-{layers - 1}"],
                   ["--layers", f"w2:0-0,w1+w0:1-{layers - 1}"]]
        for how in divided:
            c.run("model", "load", name, *how)
            expect_golden(c, name, cases)
            c.nothing_is_left()
        assert ranks_of(c, name) == [["w2"], ["w1", "w0"]]
        # The record says it: after a restart the same ranks are joined.
        before = plan_of(c, name)
        c.coordinator.terminate()
        c.coordinator.wait()
        c.start_coordinator(listen=c.address)
        c.wait_ready(name)
        assert [s["ranks"] for s in plan_of(c, name)["stages"]] == [s["ranks"] for s in before["stages"]]
        expect_golden(c, name, cases)
        c.run("model", "unload", name)


def test_plan_says_what_each_rank_has_and_load_keeps_to_it(tmp_path):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_workers(3)
        c.run("model", "add", GOLDEN / "models" / "llama", "--name", "llama")
        layers = f"w0=2+w1=1+w2=1:0-{LLAMA_LAYERS - 1}"
        plan = c.json("plan", "llama", "--layers", layers)
        (stage,) = plan["stages"]
        assert [(r["node"], r["share"]) for r in stage["ranks"]] == [("w0", 0.5), ("w1", 0.25), ("w2", 0.25)]
        assert sum(r["weight_bytes"] for r in stage["ranks"]) == stage["weight_bytes"]
        assert sum(r["kv_bytes"] for r in stage["ranks"]) == stage["kv_bytes"]
        assert any("to gather" in why for why in plan["why"])
        compared = r"With --ranks [23] one token would take .* a prompt of [0-9]+ tokens .* instead of .*"
        assert any(re.match(compared, why) for why in c.json("plan", "llama", "--ranks", "1")["why"])
        # By default too, where they are not taken: these workers are on one machine.
        default = c.json("plan", "llama")
        assert all(len(stage["ranks"]) == 1 for stage in default["stages"])
        assert any(re.match(compared + "Not taken unasked: nodes w. and w. are of one machine", why) for why in default["why"])
        assert any(why.startswith("With one node a stage one token") for why in c.json("plan", "llama", "--ranks", "2")["why"])
        c.run("model", "load", "llama", "--layers", layers)
        (loaded,) = plan_of(c, "llama")["stages"]
        assert loaded["ranks"] == stage["ranks"]
        assert "w0+w1+w2" in c.run("model", "list")[0]
        held = {node["name"]: node["models"] for node in c.json("node", "list")["nodes"] if "models" in node}
        assert all("with 2 more" in str(models) for models in held.values())
        # The KV is another from here on, on each rank; and what a check compares is equal.
        c.run("model", "resize", "llama", "--kv-tokens", "4096")
        (resized,) = plan_of(c, "llama")["stages"]
        assert [r["share"] for r in resized["ranks"]] == [0.5, 0.25, 0.25]
        assert resized["kv_tokens"] != loaded["kv_tokens"]
        expect_golden(c, "llama", served_cases("llama")[0][:1])
        assert c.json("model", "check", "llama")["equal"]


def test_machines_compute_stages_together_by_default_where_that_wins(tmp_path):
    model = GOLDEN.parent / "planning" / "models" / "llama-3.3-70b.json"

    def planned(c, latency_ms, *how):
        machines = tmp_path / "machines.toml"
        machines.write_text(f"[network]\ngbit-s = 10\nlatency-ms = {latency_ms}\n" + "".join(
            f'[machines.{name}]\nmemory = "100GiB"\nread-gb-s = 300\ntflop-s = 4\n' for name in ("a", "b")))
        plan = c.json("plan", model, "--machines", machines, "--quantize", "int4", *how)
        return [[rank["node"] for rank in stage["ranks"]] for stage in plan["stages"]], plan["why"]

    with Cluster(tmp_path / "cluster", step_timeout=NEVER) as c:
        ranks, why = planned(c, 0.02)
        assert ranks == [["a", "b"]]
        assert any("So --ranks 2 is taken" in sentence for sentence in why)
        ranks, why = planned(c, 0.5)
        assert len(ranks[0]) == 1
        assert any("Not taken unasked: less than 1.2 times as many tokens" in sentence for sentence in why)
        assert len(planned(c, 0.02, "--ranks", "1")[0][0]) == 1
        assert planned(c, 0.5, "--ranks", "2")[0] == [["a", "b"]]


def test_concurrent_requests_are_those_of_one_worker(tmp_path, model):
    tokens = 60 if SLOW == 1 else 24
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_workers(3)
        c.load("m", model, cuts=[("w0", 0, LAYERS - 1)], context=512)

        def ask(numbered):
            number, prompt = numbered
            return essence(c.json(*arguments(prompt, tokens, f"r{number}")))

        with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as threads:
            alone = list(threads.map(ask, enumerate(PROMPTS)))
            for how in (["--ranks", "2"], ["--layers", f"w0=2+w1=1+w2=1:0-{LAYERS - 1}"],
                        ["--layers", f"w0+w1:0-2,w2:3-{LAYERS - 1}"]):
                c.run("model", "load", "m", "--context", "512", *how)
                assert list(threads.map(ask, enumerate(PROMPTS))) == alone, how
        c.nothing_is_left()


@pytest.mark.parametrize("victim", [0, 1], ids=["the first rank", "a rank that follows"])
def test_an_answer_survives_the_loss_of_a_rank(tmp_path, model, victim):
    tokens = 160 if SLOW == 1 else 80
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_workers(3)
        c.load("m", model, ranks="2", context=512)
        right = essence(c.json(*arguments(PROMPTS[0], tokens, "alone")))
        (before,) = ranks_of(c, "m")
        assert len(before) == 2
        asked = under_way(Asked(c, PROMPTS[0], tokens, "moved"), tokens // 4, right)
        c.workers[before[victim]].kill()
        wait_without(c, before[victim])
        assert asked.answer() == right
        (after,) = ranks_of(c, "m")
        assert len(after) == 2 and before[victim] not in after
        # One node is left of three: the model goes on there alone, in the same bits.
        asked = under_way(Asked(c, PROMPTS[0], tokens, "alone-at-last"), tokens // 4, right)
        c.workers[after[0]].kill()
        wait_without(c, after[0])
        assert asked.answer() == right
        assert ranks_of(c, "m") == [[after[1]]]
        c.nothing_is_left()


def test_a_model_goes_back_to_its_ranks_when_a_node_returns(tmp_path, model):
    tokens = 160 if SLOW == 1 else 80
    with Cluster(tmp_path, step_timeout=NEVER, better_after="1s") as c:
        c.start_workers(2)
        c.load("m", model, ranks="2", context=512)
        right = essence(c.json(*arguments(PROMPTS[0], tokens, "alone")))
        (before,) = ranks_of(c, "m")
        c.workers["w1"].kill()
        wait_without(c, "w1")
        assert ranks_of(c, "m") == [["w0"]]
        asked = under_way(Asked(c, PROMPTS[0], tokens, "meanwhile"), tokens // 4, right)
        c.start_worker("w1")
        wait_until(lambda: sorted(itertools.chain(*ranks_of(c, "m"))) == sorted(before), "the model has its ranks again")
        c.wait_ready("m")
        assert asked.answer() == right
        assert len(ranks_of(c, "m")) == 1
        assert essence(c.json(*arguments(PROMPTS[0], tokens, "again"))) == right
        c.nothing_is_left()


def test_a_model_that_waits_for_its_nodes_waits_for_each_rank(tmp_path, model):
    tokens = 120 if SLOW == 1 else 60
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_workers(2)
        c.load("m", model, context=512, layers=f"w0+w1:0-{LAYERS - 1}")  # Waits, as named nodes do.
        right = essence(c.json(*arguments(PROMPTS[0], tokens, "alone")))
        asked = under_way(Asked(c, PROMPTS[0], tokens, "waited"), tokens // 4, right)
        c.workers["w1"].kill()
        c.start_worker("w1")
        assert asked.answer() == right
        c.wait_ready("m")
        assert ranks_of(c, "m") == [["w0", "w1"]]
        c.nothing_is_left()


def test_an_answer_goes_on_when_a_rank_is_drained_and_when_stages_move(tmp_path, model):
    tokens = 120 if SLOW == 1 else 60
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_workers(3)
        c.load("m", model, ranks="2", context=512)
        right = essence(c.json(*arguments(PROMPTS[0], tokens, "alone")))
        (before,) = ranks_of(c, "m")
        asked = under_way(Asked(c, PROMPTS[0], tokens, "drained"), tokens // 4, right)
        c.run("node", "drain", before[1])
        wait_without(c, before[1])
        assert asked.answer() == right
        c.run("node", "resume", before[1])
        asked = under_way(Asked(c, PROMPTS[0], tokens, "moved"), tokens // 4, right)
        c.run("model", "move", "m", "--layers", f"w0:0-2,w2=3+w1=1:3-{LAYERS - 1}")
        assert asked.answer() == right
        assert ranks_of(c, "m") == [["w0"], ["w2", "w1"]]
        assert [rank["share"] for rank in plan_of(c, "m")["stages"][1]["ranks"]] == [0.75, 0.25]
        c.nothing_is_left()


def test_what_ranks_cannot_be_is_refused_with_what_to_do(tmp_path):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_workers(2)
        c.run("model", "add", GOLDEN / "models" / "llama", "--name", "llama")

        def refused(*how, status=1):
            with pytest.raises(Failed) as failed:
                c.run("model", "load", "llama", *how)
            assert failed.value.status == status, failed.value
            return failed.value.err

        assert re.search(r"--ranks 3 needs 3 CPU nodes .* there are 2.*start more workers", refused("--ranks", "3"))
        assert "without --standby" in refused("--ranks", "2", "--standby", "1")
        last = LLAMA_LAYERS - 1
        assert "leave --ranks out" in refused("--ranks", "2", "--layers", f"w0:0-{last}")
        assert "shares to some" in refused("--layers", f"w0=2+w1:0-{last}")
        assert "SHARE" in refused("--layers", f"w0=2:0-{last}", status=2)
        assert "SHARE" in refused("--layers", f"w0=0+w1=1:0-{last}", status=2)
        assert "--ranks" in refused("--ranks", "9", status=2)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def connected_ports():
    """Local ports of this machine at which connections stand."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "01"}


def test_followers_listen_where_they_are_told(tmp_path):
    ports = {name: free_port() for name in ("w0", "w1", "w2")}
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        for name, port in ports.items():
            c.start_worker(name, "--ranks-listen", f"127.0.0.1:{port}")
        c.run("model", "add", GOLDEN / "models" / "llama", "--name", "llama")
        for nodes in ("w0+w1+w2", "w0+w2+w1"):  # Joined anew at the same ports.
            c.run("model", "load", "llama", "--layers", f"{nodes}:0-{LLAMA_LAYERS - 1}")
            expect_golden(c, "llama", served_cases("llama")[0][:1])
            assert {ports["w1"], ports["w2"]} <= connected_ports()
        refused = c.start_worker("w3", "--ranks-listen", f"127.0.0.1:{c.address.split(':')[1]}", wait=False)
        assert refused.wait() == 1 and "--ranks-listen" in refused.text()
        refused.kill()  # It has ended as it should: no process of the cluster failed.


def test_a_rank_waits_for_a_sign_of_the_first_one_for_as_long_as_its_worker_is_told(tmp_path):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_worker("w0")  # It gives a sign every second.
        follower = c.start_worker("w1", "--rank-silence", "300ms")
        c.run("model", "add", GOLDEN / "models" / "llama", "--name", "llama")
        c.run("model", "load", "llama", "--layers", f"w0+w1:0-{LLAMA_LAYERS - 1}")
        greedy(c, "llama", served_cases("llama")[0][0])
        wait_until(lambda: "(w0) was silent for 300 ms" in follower.text(), "w1 misses a sign of w0")


def test_ranks_of_a_cluster_with_certificates_give_the_golden_ids(tmp_path):
    authority = make_authority(tmp_path / "ca")
    identity = make_identity(authority, "here", "127.0.0.1")
    with Cluster(tmp_path / "cluster", tls_dir=identity, step_timeout=NEVER) as c:
        c.start_workers(3)
        c.run("model", "add", GOLDEN / "models" / "llama", "--name", "llama")
        c.run("model", "load", "llama", "--ranks", "3")
        expect_golden(c, "llama", served_cases("llama")[0])
