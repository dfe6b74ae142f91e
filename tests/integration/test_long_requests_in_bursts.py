"""Long requests that come in bursts to a pool that has room for one and a bit: the case in which
others ran «out of available cache blocks» in mid-answer."""

import json

import pytest

from checkpoints import make_checkpoint
from cluster import GIVE_UP_S, Cluster, cut, wait_until

PAGE = 16
INPUT, CONTEXT = 8096, 18000
PAGES, FREE = 1024, 172  # Of each request, and what the first one leaves.
BURST = 5


# The numbers as they were reported, and an eighth of them.
@pytest.fixture(scope="module", params=[8, pytest.param(1, marks=pytest.mark.long)],
                ids=["an_eighth", "whole"])
def cluster(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bursts")
    make_checkpoint(folder / "long", layers=4, hidden=64, ffn=128, vocab=500, heads=4, kv_heads=1,
                    context=CONTEXT)
    with Cluster(folder) as c:
        c.scale = request.param
        c.run("model", "add", folder / "long", "--name", "long")
        c.load("long", cuts=cut(c.start_workers(2), 4), context=CONTEXT // c.scale,
               kv_tokens=PAGE * ((PAGES + FREE) // c.scale), speculate="off")  # Answers last until the others have come.
        # What is asked for, and a page for each of a few sessions.
        assert {entry["total"] - (PAGES + FREE) // c.scale for entry in c.kv()} <= set(range(9))
        yield c


def arguments(cluster, number, *more, prompt=INPUT, total=PAGE * PAGES):
    prompt //= cluster.scale
    ids = ",".join(str((i * (number + 7) + i // 100) % 500) for i in range(prompt))
    return ["generate", "long", "--token-ids", ids, "--max-tokens", total // cluster.scale - prompt,
            "--temperature", 0, "--ignore-eos", "--request-id", f"r{number}", "--json", *more]


def start(cluster, numbers):
    return [cluster.popen(*arguments(cluster, number)) for number in numbers]


def tokens(process):
    out, err = process.communicate(timeout=GIVE_UP_S)
    assert process.returncode == 0, err
    return json.loads(out)["token_ids"]


@pytest.fixture(scope="module")
def alone(cluster):
    return [cluster.json(*arguments(cluster, number))["token_ids"]
            for number in range(BURST + 1)]


def test_a_burst_waits_and_is_answered_as_alone(cluster, alone):
    promised = cluster.popen(*arguments(cluster, 0, "--guaranteed"))
    wait_until(lambda: {e["live"] for e in cluster.kv()} == {PAGES // cluster.scale},
               "the first has all of its pages")
    burst = start(cluster, range(1, BURST + 1))
    wait_until(lambda: sum(s["state"] == "queued" for s in
                           cluster.json("session", "list")["sessions"]) == BURST,
               "none of the others is admitted on a part of what it needs")
    assert [tokens(p) for p in [promised, *burst]] == alone
    cluster.nothing_is_left()


def test_what_can_never_fit_is_refused_at_once(cluster):
    _, err, status = cluster.run(*arguments(cluster, 50, total=CONTEXT + 8 * PAGE), check=False)
    assert status == 1 and err.count("\n") == 1
    assert f"context of {CONTEXT // cluster.scale} tokens" in err, err
    assert cluster.all_free()


def test_a_pool_that_shrinks_meanwhile_changes_the_speed_only(cluster, alone):
    burst = start(cluster, range(BURST + 1))
    wait_until(lambda: any(s["generated_tokens"] > 20 for s in
                           cluster.json("session", "list")["sessions"]), "one generates")
    cluster.run("model", "resize", "long", "--kv-tokens", PAGE * (PAGES + 40) // cluster.scale)
    assert {e["total"] - (PAGES + 40) // cluster.scale for e in cluster.kv()} <= set(range(9))
    assert [tokens(p) for p in burst] == alone
    cluster.nothing_is_left()
