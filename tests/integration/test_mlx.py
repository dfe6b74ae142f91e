"""Workers on MLX, as processes. On Linux its library computes on the CPU (docs/MLX.md)."""

import concurrent.futures
import json
import random
import re
import urllib.request

import numpy as np
import pytest

from cluster import (BIN, GIVE_UP_S, GOLDEN, NEVER, RECALL, Cluster, Failed, cut, golden_cases, recall_cases, served_cases, wait_until,
                     worker_has_mlx)

pytestmark = pytest.mark.skipif(not worker_has_mlx(), reason="this build has no MLX backend: ./dev build --mlx")
WORKERS = [f"m{i}" for i in range(4)]
TOLERANCE = 5e-4  # tests/golden/README.md
HANGS_S = 3600  # Nothing that goes on takes as long, however busy the machine is.
F32 = {"kv_dtype": "f32", "activations": "f32"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("mlx")) as c:
        for name in WORKERS:
            c.start_worker(name, "--backend", "mlx", wait=False)
        c.start_worker("host", wait=False)
        for name in [*WORKERS, "host"]:
            c.wait_node(name)
        yield c


def cuts_of(model, stages):
    config = json.loads((GOLDEN / "models" / model / "config.json").read_text())
    layers = config["num_hidden_layers"]
    return cut(WORKERS[:min(stages, layers)], layers)


def load(cluster, model, stages, **flags):
    cluster.run("model", "add", GOLDEN / "models" / model, "--name", model, check=False)
    cluster.load(model, cuts=cuts_of(model, stages), **flags)


@pytest.mark.parametrize("model", ["llama31-mlx4", "llama31-mlx8", "qwen3-mlx4", "qwen3-mlx4-g32", "llama", "gemma2", "phi3-longrope",
                                   "mixtral-mlx4", "deepseek-v2"])
def test_logits_are_the_references_and_the_same_bits_on_every_partition(cluster, model, tmp_path):
    bits = set()
    cases, expected = served_cases(model)
    for stages in (1, 2, 4):
        load(cluster, model, stages, **F32)
        for case in cases:
            answer = cluster.generate(model, ids=case["prompt_ids"], max_tokens=24, temperature=0, repetition_penalty=1,
                                      ignore_eos=True, logits=tmp_path / "logits.safetensors")
            assert answer["token_ids"] == case["greedy_ids"], case["name"]
            assert answer["numerics_class"].startswith("mlx-2."), answer["numerics_class"]
            assert np.abs(answer["logits"] - expected[f"{case['name']}.logits"]).max() <= TOLERANCE, case["name"]
            bits.add((case["name"], answer["logits"].tobytes()))
        cluster.run("model", "unload", model)
    assert len(bits) == len(cases)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_requests_one_after_another_beside_others_and_abandoned_answer_as_fresh_ones(cluster, stages):
    """A request of 39 tokens, a second behind it, many short ones, several at once, one given up, ids used again."""
    model = "qwen3-mlx4"
    load(cluster, model, stages, activations="f32", context=512)
    draw = random.Random(7)
    prompts = [[draw.randrange(3, 200) for _ in range(39)] for _ in range(4)]

    def ask(prompt, request_id, tokens=20):
        return cluster.generate(model, ids=prompt, max_tokens=tokens, temperature=0, repetition_penalty=1, ignore_eos=True,
                                logprobs=2, request_id=request_id)

    def essence(answer):
        return answer["token_ids"], answer["logprobs"]

    fresh = [essence(ask(prompt, f"fresh-{i}")) for i, prompt in enumerate(prompts)]
    # A second turn: the first one's tokens and answer, and more.
    second = prompts[0] + fresh[0][0] + prompts[1][:18]
    behind = essence(ask(second, "second"))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for round_ in range(4):
            abandoned = cluster.popen("generate", model, "--token-ids", ",".join(map(str, second)), "--max-tokens", "300",
                                      "--temperature", "0", "--ignore-eos", "--request-id", "abandoned")
            together = [pool.submit(ask, prompt, f"again-{i}") for i, prompt in enumerate(prompts)]
            assert [essence(one.result()) for one in together] == fresh, round_
            abandoned.kill()
            abandoned.communicate()
    # Others' pages were used meanwhile.
    assert essence(ask(second, "second")) == behind
    cluster.run("model", "unload", model)


def test_activations_are_floats_where_all_nodes_are_mlx_s_and_int8_is_refused(cluster):
    model = "llama31-mlx4"
    load(cluster, model, 2)
    assert "act=f32" in cluster.json("model", "show", model)["plan"]["numerics_class"]
    cluster.run("model", "unload", model)
    with pytest.raises(Failed) as failed:
        load(cluster, model, 2, activations="int8")
    assert "float32 activations alone" in str(failed.value) and "--activations f32" in str(failed.value)
    # Among others it is left out, and the plan says why.
    plan = cluster.json("plan", model, "--activations", "int8")
    assert "act=int8" in plan["numerics_class"]
    assert any("Node m0 is left out: it computes as mlx-2." in sentence for sentence in plan["why"]), plan["why"]


