"""Weights come from any worker that has them, and are kept where a lost node's layers would go (--standby)."""

import hashlib
import json
import struct

import pytest

from checkpoints import make_checkpoint
from cluster import NEVER, RECALL, Cluster, cut, wait_until
from metrics_text import scrape, total
from small_disk import full, mounted
from test_recovery import LAYERS, PROMPTS, Asked, arguments, essence, nodes_of, wait_without
from test_weights import ROTARY

SENT = "strata_weights_sent_bytes_total"
IDS = [1, 2, 3, 4, 5]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "m"
    make_checkpoint(folder, layers=LAYERS, context=1024, stored="bf16")
    return folder


def sent(cluster):
    """Bytes of weights that the coordinator has sent."""
    return total(scrape(cluster.http), SENT)


def shown(cluster, name):
    return cluster.json("node", "show", name)


def loads(cluster, name):
    """What the log of a worker says of the loads that it ended."""
    return [line for line in cluster.workers[name].text().splitlines() if "layers are ready" in line]


def standby(cluster, model="m"):
    return cluster.json("model", "show", model)["standby"]


def wait_kept(cluster, model="m", where_one_can=False):
    """Until all layers are kept, or those that some node can keep; what `model show` says of them."""
    def settled(part):
        return part["state"] == "ready" or where_one_can and part["state"] == "failed" and not part.get("node")

    def kept():
        parts = standby(cluster, model)
        return parts if parts and all(map(settled, parts)) else None

    return wait_until(kept, "all layers are kept on other nodes")


