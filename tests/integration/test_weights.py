"""Weights travel once: each worker fetches its layers' bytes and no others."""

import contextlib
import json
import pathlib
import re
import resource
import struct

import pytest

from cluster import GIVE_UP_S, RECALL, SLOW, Cluster, Failed, wait_until
from hub import Hub
from relay import Relay
from checkpoints import make_checkpoint


def layer_bytes(first, last, embeds, heads):
    """Bytes of the tensors of a stage, by the file's own header."""
    data = (RECALL / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    total = 0
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if name.startswith("model.layers."):
            wanted = first <= int(name.split(".")[2]) <= last
        elif name == "model.embed_tokens.weight":
            wanted = embeds
        else:
            wanted = heads
        total += (end - begin) if wanted else 0
    return total


# recall: rotary tables of 512 positions, cos and sin of 16 frequencies.
ROTARY = 2 * 512 * 16 * 4


def fetched(cluster, name):
    return cluster.json("node", "show", name)["fetched_bytes"]


def load(cluster):
    cluster.load("recall", cuts=[("w0", 0, 2), ("w1", 3, 7)], context=512)


def test_a_worker_fetches_only_its_layers_and_starts_warm(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_workers(2)
        c.run("model", "add", RECALL)
        load(c)
        want = {"w0": layer_bytes(0, 2, True, False) + ROTARY,
                "w1": layer_bytes(3, 7, False, True) + ROTARY}
        for name, count in want.items():
            wait_until(lambda: fetched(c, name) == count, f"{name} fetched {count} bytes")
        answer = c.generate("recall", ids=[1, 2, 3], max_tokens=5, temperature=0)
        c.run("model", "unload", "recall")

        # Warm, also after a restart.
        c.workers["w0"].stop()
        c.start_worker("w0")
        load(c)
        assert c.generate("recall", ids=[1, 2, 3], max_tokens=5,
                          temperature=0)["token_ids"] == answer["token_ids"]
        c.wait_node("w0", ("serving",))
        assert fetched(c, "w0") == 0


def test_a_corrupted_cache_file_is_noticed_and_fetched_again(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_workers(2, "--packed-cache", "off")
        c.run("model", "add", RECALL)
        load(c)
        answer = c.generate("recall", ids=[1, 2, 3], max_tokens=5, temperature=0)
        c.run("model", "unload", "recall")
        c.workers["w0"].stop()
        files = sorted((p for p in (tmp_path / "w0").rglob("*") if p.is_file() and
                        p.stat().st_size > 10000), key=lambda p: p.stat().st_size)
        data = bytearray(files[-1].read_bytes())
        data[len(data) // 2] ^= 1
        files[-1].chmod(0o600)
        files[-1].write_bytes(data)
        c.start_worker("w0", "--packed-cache", "off")
        load(c)
        assert c.generate("recall", ids=[1, 2, 3], max_tokens=5,
                          temperature=0)["token_ids"] == answer["token_ids"]
        wait_until(lambda: fetched(c, "w0") == len(data), "that one was fetched again")


def files_of(folder):
    """{path: (inode, size)}"""
    return {p: (p.stat().st_ino, p.stat().st_size) for p in folder.rglob("*") if p.is_file()}


def start_again(cluster, *flags, **options):
    """Stops w0 with nothing loaded, and loads on it anew. Its answer."""
    if "w0" in cluster.workers:
        cluster.run("model", "unload", "recall")
        cluster.workers["w0"].stop()
    else:
        cluster.run("model", "add", RECALL)
    cluster.start_worker("w0", *flags)
    cluster.load("recall", context=512, **options)
    return cluster.generate("recall", ids=[1, 2, 3], max_tokens=8, temperature=0)["token_ids"]


def test_a_second_start_reads_what_the_first_packed(tmp_path):
    cache = tmp_path / "w0" / "cache"
    with Cluster(tmp_path) as c:
        answer = start_again(c, quantize="int8")
        c.workers["w0"].wait_for(r'are ready .* packed_before="0 B"')
        packed = files_of(cache / "packed")
        assert len(packed) > 50
        # Without what it was packed from.
        for blob, (_, size) in files_of(cache / "sha256").items():
            if size > 10000 and size != ROTARY:
                blob.unlink()
        assert start_again(c, quantize="int8") == answer
        c.workers["w0"].wait_for(r'are ready .* fetched="0 B" packed_before="')
        assert files_of(cache / "packed") == packed
        c.wait_node("w0", ("serving",))
        assert fetched(c, "w0") == 0
        # Another format is another packing.
        start_again(c, quantize="int4")
        assert len(files_of(cache / "packed")) > len(packed)


def test_a_spoilt_packed_file_is_replaced(tmp_path):
    with Cluster(tmp_path) as c:
        answer = start_again(c, quantize="int8")
        files = files_of(tmp_path / "w0" / "cache" / "packed")
        victim = max(files, key=lambda p: files[p][1])
        right = victim.read_bytes()
        spoilt = bytearray(right)
        spoilt[len(spoilt) // 2] ^= 1
        victim.write_bytes(spoilt)
        assert start_again(c, quantize="int8") == answer
        assert victim.read_bytes() == right
        c.workers["w0"].wait_for(f"packed weights are made again: .*{victim.name}")


def test_without_a_packed_cache_none_is_kept(tmp_path):
    with Cluster(tmp_path) as c:
        answer = start_again(c, "--packed-cache", "off")
        assert not files_of(tmp_path / "w0" / "cache" / "packed")
        assert start_again(c) == answer


def test_under_a_limit_packed_weights_take_the_place_of_what_they_were_made_of(tmp_path):
    cache = tmp_path / "w0" / "cache"
    source = layer_bytes(0, 7, True, True) + ROTARY
    limit = source + source // 10
    with Cluster(tmp_path) as c:
        answer = start_again(c, "--cache-limit", str(limit), quantize="int8")
        assert sum(size for _, size in files_of(cache).values()) <= limit
        assert start_again(c, "--cache-limit", str(limit), quantize="int8") == answer
        c.workers["w0"].wait_for(r'are ready .* fetched="0 B"')


@contextlib.contextmanager
def small_stacks():
    """Of the threads of what is started meanwhile: by default they may be larger than what counts."""
    before = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)


def forbid_more(process, data_bytes):
    """The system gives the process no more memory than that beyond what it has: whatever was to need
    more fails. Memory that may be written counts, of it or not resident, and mapped files do not."""
    status = pathlib.Path(f"/proc/{process.process.pid}/status").read_text()
    limit = data_bytes + (int(re.search(r"VmData:\s+(\d+) kB", status).group(1)) << 10)
    resource.prlimit(process.process.pid, resource.RLIMIT_DATA, (limit, limit))


# How a checkpoint stores its weights, and the bytes that at least are left of each.
@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's memory is more than the limit")
@pytest.mark.parametrize("stored,quantize,per_weight", [
    ("f32", "int8", 1 + 1 / 32), ("f32", "int4", 0.5 + 4 / 64), ("bf16", "int8", 1 + 1 / 32),
    ("bf16", "none", 2), ("mlx4", "none", 0.5 + 4 / 64), ("mlx8", "none", 1 + 4 / 64)])
def test_packing_holds_little_more_than_its_result(tmp_path, stored, quantize, per_weight):
    source = make_checkpoint(tmp_path / "large", layers=6, stored=stored)
    weights = 6 * (4 * 1024 * 1024 + 3 * 1024 * 2816) + 2 * 2000 * 1024
    packed = int(weights * per_weight)
    with Cluster(tmp_path / "cluster") as c:
        # Fetched, then found on disk and verified, then read as it was packed.
        for life, flags in enumerate([["--packed-cache", "off"], [], []]):
            # Less than float weights take, so that they must be counted as packed.
            with small_stacks():
                c.start_worker("w0", *flags, memory=str(packed + (200 << 20)),
                               env={"MALLOC_ARENA_MAX": "1"})
            if SLOW == 1:  # A sanitizer's allocator keeps what was freed.
                most = int(packed * 1.1) + (96 << 20)
                assert stored != "f32" or most < source * 0.7
                forbid_more(c.workers["w0"], most)
            c.load("large", tmp_path / "large" if life == 0 else None, quantize=quantize,
                   sessions=1)
            c.run("model", "unload", "large")
            c.workers["w0"].stop()


@pytest.mark.skipif(SLOW > 1, reason="a sanitizer's allocator takes its memory beforehand")
def test_a_worker_that_is_given_less_than_its_weights_take_does_not_load_them(tmp_path):
    """The limit of the test above holds."""
    make_checkpoint(tmp_path / "large", layers=6)
    with Cluster(tmp_path / "cluster") as c:
        with small_stacks():
            c.start_worker("w0", "--packed-cache", "off", env={"MALLOC_ARENA_MAX": "1"})
        c.workers["w0"].killed = True  # It says so, or ends where it cannot.
        forbid_more(c.workers["w0"], 60 << 20)
        with pytest.raises(Failed) as failed:
            c.load("large", tmp_path / "large", quantize="int8", sessions=1)
        assert "w0" in failed.value.err


def test_a_changed_checkpoint_is_refused_and_says_to_add_it_again(tmp_path):
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(RECALL, folder)
    with Cluster(tmp_path / "cluster") as c:
        c.start_workers(1)
        c.run("model", "add", folder, "--name", "copy")
        with open(folder / "model.safetensors", "r+b") as f:
            f.seek(-1, 2)
            last = f.read(1)[0]
            f.seek(-1, 2)
            f.write(bytes([last ^ 1]))
        _, err, status = c.run("model", "load", "copy", check=False)
        assert status == 1
        assert "model add" in err


def test_an_interrupted_fetch_goes_on_where_it_was(tmp_path):
    total = make_checkpoint(tmp_path / "large")
    # A quarter arrives, and no more.
    with Cluster(tmp_path / "cluster") as c, Relay(c.address, hold_after=total // 4) as relay:
        c.start_worker("w0", coordinator=relay.address)
        c.run("model", "add", tmp_path / "large")

        def on_disk():
            folder = tmp_path / "cluster" / "w0" / "cache"
            return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())

        loading = c.popen("model", "load", "large", "--context", 64, "--sessions", 1)
        assert relay.held.wait(GIVE_UP_S)
        wait_until(lambda: on_disk() > total // 8, "an eighth has arrived")
        c.workers["w0"].kill()
        loading.communicate(timeout=GIVE_UP_S)
        kept = on_disk()
        assert kept < total, "it was interrupted in the middle"
        c.start_worker("w0")
        wait_until(lambda: c.json("model", "list")["models"][0]["state"] == "ready", "loaded")
        c.wait_node("w0", ("serving",))
        rest = wait_until(lambda: fetched(c, "w0"), "the count arrived")
        # What was on disk did not travel again, but for what was not yet written down.
        assert rest <= total - kept + (16 << 20)
        assert c.generate("large", ids=[5, 6], max_tokens=2, ignore_eos=True)["token_ids"]


def test_a_pulled_model_answers_though_the_download_broke_in_the_middle(tmp_path, monkeypatch):
    with Hub(RECALL) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        with Cluster(tmp_path) as c:
            c.start_workers(1)
            c.run("model", "pull", "org/name")
            assert hub.broken and any(begin > 0 for _, begin in hub.resumed)
            c.load("name", context=512)
            answer = c.json("chat", "name", "What is the capital of France?")
            assert "Paris" in answer["text"]
            files = {p.name for p in (tmp_path / "coordinator" / "models" / "name").iterdir()}
            assert "pickle.bin" not in files and "train.py" not in files
            c.run("model", "unload", "name")
            c.run("model", "remove", "name")
            assert not (tmp_path / "coordinator" / "models" / "name").exists()


def test_an_uploaded_model_answers(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_workers(1)
        c.run("model", "add", RECALL, "--name", "up", "--upload")
        c.load("up", context=512)
        assert "Paris" in c.json("chat", "up", "What is the capital of France?")["text"]