def test_a_kv_of_two_bytes_and_quantized_weights_answer_alike_on_every_partition(cluster):
    case = max(golden_cases("llama")[0], key=lambda c: len(c["prompt_ids"]))
    answers = []
    for stages in (1, 2):
        load(cluster, "llama", stages, quantize="int4", activations="f32")
        answer = cluster.generate("llama", ids=case["prompt_ids"], max_tokens=24, temperature=0, ignore_eos=True, logprobs=3)
        assert re.fullmatch(r"mlx-2\.\w+\.[\d.]+/w=int4,head=int8,act=f32/kv=f16", answer["numerics_class"])
        answers.append((answer["token_ids"], answer["logprobs"]))
        cluster.run("model", "unload", "llama")
    assert answers[0] == answers[1]


@pytest.mark.parametrize("victim", ["first", "last"])
@pytest.mark.parametrize("token, reason", [(990, "not finite|is .inf"), (991, "the backend failed")], ids=["number", "call"])
def test_a_failure_below_a_pipeline_fails_one_request_and_the_others_of_its_steps_go_on(tmp_path, victim, token, reason):
    """tests/faults/poison_backend.cc around MLX: token 990 comes to no number, and with 991 a call fails."""
    prompt = recall_cases()[0]["prompt_ids"][:20]

    def arguments(last, request_id):
        return ["generate", "recall", "--token-ids", ",".join(map(str, [*prompt, last])), "--max-tokens", 60, "--temperature", 0,
                "--ignore-eos", "--logprobs", 1, "--request-id", request_id, "--json"]

    def essence(answer):
        return answer["token_ids"], answer["logprobs"]

    with Cluster(tmp_path, step_timeout=NEVER, recovery_timeout=NEVER) as c:
        for name in ("first", "last"):
            bad = name == victim
            c.start_worker(name, "--backend", "mlx", binary=BIN.parent / "tests" / "strata-worker-poison" if bad else None,
                           env={"STRATA_POISON": "nan:990,fail:991"} if bad else None)
        c.load("recall", RECALL, cuts=[("first", 0, 3), ("last", 4, 7)], context=256, sessions=8, activations="f32")
        right = [essence(c.json(*arguments(100 + i, f"alone-{i}"))) for i in range(5)]
        running = [c.popen(*arguments(100 + i, f"r{i}")) for i in range(5)]
        wait_until(lambda: sum(s["generated_tokens"] > 0 for s in c.json("session", "list")["sessions"]) > 3, "several of them generate")
        bad = c.popen(*arguments(token, "poison"))
        out, err = bad.communicate(timeout=GIVE_UP_S)
        assert bad.returncode == 1, out
        assert '"poison"' in err and re.search(reason, err) and f'on node "{victim}"' in err, err
        for i, process in enumerate(running):
            out, err = process.communicate(timeout=GIVE_UP_S)
            assert process.returncode == 0, err
            assert essence(json.loads(out)) == right[i], i
        assert essence(c.json(*arguments(100, "after"))) == right[0]
        c.nothing_is_left()


@pytest.mark.long
def test_memory_is_flat_over_five_thousand_requests(tmp_path):
    rounds, requests = 11, 500
    with Cluster(tmp_path) as c:
        worker = c.start_worker("mac", "--backend", "mlx", "--metrics-listen", "127.0.0.1:0")
        address = worker.wait_for(r"^metrics listening on (\S+)").group(1)
        c.load("qwen3-mlx4", GOLDEN / "models" / "qwen3-mlx4", context=256, sessions=8)
        names = ("device_active", "device_kept", "heap")
        said = []
        for _ in range(rounds):
            done = c.json("bench", "qwen3-mlx4", "--clients", 8, "--requests", requests, "--prompt-tokens", 24, "--max-tokens", 6,
                          timeout_s=HANGS_S)
            assert done["requests"] == requests and done["failed"] == 0, done
            c.nothing_is_left()
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=GIVE_UP_S) as page:
                text = page.read().decode()
            said.append({name: int(float(re.search(rf"^strata_worker_{name}_bytes(?:{{.*}})? (\S+)$", text, re.M)[1])) for name in names})
        # The first round fills what is kept to be used again.
        for name, most in (("device_active", 64 << 10), ("device_kept", 8 << 20), ("heap", 2 << 20)):
            values = [one[name] for one in said[1:]]
            assert max(values) - values[0] <= most, (name, values)
        assert min(one["device_active"] for one in said) > 0
