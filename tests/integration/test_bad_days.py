"""Workers that go mute, disks that fill, files that are touched, nodes that never come back: what
`strata status` says of each, and that all is well again afterwards."""

import os
import re
import shlex
import shutil
import signal

import pytest

from cluster import GIVE_UP_S, RECALL, Cluster, wait_until
from checkpoints import make_checkpoint
from small_disk import full, mounted
from test_detaching import LARGE

ASK = ["generate", "recall", "--token-ids", "1,2,3", "--max-tokens", 12, "--temperature", 0]


def problems(cluster):
    return cluster.json("status")["problems"]


def problem(cluster, *words):
    """The first problem that has all the words, once there is one."""
    def there():
        return [p for p in problems(cluster) if all(word in p["what"] for word in words)]

    return wait_until(there, f"a problem says {words}; there are {problems(cluster)}")[0]


def all_is_well(cluster):
    wait_until(lambda: not problems(cluster), "nothing is wrong")
    assert "Nothing is wrong." in cluster.run("status")[0]


def hinted(text):
    """The commands that a hint names."""
    return [shlex.split(command)[1:] for command in re.findall(r"`(strata [^`]*)`", text)]


def go_mute(cluster, worker):
    """Starts a worker that joins and heartbeats, and hangs at the first weights that it opens: a
    pipe in their place, which nobody writes to."""
    cluster.workers[worker].stop()
    blobs = [p for p in (cluster.folder / worker).glob("cache/sha256/*/*") if p.is_file()]
    kept = max(blobs, key=lambda p: p.stat().st_size)
    aside = cluster.folder / f"{worker}.blob"
    shutil.move(kept, aside)
    os.mkfifo(kept)
    cluster.start_worker(worker, "--packed-cache", "off")

    def mend():
        cluster.workers[worker].kill()
        kept.unlink()
        shutil.move(aside, kept)
        cluster.start_worker(worker, "--packed-cache", "off", wait=False)

    return mend


def test_a_worker_that_never_answers_is_named_ends_the_load_and_is_loaded_on_once_it_is_back(
        tmp_path):
    with Cluster(tmp_path, load_timeout="2s", retry_load="1s") as cluster:
        for name in ("w0", "w1"):
            cluster.start_worker(name, "--packed-cache", "off")
        cluster.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        right = cluster.json(*ASK)["token_ids"]
        cluster.run("model", "unload", "recall")
        mend = go_mute(cluster, "w1")
        load = cluster.popen("model", "load", "recall", "--layers", "w0:0-3,w1:4-7",
                             "--context", 512)
        wait = wait_until(lambda: [w for w in cluster.json("status")["waits"]
                                   if w["node"] == "w1" and w["model"] == "recall"],
                          "what is waited for is shown")[0]
        assert "layers 4-7" in wait["what"] and wait["limit_s"] == 2
        _, err = load.communicate(timeout=GIVE_UP_S)
        assert load.returncode == 1 and "w1" in err and "no progress" in err, err
        # It is tried again, and the cause is said all the time.
        wait_until(lambda: cluster.json("model", "show", "recall").get("retry", {}).get(
            "failed", 0) >= 2, "it was tried again")
        assert "w1" in problem(cluster, "recall", "waited in vain")["what"]
        mend()
        cluster.wait_ready("recall")
        assert cluster.json(*ASK)["token_ids"] == right
        all_is_well(cluster)


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "small", "32m") as folder:
        yield folder


def test_a_load_that_failed_for_a_full_disk_is_made_up_for_once_there_is_room(tmp_path, small_disk):
    with Cluster(tmp_path / "cluster", retry_load="200ms", retry_load_at_most="400ms") as cluster:
        cluster.start_worker("w0", data=str(small_disk / "w0"))
        with full(small_disk):
            cluster.run("model", "add", RECALL, "--name", "recall")
            _, err, status = cluster.run("model", "load", "recall", "--nodes", "w0", check=False)
            assert status == 1 and "space" in err.lower() and "by itself" in err, err
            found = problem(cluster, "recall", "loaded again by itself")
            assert "space" in found["what"].lower()
            wait_until(lambda: cluster.json("model", "show", "recall").get("retry", {}).get(
                "failed", 0) >= 3, "it is tried again and again")
        cluster.wait_ready("recall")
        assert cluster.json(*ASK)["token_ids"]
        all_is_well(cluster)


def test_a_checkpoint_that_a_worker_refuses_is_not_tried_again(tmp_path):
    with Cluster(tmp_path, retry_load="50ms") as cluster:
        cluster.start_worker("w0")
        cluster.run("model", "add", RECALL, "--name", "recall")
        _, err, status = cluster.run("model", "load", "recall", "--kv-dtype", "bf16", check=False)
        assert status == 1 and "bf16" in err and "by itself" not in err, err
        assert "retry" not in cluster.json("model", "show", "recall")
        assert not any("by itself" in p["what"] for p in problems(cluster))


def test_a_node_with_a_full_disk_is_chosen_for_nothing_that_it_would_have_to_keep(
        tmp_path, small_disk):
    with Cluster(tmp_path / "cluster") as cluster:
        # The one with more memory would be taken.
        cluster.start_worker("w0", memory="1GiB")
        cluster.start_worker("w1", data=str(small_disk / "w1"), memory="2GiB")
        with full(small_disk):
            wait_until(lambda: cluster.json("node", "show", "w1")["disk_free_bytes"] == 0,
                       "w1 says that its disk is full")
            cluster.run("model", "add", RECALL, "--name", "recall")
            cluster.run("model", "load", "recall")
            plan = cluster.json("model", "show", "recall")["plan"]
            nodes = [stage["node"] for stage in plan["stages"]]
            assert nodes == ["w0"]
            check = cluster.json("model", "check", "recall")
            assert check["reference_node"] == "w0" and check["equal"]


