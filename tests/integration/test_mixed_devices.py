"""Stages on CPUs and on GPUs in one pipeline: both backends are of one numerics class.

The GPUs are emulated: strata-worker-emulated (tests/worker/backend/cuda) is a worker whose --backend cuda runs the CUDA
backend's own kernels on the host. It computes slowly, so that answers are short here.
"""

import json

import pytest

from cluster import BIN, GIVE_UP_S, NEVER, RECALL, SLOW, Cluster, recall_cases, wait_until

EMULATED = BIN.parent / "tests" / "strata-worker-emulated"
DEVICE_BYTES = 256 << 20
LAYERS = 8  # Of recall.
TOKENS = 12


def start(cluster, name, kind, **options):
    if kind == "cuda":
        cluster.start_worker(name, "--backend", "cuda", binary=EMULATED, **options)
    else:
        cluster.start_worker(name, **options)


def arguments(prompt, tokens, request_id, logprobs=True):
    return ["generate", "recall", "--token-ids", ",".join(map(str, prompt)), "--max-tokens", tokens, "--temperature", 0,
            "--ignore-eos", *(["--logprobs", 3] if logprobs else []), "--request-id", request_id, "--json"]


def essence(answer):
    return answer["token_ids"], answer.get("logprobs")


PROMPTS = [case["prompt_ids"][:40] for case in recall_cases()[:2]]


def answers(cluster, name):
    """Of the last prompt without logprobs: then a GPU chooses the tokens itself."""
    return [essence(cluster.json(*arguments(prompt, TOKENS, f"{name}-{i}", logprobs=i + 1 < len(PROMPTS))))
            for i, prompt in enumerate(PROMPTS)]


@pytest.mark.parametrize("quantize", ["none", "int8", "int4"])
def test_a_pipeline_of_both_answers_as_the_cpu_alone(tmp_path, quantize):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        start(c, "host", "cpu")
        start(c, "gpu", "cuda")
        assert (c.node("host")["backend"], c.node("gpu")["backend"]) == ("cpu", "cuda")
        c.run("model", "add", RECALL)
        placed = {"alone": [("host", 0, 7)], "before": [("gpu", 0, 3), ("host", 4, 7)],
                  "behind": [("host", 0, 4), ("gpu", 5, 7)], "all": [("gpu", 0, 7)]}
        said = {}
        for name, cuts in placed.items():
            c.load("recall", cuts=cuts, context=256, quantize=quantize)
            said[name] = answers(c, name)
        assert all(said[name] == said["alone"] for name in placed), said


def test_a_plan_leaves_room_on_the_device_and_mixes_both(tmp_path):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        start(c, "host", "cpu")
        start(c, "gpu", "cuda")
        # The device's memory is what counts there, though --memory says more.
        assert int(c.node("gpu")["memory_bytes"]) == DEVICE_BYTES, c.node("gpu")
        c.run("model", "add", RECALL)
        c.load("recall", context=256, goal="capacity")
        stages = c.json("model", "show", "recall")["plan"]["stages"]
        assert {stage["node"] for stage in stages} == {"host", "gpu"}
        assert answers(c, "planned")


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's memory is more than the host gives")
def test_a_plan_counts_the_memory_of_a_gpus_host(tmp_path):
    with Cluster(tmp_path, step_timeout=NEVER, max_batch_tokens=8192) as c:  # Of which the host has 56 MiB.
        start(c, "host", "cpu")
        c.start_worker("tight", "--backend", "cuda", "--host-memory", "96MiB", binary=EMULATED)  # The least.
        c.run("model", "add", RECALL)
        wide = ["plan", "recall", "--context", "256"]
        _, err, status = c.run(*wide, "--nodes", "tight", check=False)
        assert status == 1 and "of the host's memory of node tight" in err and "--host-memory" in err, err
        why = c.json(*wide)["why"]
        assert any("Node tight is left out: of the host's memory " in said for said in why), why
        start(c, "gpu", "cuda")
        c.load("recall", cuts=[("gpu", 0, LAYERS - 1)], context=256)
        why = c.json("model", "show", "recall")["plan"]["why"]
        assert any("gpu (cuda, emulated GPU) has " in said and "are taken while it loads" in said for said in why), why


@pytest.mark.parametrize("first, then", [("cuda", "cpu"), ("cpu", "cuda")])
def test_an_answer_goes_on_where_a_worker_of_the_other_kind_takes_a_lost_ones_place(tmp_path, first, then):
    with Cluster(tmp_path, step_timeout=NEVER, recovery_timeout="10ms") as c:
        start(c, "stays", then)
        start(c, "goes", first)
        cuts = [("stays", 0, 3), ("goes", 4, 7)]
        c.load("recall", RECALL, cuts=cuts, context=256)
        right = essence(c.json(*arguments(PROMPTS[0], 30, "alone")))
        running = c.popen(*arguments(PROMPTS[0], 30, "moved"))
        wait_until(lambda: any(s["generated_tokens"] > 3 for s in c.json("session", "list")["sessions"]),
                   "it generates")
        c.workers["goes"].kill()
        start(c, "goes", then, wait=False)
        out, err = running.communicate(timeout=GIVE_UP_S)
        assert running.returncode == 0, err
        assert essence(json.loads(out)) == right
        assert c.node("goes")["backend"] == then