def different_bytes(path):
    """Of all tensors of a file, each content once."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    contents = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensor = data[8 + size + begin : 8 + size + end]
            contents[hashlib.sha256(tensor).digest()] = len(tensor)
    return sum(contents.values())


def test_with_four_workers_that_all_want_all_layers_the_coordinator_sends_each_byte_once(tmp_path):
    with Cluster(tmp_path) as c:
        names = c.start_workers(4)
        c.load("recall", RECALL, cuts=cut(names, 8), context=512, standby=3)
        # Nodes take what they take by their speed: they want most of the layers, at the same time.
        parts = wait_kept(c, "recall", where_one_can=True)
        assert {part["of_node"] for part in parts} == set(names)
        assert any(part["state"] == "ready" for part in parts)

        def check_sent():
            once = different_bytes(RECALL / "model.safetensors") + ROTARY
            # On a machine with no time to spare a worker may be left for being slow; the log says so.
            if any("does not give blob" in c.workers[name].text() for name in names):
                assert once <= sent(c) < len(names) * once
            else:
                assert sent(c) == once

        check_sent()
        # Until each has all.
        right = c.generate("recall", ids=IDS, max_tokens=8, temperature=0)["token_ids"]
        for first in range(len(names)):
            c.run("model", "unload", "recall")
            c.load("recall", cuts=cut(names[first:] + names[:first], 8), context=512)
        wait_until(lambda: all(shown(c, name)["packed_layers"] == 8 for name in names), "all have all")
        check_sent()
        wait_until(lambda: sum(shown(c, name)["sent_bytes"] for name in names) ==
                   sum(shown(c, name)["fetched_from_workers_bytes"] for name in names) > sent(c),
                   "what workers sent is what workers got")

        # Placed anew, it moves nothing.
        before, fetched = sent(c), [shown(c, name)["fetched_bytes"] for name in names]
        c.run("model", "unload", "recall")
        c.load("recall", cuts=cut(names[::-1], 8), context=512)
        assert c.generate("recall", ids=IDS, max_tokens=8, temperature=0)["token_ids"] == right
        assert sent(c) == before
        assert [shown(c, name)["fetched_bytes"] for name in names] == fetched


def test_a_lost_nodes_layers_move_no_weights(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        for i in range(4):
            c.start_worker(f"w{i}")
        c.load("m", model, cuts=cut(["w0", "w1", "w2"], LAYERS), context=512, recovery="move", standby=1)
        right = essence(c.json(*arguments(PROMPTS[0], 60, "alone")))
        parts = wait_kept(c)
        assert [part["of_node"] for part in parts] == ["w0", "w1", "w2"]
        text = c.run("model", "show", "m")[0]
        assert "Kept on other nodes (--standby 1)" in text and "ready (2 of 2)" in text

        alive = ["w0", "w2", "w3"]
        before = sent(c), {name: loads(c, name) for name in alive}
        asked = Asked(c, PROMPTS[0], 60, "moved")
        asked.reach(5)
        c.workers["w1"].kill()
        wait_without(c, "w1")
        assert asked.answer() == right
        new = [line for name in alive for line in loads(c, name)[len(before[1][name]):]]
        assert new and all('fetched="0 B"' in line for line in new), new
        assert any('packed_before="0 B"' not in line for line in new), new
        assert sent(c) == before[0]
        # What is kept is made again for where the layers are now.
        wait_until(lambda: {part["of_node"] for part in standby(c)} == nodes_of(c), "it is planned anew")
        wait_kept(c)
        c.nothing_is_left()

        # It goes with the model.
        c.run("model", "unload", "m")
        wait_until(lambda: all(shown(c, name)["standby_bytes"] == 0 for name in alive), "nothing is kept")


def test_a_full_disk_and_a_limit_end_what_is_kept_and_no_request(tmp_path):
    disk = tmp_path / "disk"
    with mounted(disk, "48m"), Cluster(tmp_path) as c:
        c.start_worker("w0")
        c.start_worker("full", data=str(disk / "full"))
        c.load("recall", RECALL, nodes="w0", context=512, standby=1)

        def reasons():
            return {part["problem_reason"] for part in standby(c, "recall") if part["state"] == "failed"}

        assert wait_until(reasons, "the disk is too full") == {"DISK_FULL"}
        (problem,) = [p for p in c.json("status")["problems"] if "does not keep layers" in p["what"]]
        assert "48" in problem["what"] or "MiB" in problem["what"]
        assert c.generate("recall", ids=IDS, max_tokens=3, temperature=0)["token_ids"]
        c.workers["full"].stop()
        c.start_worker("limited", "--standby-limit", "1KiB")
        wait_until(lambda: reasons() == {"STANDBY_LIMIT"}, "the limit is met")
        assert c.generate("recall", ids=IDS, max_tokens=3, temperature=0)["token_ids"]
        c.workers["limited"].stop()
        c.start_worker("off", "--packed-cache", "off")
        wait_until(lambda: reasons() == {"PACKED_CACHE_OFF"}, "it keeps nothing packed")


def test_a_load_that_finds_the_disk_full_has_the_room_of_what_is_cached_and_unused(tmp_path):
    disk, small = tmp_path / "disk", tmp_path / "small"
    make_checkpoint(small, hidden=128, ffn=256, vocab=304, heads=4, kv_heads=4)
    with mounted(disk, "48m"), Cluster(tmp_path) as c:
        c.start_worker("w0", data=str(disk / "w0"))
        c.load("recall", RECALL, context=512, nodes="w0")
        c.run("model", "unload", "recall")
        with full(disk):
            c.load("small", small, nodes="w0")
            assert c.generate("small", ids=IDS, max_tokens=3, temperature=0)["token_ids"]
            # Kept packed too, since that was room enough.
            assert not any("are not kept" in line for line in c.workers["w0"].text().splitlines())
        c.load("recall", context=512, nodes="w0")
        assert c.generate("recall", ids=IDS, max_tokens=3, temperature=0)["token_ids"]


def spoil(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def largest(folder):
    return max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def test_a_spoilt_packed_file_is_made_again_when_the_layers_come(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_worker("w0")
        c.load("m", model, context=512, nodes="w0", recovery="move", standby=1)
        right = essence(c.json(*arguments(PROMPTS[0], 40, "alone")))
        c.start_worker("spare")
        wait_kept(c)
        spoil(largest(tmp_path / "spare" / "cache" / "packed"))
        before = sent(c)
        c.workers["w0"].kill()
        wait_without(c, "w0")
        assert essence(c.json(*arguments(PROMPTS[0], 40, "afterwards"))) == right
        c.workers["spare"].wait_for("packed weights are made again: .*has a wrong checksum")
        assert sent(c) == before


def test_a_worker_that_gives_other_bytes_is_left_and_never_used(tmp_path, model):
    with Cluster(tmp_path, step_timeout=NEVER) as c:
        c.start_worker("liar")
        c.load("m", model, context=512, nodes="liar")
        right = essence(c.json(*arguments(PROMPTS[0], 20, "alone")))
        before = sent(c)
        # It has verified its files, and looks at them no more.
        spoilt = largest(tmp_path / "liar" / "cache" / "sha256")
        size = spoilt.stat().st_size
        spoil(spoilt)
        c.run("model", "unload", "m")
        c.start_worker("w0")
        c.load("m", context=512, nodes="w0")
        assert essence(c.json(*arguments(PROMPTS[0], 20, "again"))) == right
        wait_until(lambda: shown(c, "w0")["bad_blobs"] >= 1, "it is counted")
        c.workers["w0"].wait_for("node 'liar' gave bytes that are not those of blob")
        assert sent(c) >= before + size