def test_a_coordinator_with_a_full_disk_says_so_starts_and_serves(tmp_path, small_disk):
    with Cluster(tmp_path / "cluster", data_dir=small_disk / "coordinator",
                 min_free_disk="64KiB") as cluster:
        cluster.start_workers(2)
        cluster.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        right = cluster.json(*ASK)["token_ids"]
        all_is_well(cluster)
        listen = cluster.address
        with full(small_disk):
            assert "--data-dir" in problem(cluster, "free")["what"]
            # Twice: what one start leaves must not keep the next one from starting.
            for kill in (True, False):
                if kill:
                    cluster.coordinator.kill()
                else:
                    cluster.coordinator.stop()
                cluster.start_coordinator(listen)
                cluster.wait_ready("recall")
                assert cluster.json(*ASK)["token_ids"] == right
            _, err, status = cluster.run("model", "unload", "recall", "--force", check=False)
            assert status == 1 and "full" in err, err
            assert "cannot record" in problem(cluster, "cannot record")["what"]
            assert cluster.json(*ASK)["token_ids"] == right
        all_is_well(cluster)
        # And what could not be recorded is now: a start finds all of it.
        cluster.coordinator.stop()
        cluster.start_coordinator(listen)
        cluster.wait_ready("recall")
        assert cluster.json(*ASK)["token_ids"] == right


def test_a_model_whose_files_were_touched_loads_as_before(tmp_path):
    path = tmp_path / "files"
    shutil.copytree(RECALL, path)
    weights = path / "model.safetensors"

    def reads(cluster):
        return cluster.coordinator.text().count("was read again")

    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start_worker("w0")
        cluster.load("mine", path, context=512)
        # Nothing of it is cached.
        def load_afresh():
            cluster.run("model", "unload", "mine")
            cluster.workers["w0"].stop()
            shutil.rmtree(tmp_path / "cluster" / "w0")
            cluster.start_worker("w0")
            cluster.load("mine", context=512)

        for file in path.iterdir():
            os.utime(file)
        load_afresh()
        assert reads(cluster) == 1
        load_afresh()
        assert reads(cluster) == 1, "once"
        listen = cluster.address
        cluster.coordinator.stop()
        cluster.start_coordinator(listen)
        cluster.wait_ready("mine")
        load_afresh()
        assert reads(cluster) == 0, "that is durable"
        # Other bytes are another model, and what is said to do about it works as it is typed.
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        with pytest.raises(Exception, match="changed since it was registered") as failed:
            load_afresh()
        commands = hinted(str(failed.value))
        assert [c[:2] for c in commands] == [["model", "remove"], ["model", "add"],
                                             ["model", "show"]], failed.value
        for command in commands:
            cluster.run(*command)
        cluster.load("mine", context=512)
        all_is_well(cluster)


def test_an_upload_that_is_ended_says_why(tmp_path):
    make_checkpoint(tmp_path / "large", **LARGE, sparse=True)
    with Cluster(tmp_path / "cluster", upload_timeout="1s") as cluster:
        upload = cluster.popen("model", "add", tmp_path / "large", "--upload")
        wait_until((cluster.data_dir / "models" / "large.uploading").exists, "it has begun")
        upload.send_signal(signal.SIGSTOP)
        cluster.coordinator.wait_for("sent nothing for .* and was ended")
        upload.send_signal(signal.SIGCONT)
        _, err = upload.communicate(timeout=GIVE_UP_S)
        assert upload.returncode == 1
        assert "sent nothing for" in err and "--upload-timeout" in err, err
        assert not cluster.json("model", "list")["models"]


def test_nodes_that_left_are_forgotten_unless_a_model_has_layers_on_them(tmp_path):
    with Cluster(tmp_path) as cluster:
        for name in ("w0", "w1", "w2", "w3", "w4"):
            cluster.start_worker(name)
        cluster.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        for name in ("w1", "w2", "w3", "w4"):
            cluster.workers[name].stop()
        wait_until(lambda: sum(n["state"] == "lost" for n in cluster.json("node", "list")["nodes"])
                   == 4, "they are gone")
        gone = problem(cluster, "node w2")
        assert ["node", "remove", "w2"] in hinted(gone["do"])
        cluster.run("node", "remove", "w2")
        # One that is in use is not forgotten, and what is said of it is possible.
        assert all(command[:2] != ["node", "remove"]
                   for command in hinted(problem(cluster, "node w1")["do"]))
        assert cluster.json("node", "remove", "--gone") == {"removed": ["w3", "w4"]}
        assert {n["name"] for n in cluster.json("node", "list")["nodes"]} == {"w0", "w1"}
        listen = cluster.address
        cluster.coordinator.stop()
        cluster.flags["forget_nodes_after"] = "1s"
        cluster.start_coordinator(listen)
        cluster.start_worker("w5")
        cluster.workers["w5"].stop()
        wait_until(lambda: {n["name"] for n in cluster.json("node", "list")["nodes"]} ==
                   {"w0", "w1"}, "w5 is forgotten by itself")
        # The load that the problem of w1 names.
        cluster.wait_node("w0")
        load = [c for c in hinted(problem(cluster, "node w1")["do"]) if c[1] == "load"][0]
        cluster.run(*load)
        wait_until(lambda: not cluster.node("w1"), "w1 is of no use any more")
        all_is_well(cluster)
