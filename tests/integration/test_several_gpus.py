"""A worker that divides its stages over several GPUs (--devices), which NCCL joins.

GPUs are emulated and NCCL is a stand-in of its calls (strata-worker-emulated, as in test_mixed_devices.py); all between
them is what a worker on real ones runs.
"""

import json
import os
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, NEVER, RECALL, Cluster, wait_until
from test_mixed_devices import DEVICE_BYTES, EMULATED, LAYERS, PROMPTS, answers, arguments, essence


def start_gpus(cluster, name, devices, gpus=4, env=None, **options):
    cluster.start_worker(name, "--backend", "cuda", "--devices", devices, binary=EMULATED,
                         env={"STRATA_EMULATED_GPUS": str(gpus), **(env or {})}, **options)


@pytest.mark.parametrize("quantize", ["none", "int4"])
def test_stages_over_two_to_four_gpus_answer_as_a_cpu_alone(tmp_path, quantize):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_worker("host")
        start_gpus(c, "two", "0=1,1=1")
        start_gpus(c, "three", "2=2,0=1,3=1")
        start_gpus(c, "four", "0=1,1=1.5,2=1,3=1")
        c.run("model", "add", RECALL)
        placed = {"alone": [("host", 0, 7)], "two": [("two", 0, 7)], "four": [("four", 0, 7)],
                  "mixed": [("three", 0, 2), ("host", 3, 4), ("two", 5, 7)]}
        said = {}
        for name, cuts in placed.items():
            c.load("recall", cuts=cuts, context=256, quantize=quantize)
            said[name] = answers(c, name)
        assert all(said[name] == said["alone"] for name in placed), said


def test_each_gpu_is_shown_and_its_memory_counted(tmp_path):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        start_gpus(c, "gpus", "0=1,3=3")
        node = c.json("node", "show", "gpus")
        assert node["device"] == "2 x emulated GPU" and node["memory_bytes"] == 2 * DEVICE_BYTES, node
        assert [(d["index"], d["memory_bytes"], d["share"]) for d in node["devices"]] == [
            (0, DEVICE_BYTES, 0.25), (3, DEVICE_BYTES, 0.75)], node
        assert all(d["read_bytes_per_s"] > 0 for d in node["devices"]), node
        shown = c.run("node", "show", "gpus")[0]
        assert "GPU 0 " in shown and "GPU 3 " in shown and "75 % of each stage" in shown, shown
        c.run("model", "add", RECALL)
        # All the memory of the GPU that is filled first is used, and no more: the load is not refused.
        c.load("recall", context=256, goal="capacity")
        plan = c.json("model", "show", "recall")["plan"]
        assert any("25 % of each stage on GPU 0, 75 % of each stage on GPU 3" in why for why in plan["why"]), plan["why"]
        wait_until(lambda: c.json("node", "show", "gpus")["used_bytes"] > 0.9 * DEVICE_BYTES, "a heartbeat says what is used")
        assert c.json("node", "show", "gpus")["used_bytes"] <= 2 * DEVICE_BYTES
        assert answers(c, "full")
        _, err, status = c.run("plan", "recall", "--context", "256", "--kv-tokens", "2000000", check=False)
        assert status == 1 and "its GPU 3 is filled first" in err, err


@pytest.mark.parametrize("devices, env, said", [
    ("0,0", {}, "names device 0 twice"),
    ("0,9", {}, "there is no GPU 9: this process sees 4, from GPU 0 to 3"),
    ("0,1,2,3,4,5,6,7,8", {}, "a stage has at most 8 ranks"),
    ("gpu0", {}, "'gpu0' is no number of a device"),
    ("0=1,1", {}, "of device 1 none"),
    ("all", {"STRATA_NCCL": "absent"}, "libnccl-of-nobody.so.2"),
    ("0,1", {"STRATA_NCCL": "old"}, "NCCL is 2.27.0, and ranks on GPUs need 2.28.0 or newer"),
])
def test_devices_that_cannot_be_taken_are_named_and_the_worker_does_not_start(tmp_path, devices, env, said):
    done = subprocess.run(
        [str(EMULATED), "--coordinator", "127.0.0.1:1", "--name", "gpus", "--data-dir", str(tmp_path), "--backend", "cuda",
         "--devices", devices], capture_output=True, text=True, timeout=GIVE_UP_S,
        env={**os.environ, "STRATA_EMULATED_GPUS": "4", **env})
    assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.parametrize("backend", ["cpu", "auto"])
def test_devices_are_gpus(tmp_path, backend):
    done = subprocess.run(
        [str(BIN / "strata-worker"), "--coordinator", "127.0.0.1:1", "--name", "n", "--data-dir", str(tmp_path), "--backend",
         backend, "--devices", "0"], capture_output=True, text=True, timeout=GIVE_UP_S, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2 and ("--devices" in done.stderr or "GPU" in done.stderr or "CUDA" in done.stderr), done.stderr


def test_a_request_goes_on_once_nccl_works_again(tmp_path):
    broken = tmp_path / "nccl-fails"
    with Cluster(tmp_path, step_timeout=NEVER, recovery_timeout="10ms") as c:
        start_gpus(c, "gpus", "0=2,1=1", env={"STRATA_NCCL_FAILS": str(broken)})
        c.load("recall", RECALL, cuts=[("gpus", 0, LAYERS - 1)], context=256)
        right = essence(c.json(*arguments(PROMPTS[0], 30, "alone")))
        running = c.popen(*arguments(PROMPTS[0], 30, "held"))
        wait_until(lambda: any(s["generated_tokens"] > 3 for s in c.json("session", "list")["sessions"]), "it generates")
        broken.touch()
        wait_until(lambda: "RANKS_BROKEN" in c.coordinator.text() or "lost a rank" in c.coordinator.text(),
                   "the worker tells of its lost rank")
        assert c.workers["gpus"].process.poll() is None
        assert running.poll() is None, "the request is not to blame"
        broken.unlink()
        out, err = running.communicate(timeout=GIVE_UP_S)
        assert running.returncode == 0, err
        assert essence(json.loads(out)) == right
        assert c.node("gpus")["state"] == "serving"


def test_a_worker_one_of_whose_gpus_is_lost_is_unfit_and_requests_go_on_once_it_is_restarted(tmp_path):
    off = tmp_path / "off-the-bus"
    with Cluster(tmp_path, step_timeout=NEVER, recovery_timeout="10ms") as c:
        start_gpus(c, "gpus", "0=1,1=1", gpus=2, env={"STRATA_DEVICE_FAILS": str(off)})
        c.load("recall", RECALL, cuts=[("gpus", 0, LAYERS - 1)], context=256)
        right = essence(c.json(*arguments(PROMPTS[0], 30, "alone")))
        running = c.popen(*arguments(PROMPTS[0], 30, "held"))
        wait_until(lambda: any(s["generated_tokens"] > 3 for s in c.json("session", "list")["sessions"]), "it generates")
        off.touch()
        wait_until(lambda: c.node("gpus")["state"] == "unfit", "the worker says what became of its device")
        assert "off its bus" in c.node("gpus")["unfit"]
        assert running.poll() is None
        off.unlink()
        c.workers["gpus"].kill()
        start_gpus(c, "gpus", "0=1,1=1", gpus=2, wait=False)
        out, err = running.communicate(timeout=GIVE_UP_S)
        assert running.returncode == 0, err
        assert essence(json.loads(out)) == right
