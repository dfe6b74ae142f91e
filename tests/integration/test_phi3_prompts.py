"""Phi-3 where other engines failed: a second prompt on a cache that the first one left, a prompt
longer than the window, and LongRoPE's two rotations at once."""

import concurrent.futures
import random

import pytest

from checkpoints import make_phi3
from cluster import NEVER, Cluster, cut

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
    # No answer leans on what another one computed. Workers are halted for a while below.
    with Cluster(folder / "cluster", prefix_cache="off", lease=NEVER, step_timeout=NEVER) as c:
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
    assert got["usage"].items() >= {"prompt_tokens": len(prompt), "completion_tokens": tokens,
                                    "cached_tokens": 0}.items()
    return got["token_ids"], [entry["logprob"] for entry in got["logprobs"]]


def answers_alone(cluster, model, asked):
    """What each gives on a model that was loaded for it, and has seen no other."""
    answers = []
    for prompt in asked:
        cluster.load(model, cuts=[("w0", 0, LAYERS - 1)])
        answers.append(answer(cluster, model, prompt))
        cluster.run("model", "unload", model)
    return answers


def answers_at_once(cluster, model, asked):
    """What they give when all begin together: a worker is halted until every one is there."""
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        with cluster.stalled("w0"):
            calls = [pool.submit(answer, cluster, model, prompt) for prompt in asked]
            cluster.wait_sessions(len(asked))
        return [call.result() for call in calls]


@pytest.fixture(scope="module")
def alone(cluster):
    """The prompts, alternately of one token and longer than the window; and what some of them give
    alone."""
    asked = prompts(1 if i % 2 == 0 else WINDOW + 1 + i for i in range(PROMPTS))
    some = (0, 1, 2, 51, 98, 99)
    return asked, dict(zip(some, answers_alone(cluster, "mini", [asked[i] for i in some])))


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


# Below the original context, up to it, above it with the answer, and by the prompt itself.
LONG_LENGTHS = (3, ORIGINAL - ANSWER, ORIGINAL - ANSWER + 1, ORIGINAL + 5)


@pytest.fixture(scope="module")
def long_alone(cluster):
    asked = prompts(LONG_LENGTHS * 3)
    return asked, answers_alone(cluster, "long", asked)


@pytest.mark.parametrize("shards", [1, 4])
def test_requests_below_and_above_the_original_context_at_the_same_time(cluster, long_alone,
                                                                        shards):
    asked, alone = long_alone
    cluster.load("long", cuts=cut(WORKERS[:shards], LAYERS), context=2 * ORIGINAL,
                 sessions=len(asked))
    assert [answer(cluster, "long", prompt) for prompt in asked] == alone
    assert answers_at_once(cluster, "long", asked) == alone
    # A prompt turns otherwise once its answer may pass the original context.
    longer = answer(cluster, "long", asked[1], ANSWER + 1)
    assert longer[1][:ANSWER] != alone[1][1]
    cluster.nothing_is_left()
    cluster.run("model", "unload", "long")
