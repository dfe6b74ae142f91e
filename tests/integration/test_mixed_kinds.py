"""Plans whose stages are of several kinds, as processes: the CPU's own backend and MLX's, which computes on the CPU here."""

import json
import re
import urllib.request

import numpy as np
import pytest

from cluster import BIN, GIVE_UP_S, GOLDEN, NEVER, RECALL, Cluster, cut, recall_cases, served_cases, wait_until, worker_has_mlx

pytestmark = pytest.mark.skipif(not worker_has_mlx(), reason="this build has no MLX backend: ./dev build --mlx")
POISONED = BIN.parent / "tests" / "strata-worker-poison"
TOLERANCE = 5e-4  # tests/golden/README.md
F32 = {"kv_dtype": "f32", "activations": "f32"}
LAYERS = 8  # Of recall.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("mixed")) as c:
        for name in ("m0", "m1"):
            c.start_worker(name, "--backend", "mlx", wait=False)
        for name in ("c0", "c1"):
            c.start_worker(name, wait=False)
        for name in ("m0", "m1", "c0", "c1"):
            c.wait_node(name)
        yield c


def layers_of(model):
    return json.loads((GOLDEN / "models" / model / "config.json").read_text())["num_hidden_layers"]


def kinds_in(numerics_class):
    """[(kind, first layer, last layer)] of a class that names several."""
    runs = re.findall(r"(?:^|\+)(mlx-2\.[\w.]+|cpu-\d+):(\d+)-(\d+)", numerics_class.split("/")[0])
    return [("mlx" if kind.startswith("mlx") else "cpu", int(first), int(last)) for kind, first, last in runs]


@pytest.mark.parametrize("nodes", [("c0", "m0"), ("m0", "c0"), ("m0", "m1"), ("c0", "m0", "c1")], ids="-".join)
@pytest.mark.parametrize("model", ["llama31-mlx4", "gemma2", "mixtral-mlx4", "deepseek-v2"])
def test_pipelines_of_several_kinds_compute_the_references_results(cluster, model, nodes, tmp_path):
    layers = layers_of(model)
    cuts = cut(nodes[:layers], layers)
    cluster.run("model", "add", GOLDEN / "models" / model, "--name", model, check=False)
    cluster.load(model, cuts=cuts, **F32)
    cases, expected = served_cases(model)
    for case in cases:
        answers = [cluster.generate(model, ids=case["prompt_ids"], max_tokens=24, temperature=0, repetition_penalty=1,
                                    ignore_eos=True, logits=tmp_path / "logits.safetensors") for _ in range(2)]
        assert answers[0]["token_ids"] == case["greedy_ids"], case["name"]
        assert np.abs(answers[0]["logits"] - expected[f"{case['name']}.logits"]).max() <= TOLERANCE, case["name"]
        assert answers[0]["logits"].tobytes() == answers[1]["logits"].tobytes(), "the same class gives the same bits"
        assert "numerics_changes" not in answers[0]
        name = answers[0]["numerics_class"]
        if {node[0] for node in nodes} == {"m"}:
            assert name.startswith("mlx-2.") and ":" not in name, name
        else:
            assert kinds_in(name) == [("mlx" if node[0] == "m" else "cpu", first, last) for node, first, last in cuts], name
    check = cluster.json("model", "check", model)
    assert check["equal"] and len(check.get("reference_nodes", [])) == (0 if nodes == ("m0", "m1") else len(cuts)), check
    cluster.run("model", "unload", model)


def test_a_check_by_a_node_of_another_kind_has_a_tolerance_and_says_it(cluster):
    cluster.run("model", "add", GOLDEN / "models" / "llama", "--name", "llama", check=False)
    for cuts, other, flags, tolerance in (
            ([("c0", 0, 2)], "m0", {}, 0.002), ([("m0", 0, 2)], "c1", {}, 0.002), ([("c0", 0, 2)], "m0", {"quantize": "int8"}, 0.05)):
        cluster.load("llama", cuts=cuts, context=128, **flags)
        for tokens in ("24", "100"):
            check = cluster.json("model", "check", "llama", "--node", other, "--tokens", tokens)
            assert check["equal"] and check["across_node"] == other and check["tolerance"] == tolerance, check
            assert check["reference_node"][0] == cuts[0][0][0], check
            assert 0 < check["largest_difference"] < tolerance, check
        said, _, _ = cluster.run("model", "check", "llama", "--node", other)
        assert f"node '{other}', of other numerics, computes each layer to within" in said
        cluster.run("model", "unload", "llama")
    # In a plan of both kinds a named node computes the layers of its own.
    cluster.load("llama", cuts=[("c0", 0, 0), ("m0", 1, 2)], context=128)
    assert cluster.json("model", "check", "llama", "--node", "m1")["reference_nodes"] == ["c1", "m1"]
    cluster.run("model", "unload", "llama")


