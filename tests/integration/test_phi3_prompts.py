"""Phi-3 where other engines failed: a second prompt on a cache that the first one left, a prompt
longer than the window, and LongRoPE's two rotations at once."""

import concurrent.futures
import random

import pytest

from checkpoints import make_phi3
from cluster import Cluster, cut

WORKERS = [f"w{i}" for i in range(4)]
LAYERS = 4
VOCAB = 128
WINDOW = 23
ORIGINAL = 64  # Tokens up to which the short factors turn.
PROMPTS = 100
ANSWER = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phi3")
    make_phi3(folder / "mini", LAYERS, vocab=VOCAB, sliding_window=WINDOW,
              max_position_embeddings=4096)
    pairs = range(16)  # Of a head of 32.
    make_phi3(folder / "long", LAYERS, vocab=VOCAB, max_position_embeddings=2048,
              original_max_position_embeddings=ORIGINAL, sliding_window=None,
              rope_scaling={"type": "longrope", "short_factor": [1 + i / 50 for i in pairs],
                            "long_factor": [1 + i for i in pairs]})
    with Cluster(folder / "cluster") as c:
        c.start_workers(len(WORKERS))
        for model in ("mini", "long"):
            c.run("model", "add", folder / model)
        yield c


def prompts(lengths):
    rng = random.Random(3)
    return [[rng.randrange(3, VOCAB) for _ in range(length)] for length in lengths]


def answer(cluster, model, prompt, tokens=ANSWER):
    got = cluster.generate(model, ids=prompt, max_tokens=tokens, temperature=0, ignore_eos=True,
                           logprobs=1)
    assert got["usage"]["prompt_tokens"] == len(prompt)
    return got["token_ids"], [entry["logprob"] for entry in got["logprobs"]]


@pytest.fixture(scope="module")
def alone(cluster):
    """The prompts, alternately of one token and longer than the window; and what some of them give
    on a model that was loaded for them, and has seen no other."""
    asked = prompts(1 if i % 2 == 0 else WINDOW + 1 + i for i in range(PROMPTS))
    first = {}
    for i in (0, 1, 2, 51, 98, 99):
        cluster.load("mini", cuts=[("w0", 0, LAYERS - 1)])
        first[i] = answer(cluster, "mini", asked[i])
        cluster.run("model", "unload", "mini")
    return asked, first


@pytest.mark.parametrize("shards", [1, 4])
def test_a_hundred_prompts_of_one_token_and_beyond_the_window_in_turn(cluster, alone, shards):
    asked, first = alone
    cluster.load("mini", cuts=cut(WORKERS[:shards], LAYERS))
    in_turn = [answer(cluster, "mini", prompt) for prompt in asked]
    assert {i: in_turn[i] for i in first} == first
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(lambda prompt: answer(cluster, "mini", prompt), asked))
    assert at_once == in_turn
    cluster.nothing_is_left()
    cluster.run("model", "unload", "mini")


@pytest.mark.parametrize("shards", [1, 4])
def test_requests_below_and_above_the_original_context_at_the_same_time(cluster, shards):
    # Below, at, and above it with the answer, and prompts that are above it by themselves.
    asked = prompts([3, ORIGINAL - ANSWER, ORIGINAL - ANSWER + 1, ORIGINAL + 5] * 3)
    cluster.load("long", cuts=cut(WORKERS[:shards], LAYERS))
    alone = [answer(cluster, "long", prompt) for prompt in asked]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda prompt: answer(cluster, "long", prompt), asked))
    assert together == alone
    # A prompt turns otherwise once its answer may pass the original context.
    longer = answer(cluster, "long", asked[1], ANSWER + 1)
    assert longer[1][:ANSWER] != alone[1][1]
    cluster.nothing_is_left()
    cluster.run("model", "unload", "long")
