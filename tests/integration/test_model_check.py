"""`strata model check`: the stages of a loaded model against its layers, each alone on one worker.

strata-worker-poison with flip:LAYER (tests/faults) is a worker one bit of whose results is wrong.
"""

import json
import shutil
import signal
import struct
import threading

import pytest

from cluster import BIN, GIVE_UP_S, GOLDEN, RECALL, SLOW, Cluster, cut, wait_until
from checkpoints import make_checkpoint

POISONED = BIN.parent / "tests" / "strata-worker-poison"
LAYERS = 8  # Of recall.


def check(cluster, model, *flags):
    """What it says, with exit status 0 when all agree, and else 1."""
    out, err, status = cluster.run("model", "check", model, "--json", *flags, check=False)
    assert out, err
    document = json.loads(out)
    assert status == (0 if document["equal"] else 1), err
    return document, err


def refused(cluster, *arguments):
    out, err, status = cluster.run("model", "check", *arguments, check=False)
    assert status == 1 and out == "", (out, err)
    return err


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("alike")) as c:
        for i in range(4):
            c.start_worker(f"w{i}", memory="512MiB")
        yield c


@pytest.mark.parametrize("model, flags", [
    ("llama", {}), ("llama", {"quantize": "int8"}), ("llama", {"quantize": "int4"}),
    ("llama31-mlx4", {}), ("mixtral", {}), ("mixtral", {"quantize": "int8"}), ("deepseek-v3", {}),
    ("deepseek-v3", {"quantize": "int8"}),
    ("gpt-oss", {}), ("gemma3", {}), ("phi3-longrope", {}), ("llama-q4_0", {}), ("phi3-awq", {}),
    ("qwen3-fp8-block", {})],
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()) or "stored")
def test_every_partition_agrees_with_its_layers_alone(cluster, model, flags):
    names = [m["name"] for m in cluster.json("model", "list")["models"]]
    if model not in names:
        gguf = GOLDEN / "gguf" / f"{model}.gguf"
        path = gguf if gguf.exists() else GOLDEN / "models" / model
        cluster.run("model", "add", path, "--name", model)
    layers = cluster.json("model", "show", model)["layers"]
    for stages in (1, 2, min(layers, 4)):
        cluster.load(model, cuts=cut([f"w{i}" for i in range(stages)], layers), context=128,
                     **flags)
        for tokens in ("24", "100"):  # The latter behind windows, and LongRoPE's original context.
            said, _ = check(cluster, model, "--tokens", tokens)
            assert said["equal"], said
            assert said["layers"] == layers and said["tokens"] == int(tokens)
            if stages < 4:
                assert int(said["reference_node"][1:]) >= stages, "one without layers of it"
        for tokens in ("1", "2", "5"):
            assert check(cluster, model, "--tokens", tokens, "--node", "w0")[0]["equal"]
        cluster.run("model", "unload", model)


@pytest.mark.parametrize("layer", [0, LAYERS, *(pytest.param(i, marks=pytest.mark.long) for i in (3, 5, LAYERS - 1))])
def test_a_wrong_bit_is_found_where_it_was_made(tmp_path, layer):
    with Cluster(tmp_path) as c:
        c.start_worker("good")
        c.start_worker("spare")
        c.start_worker("bad", binary=POISONED, env={"STRATA_POISON": f"flip:{layer}"})
        cuts = [[("bad", 0, LAYERS - 1)],
                [("bad", 0, 3), ("good", 4, 7)] if layer < 4 else
                [("good", 0, 3), ("bad", 4, 7)]]
        c.run("model", "add", RECALL)
        for stages in cuts:
            c.load("recall", cuts=stages, context=256)
            for flags in ([], ["--node", "good"], ["--tokens", "40"]):
                said, err = check(c, "recall", *flags)
                stage = [name for name, _, _ in stages].index("bad")
                assert not said["equal"]
                assert (said["layer"], said["position"], said["stage"], said["node"]) == (
                    layer, 5, stage, "bad"), said
                named = [flags[1]] if "--node" in flags else {"good", "spare"} - {
                    name for name, _, _ in stages}
                assert said["reference_node"] in named
                assert "bad" in said["hint"] and "node drain bad" in err, err
        # A node that is wrong in both ways is not found; one that is wrong here only, is named as
        # one of two.
        c.load("recall", cuts=[("good", 0, 7)], context=256)
        said, err = check(c, "recall", "--node", "bad")
        assert said["layer"] == layer and said["node"] == "good" and "third --node" in err
        assert check(c, "recall", "--node", "spare")[0]["equal"]