@pytest.mark.parametrize("kind", ["mlx", "cpu"])
def test_a_wrong_bit_in_a_mixed_plan_is_found_where_it_was_made(tmp_path, kind):
    layer = 5 if kind == "mlx" else 2
    with Cluster(tmp_path) as c:
        for name, backend in (("box", "cpu"), ("mac", "mlx"), ("box2", "cpu"), ("mac2", "mlx")):
            bad = name == {"mlx": "mac", "cpu": "box"}[kind]
            c.start_worker(name, "--backend", backend, binary=POISONED if bad else None, env={"STRATA_POISON": f"flip:{layer}"} if bad else None)
        c.load("recall", RECALL, cuts=[("box", 0, 3), ("mac", 4, 7)], context=128)
        out, _, status = c.run("model", "check", "recall", "--json", check=False)
        check = json.loads(out)
        assert status == 1 and not check["equal"], check
        assert (check["layer"], check["node"], check["reference_node"]) == (layer, *(("mac", "mac2") if kind == "mlx" else ("box", "box2")))


def test_the_planner_mixes_kinds_where_none_alone_has_room(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_worker("mac", "--backend", "mlx")
        c.start_worker("box")
        c.run("model", "add", RECALL, "--name", "recall")
        flags = ["--context", "256", "--activations", "f32"]
        assert not kinds_in(c.json("plan", "recall", *flags)["numerics_class"])
        most = max(c.json("plan", "recall", *flags, "--goal", "capacity", "--nodes", name)["kv_tokens"] for name in ("mac", "box"))
        flags += ["--kv-tokens", int(1.2 * most)]
        plan = c.json("plan", "recall", *flags)
        assert sorted(kind for kind, _, _ in kinds_in(plan["numerics_class"])) == ["cpu", "mlx"], plan
        assert any("nodes of one kind alone have no room" in sentence for sentence in plan["why"]), plan["why"]
        c.run("model", "load", "recall", *flags)
        answer = c.generate("recall", ids=recall_cases()[0]["prompt_ids"][:30], max_tokens=8, temperature=0)
        assert answer["numerics_class"] == plan["numerics_class"]


def ask(cluster, request_id, prompt, tokens):
    return ["generate", "recall", "--token-ids", ",".join(map(str, prompt)), "--max-tokens", tokens, "--temperature", 0, "--ignore-eos",
            "--request-id", request_id, "--json"]


def test_an_answer_goes_on_on_another_kind_and_says_so_and_the_same_kind_comes_first(tmp_path):
    prompt, tokens = recall_cases()[0]["prompt_ids"][:30], 200
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_worker("mac", "--backend", "mlx")
        c.load("recall", RECALL, cuts=[("mac", 0, LAYERS - 1)], context=512, recovery="move", activations="f32")
        fresh = c.json(*ask(c, "fresh", prompt, tokens))
        for name, backend in (("box", "cpu"), ("mac2", "mlx")):
            c.start_worker(name, "--backend", backend)

        def lose(victim, heir, request_id):
            """An answer whose worker dies in its midst, with the stream of another over HTTP."""
            asked = c.popen(*ask(c, request_id, prompt, tokens))
            streamed = urllib.request.Request(
                f"http://{c.http}/v1/completions", headers={"Content-Type": "application/json"},
                data=json.dumps({"model": "recall", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                                 "stream": True}).encode())
            with urllib.request.urlopen(streamed, timeout=GIVE_UP_S) as stream:
                wait_until(lambda: len(rows := c.json("session", "list")["sessions"]) == 2 and min(s["generated_tokens"] for s in rows) > 5,
                           "both are in their midst")
                c.workers[victim].kill()
                out, err = asked.communicate(timeout=GIVE_UP_S)
                assert asked.returncode == 0, err
                chunks = [json.loads(line[6:]) for line in stream.read().decode().splitlines() if line.startswith("data: {")]
            c.wait_ready("recall")
            assert [s["node"] for s in c.json("model", "show", "recall")["plan"]["stages"]] == [heir]
            prints = list(dict.fromkeys(chunk["system_fingerprint"] for chunk in chunks))
            return json.loads(out), prints

        # Of the same kind: as if nothing had been.
        answer, prints = lose("mac", "mac2", "same")
        assert answer["token_ids"] == fresh["token_ids"] and "numerics_changes" not in answer
        assert prints == [fresh["numerics_class"]]
        # There is no other of it.
        answer, prints = lose("mac2", "box", "other")
        assert answer["numerics_class"] == fresh["numerics_class"]
        (change,) = answer["numerics_changes"]
        assert change["numerics_class"].startswith("cpu-") and 5 < change["token"] < tokens
        assert prints == [fresh["numerics_class"], f"{fresh['numerics_class']} -> {change['numerics_class']}"]
        # Up to there it is the one class's, and from there on the other's.
        assert answer["token_ids"][:change["token"]] == fresh["token_ids"][:change["token"]]
        rest = c.json(*ask(c, "rest", prompt + answer["token_ids"][:change["token"]], tokens - change["token"]))
        assert rest["numerics_class"] == change["numerics_class"] and rest["token_ids"] == answer["token_ids"][change["token"]:]
        assert "numerics_changes" not in rest
        assert "another numerics class" in c.coordinator.text()
        c.nothing_is_left()