def test_a_check_finds_no_difference_between_both_and_names_a_flipped_bit_of_the_device(tmp_path):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        start(c, "host", "cpu")
        start(c, "gpu", "cuda")
        # The query projection of the stage's second layer: a layer has nine tensors, norms among them.
        start(c, "worn", "cuda", env={"STRATA_DEVICE_FLIP": str(9 + 1)})
        c.run("model", "add", RECALL)

        def check(node, *flags):
            c.load("recall", cuts=[(node, 0, LAYERS - 1)], context=256)
            out, err, status = c.run("model", "check", "recall", "--json", "--tokens", "8", *flags, check=False)
            assert out, err
            assert status == (0 if json.loads(out)["equal"] else 1), err
            return json.loads(out)

        assert check("gpu", "--node", "host")["equal"]
        assert check("host", "--node", "gpu")["equal"]
        said = check("worn", "--node", "host")
        assert not said["equal"]
        assert (said["layer"], said["node"]) == (1, "worn"), said


def test_a_gpu_that_falls_off_its_bus_is_unfit_and_its_requests_go_on_once_its_worker_is_restarted(tmp_path):
    off = tmp_path / "off-the-bus"
    with Cluster(tmp_path, step_timeout=NEVER, recovery_timeout="10ms") as c:
        start(c, "host", "cpu")
        start(c, "gpu", "cuda", env={"STRATA_DEVICE_FAILS": str(off)})
        c.load("recall", RECALL, cuts=[("host", 0, 3), ("gpu", 4, 7)], context=256)
        right = essence(c.json(*arguments(PROMPTS[0], 30, "alone")))
        running = c.popen(*arguments(PROMPTS[0], 30, "held"))
        wait_until(lambda: any(s["generated_tokens"] > 3 for s in c.json("session", "list")["sessions"]),
                   "it generates")
        off.touch()
        wait_until(lambda: c.node("gpu")["state"] == "unfit", "the worker says what became of its device")
        assert "off its bus" in c.node("gpu")["unfit"]
        shown = c.run("node", "show", "gpu")[0]
        assert "gpu is unfit: " in shown and "off its bus" in shown, shown
        problems = [p for p in c.json("status")["problems"] if "node gpu " in p["what"]]
        assert any("cannot compute any more" in p["what"] and "restart" in p["do"]
                   and "strata model load recall" in p["do"] for p in problems), problems
        # Nothing new is placed there, and the process stays to be asked.
        assert {stage["node"] for stage in c.json("plan", "recall", "--context", "256")["stages"]} == {"host"}
        _, err, status = c.run("plan", "recall", "--nodes", "gpu", check=False)
        assert status == 1 and "gpu" in err, err
        assert c.workers["gpu"].process.poll() is None
        assert running.poll() is None, "the request is no more to blame than the others"
        off.unlink()
        c.workers["gpu"].kill()
        start(c, "gpu", "cuda", wait=False)
        out, err = running.communicate(timeout=GIVE_UP_S)
        assert running.returncode == 0, err
        assert essence(json.loads(out)) == right
        assert c.node("gpu")["state"] == "serving"


def test_a_model_on_a_failed_gpu_is_placed_on_others_by_the_command_that_status_names(tmp_path):
    off = tmp_path / "off-the-bus"
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        start(c, "host", "cpu")
        start(c, "gpu", "cuda", env={"STRATA_DEVICE_FAILS": str(off)})
        c.load("recall", RECALL, cuts=[("gpu", 0, 7)], context=256)
        right = answers(c, "before")
        off.touch()  # Nothing computes: the next request meets it.
        running = c.popen(*arguments(PROMPTS[0], TOKENS, "held"))
        wait_until(lambda: c.node("gpu")["state"] == "unfit", "the worker says what became of its device")
        c.run("session", "cancel", "held")
        running.communicate(timeout=GIVE_UP_S)
        c.load("recall", context=256)
        assert answers(c, "after") == right


def test_devices_are_shown_with_name_memory_and_speed(tmp_path):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        start(c, "host", "cpu")
        start(c, "gpu", "cuda")
        c.load("recall", RECALL, cuts=[("host", 0, 3), ("gpu", 4, 7)], context=256)
        listed = {node["name"]: node for node in c.json("node", "list")["nodes"]}
        for node in listed.values():
            assert node["read_bytes_per_s"] > 0 and node["flops_per_s"] > 0 and node["unfit"] is None, node
        gpu, host = listed["gpu"], listed["host"]
        assert (gpu["device"], gpu["isa"], gpu["memory_bytes"]) == ("emulated GPU", "emulated", DEVICE_BYTES)
        assert gpu["host_memory_bytes"] > 0 and host["host_memory_bytes"] is None
        wait_until(lambda: c.json("node", "show", "gpu")["used_bytes"] > 0, "a heartbeat says what is used")
        shown = c.json("node", "show", "gpu")
        assert shown["used_bytes"] < DEVICE_BYTES and shown["host_used_bytes"] > 0, shown
        for command in (["node", "list"], ["top", "--once"]):
            text = c.run(*command)[0]
            for said in ("cuda/emulated GPU", "cpu/" + host["isa"], "GFLOP/s", "/s "):
                assert said in text, text
        plan = c.json("plan", "recall", "--layers", "host:0-3,gpu:4-7", "--context", "256")
        assert [stage["device"] for stage in plan["stages"]] == ["cpu", "cuda"]
        assert any("gpu (cuda, emulated GPU) has " in why and "GB/s" in why for why in plan["why"]), plan["why"]
        assert "cuda" in c.run("plan", "recall", "--context", "256", "--nodes", "gpu")[0]
        nodes = {node["name"]: node for node in json.loads(c.run("top", "--once", "--json")[0])["nodes"]}
        assert nodes["gpu"]["device"] == "emulated GPU" and nodes["gpu"]["read_bytes_per_s"] > 0