CRC32C = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC32C.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 255]
    return struct.pack("<I", crc ^ 0xFFFFFFFF)


def packed_file(key, weights):
    """A file of packed weights with its checksums: of each MiB, and of the key and those."""
    table = b"".join(crc32c(weights[at : at + (1 << 20)]) for at in range(0, len(weights), 1 << 20))
    return weights + table + crc32c(key.encode() + table)


def spoil_packed_weights(data_dir):
    """Bits of a matrix that the worker of `data_dir` has packed change (a single one may be of
    padding), and its checksums with them."""
    files = [p for p in (data_dir / "cache" / "packed").rglob("*") if p.is_file()]
    victim = max(files, key=lambda p: p.stat().st_size)
    content = victim.read_bytes()
    parts = next(n for n in range(1, 99) if -(-(len(content) - 4 * n - 4) // (1 << 20)) == n)
    weights = bytearray(content[: len(content) - 4 * parts - 4])
    assert packed_file(victim.name, weights) == content
    for at in range(0, len(weights), 997):
        weights[at] ^= 8
    victim.write_bytes(packed_file(victim.name, weights))


@pytest.mark.parametrize("layer, flags", [(3, {"quantize": "int8"}), (6, {})],
                         ids=["int8", "stored"])
def test_packed_weights_that_are_wrong_are_found_by_their_layer(tmp_path, layer, flags):
    with Cluster(tmp_path) as c:
        for name in ("before", "bad", "after", "spare"):
            c.start_worker(name)
        c.run("model", "add", RECALL)
        cuts = [("before", 0, layer - 1), ("bad", layer, layer), ("after", layer + 1, LAYERS - 1)]
        c.load("recall", cuts=cuts, context=256, **flags)
        assert check(c, "recall")[0]["equal"]
        c.run("model", "unload", "recall")
        spoil_packed_weights(tmp_path / "bad")
        c.load("recall", cuts=cuts, context=256, **flags)
        assert "packed weights are made again" not in c.workers["bad"].text()
        for more in ([], ["--node", "spare"], ["--node", "bad"]):
            said, _ = check(c, "recall", *more)
            assert not said["equal"], said
            assert (said["layer"], said["stage"], said["node"]) == (layer, 1, "bad"), said


def test_requests_in_flight_do_not_notice(tmp_path):
    ask = ["generate", "recall", "--token-ids", "5,6,7,8,9", "--max-tokens", 200, "--temperature",
           0, "--ignore-eos", "--logprobs", 1, "--json"]
    with Cluster(tmp_path) as c:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=cut(["w0", "w1"], LAYERS), context=512, sessions=8)
        right = c.json(*ask[:-1])
        over = threading.Event()
        answers = []

        def keep_asking():
            while not over.is_set():
                answers.append(json.loads(c.run(*ask)[0]))

        askers = [threading.Thread(target=keep_asking) for _ in range(3)]
        for asker in askers:
            asker.start()
        try:
            while len(answers) < 6:
                for flags in ([], ["--node", "w0"], ["--tokens", "256"]):
                    assert check(c, "recall", *flags)[0]["equal"]
        finally:
            over.set()
            for asker in askers:
                asker.join()
        for answer in answers:
            assert answer["token_ids"] == right["token_ids"]
            assert answer["logprobs"] == right["logprobs"]
        c.nothing_is_left()
        assert c.kv()[0]["live"] == 0


def test_what_cannot_be_checked_is_refused_by_name(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_worker("w0")
        assert "missing" in refused(c, "missing")
        c.run("model", "add", RECALL)
        assert "is not loaded" in refused(c, "recall")
        c.load("recall", context=64)
        err = refused(c, "recall", "--node", "nowhere")
        assert "no node 'nowhere'" in err and "strata node list" in err
        assert "64" in refused(c, "recall", "--tokens", "100")


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's memory is more than the limit")
def test_a_node_without_room_for_a_layer_is_named(tmp_path):
    make_checkpoint(tmp_path / "large", layers=2, sparse=True)
    with Cluster(tmp_path / "cluster") as c:
        c.start_worker("w0")
        # A layer of some 50 MB where 30 are free beside what it takes with nothing loaded.
        small = c.start_worker("small")
        fixed = small.rss_bytes() + (64 << 20)
        small.stop()
        c.start_worker("small", memory=f"{fixed + (30 << 20)}B")
        c.load("large", tmp_path / "large", cuts=[("w0", 0, 1)], context=64)
        err = refused(c, "large", "--node", "small")
        assert "layers 0-0 need" in err and "--memory" in err and "--node" in err, err
        assert "of --memory are free" in err
        assert check(c, "large", "--node", "w0")[0]["equal"]
        # And one that is gone.
        c.workers["small"].kill()
        wait_until(lambda: c.node("small")["state"] == "lost", "it is lost")
        assert "is lost" in refused(c, "large", "--node", "small")


LARGE_LAYERS = 12


@pytest.fixture(scope="module")
def slow_cluster(tmp_path_factory):
    """With a model whose layers take long enough to be fetched that a check can be met on its way."""
    folder = tmp_path_factory.mktemp("slow")
    make_checkpoint(folder / "large", layers=LARGE_LAYERS)
    with Cluster(folder / "cluster", step_timeout="20s") as c:
        c.start_worker("w0", memory="2GiB")
        c.run("model", "add", folder / "large", "--name", "large")
        yield c
    shutil.rmtree(folder)  # Gigabytes.


@pytest.fixture
def slow(slow_cluster, request):
    """A check on a worker that has fetched nothing yet, once it has begun: cluster, worker, call."""
    c = slow_cluster
    c.load("large", cuts=[("w0", 0, LARGE_LAYERS - 1)], context=64)
    # Where all was over before it was seen to have begun, again on a worker that has nothing yet.
    for attempt in range(5):
        worker = f"{request.node.name[-38:].strip('_')}-{attempt}"
        c.start_worker(worker, memory="2GiB")
        call = c.popen("model", "check", "large", "--node", worker)
        wait_until(lambda: c.json("node", "show", worker)["fetched_bytes"] > 0,
                   "it computes layers")
        if call.poll() is None:
            break
        assert call.returncode == 0, call.communicate()
        c.workers[worker].terminate()
        c.workers[worker].wait()
    assert call.poll() is None, call.communicate()
    yield c, worker, call
    call.kill()
    call.communicate()
    c.workers[worker].terminate()
    c.workers[worker].wait()
    wait_until(lambda: c.node(worker)["state"] == "lost", "it has left")


def test_a_check_ends_with_its_call_and_leaves_nothing(slow):
    cluster, worker, call = slow
    assert "another check" in refused(cluster, "large", "--node", worker)
    call.send_signal(signal.SIGINT)
    _, err = call.communicate(timeout=GIVE_UP_S)
    assert call.returncode == 1 and "cancel" in err.lower(), err
    wait_until(lambda: cluster.run("model", "check", "large", "--node", worker,
                                   check=False)[2] == 0, "the next one is not refused")
    cluster.nothing_is_left()


def test_a_worker_that_is_lost_meanwhile_is_named(slow):
    cluster, worker, call = slow
    cluster.workers[worker].kill()
    _, err = call.communicate(timeout=GIVE_UP_S)
    assert call.returncode == 1 and f"node '{worker}'" in err and "is lost" in err, err


def test_a_worker_that_stops_meanwhile_says_so(slow):
    cluster, worker, call = slow
    cluster.workers[worker].stop()
    _, err = call.communicate(timeout=GIVE_UP_S)
    assert call.returncode == 1 and f"node '{worker}'" in err, err


def test_a_model_that_is_unloaded_meanwhile_is_checked_no_more(slow):
    cluster, _, call = slow
    cluster.run("model", "unload", "large", "--force")
    _, err = call.communicate(timeout=GIVE_UP_S)
    assert call.returncode == 1 and "unloaded" in err, err
