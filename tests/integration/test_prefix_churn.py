"""Cached equals uncached, bit for bit, where prefixes come and go: a small pool, many clients."""

import concurrent.futures
import random

from cluster import RECALL, Cluster
from http_client import post
from metrics_text import scrape, total

CUTS = [("w0", 0, 3), ("w1", 4, 7)]
CLIENTS = 12
REQUESTS = 120


def start(folder, speculate="auto", **flags):
    cluster = Cluster(folder, **flags)
    cluster.start_workers(2)
    # For a few requests: 40 pages.
    cluster.load("recall", RECALL, cuts=CUTS, context=512, kv_tokens=640, speculate=speculate)
    return cluster


def requests():
    """Prompts that begin with parts of each other, cut within pages too; tokens greedy or drawn."""
    draw = random.Random(11)
    prefixes = [[draw.randrange(1000) for _ in range(300)] for _ in range(8)]
    made = []
    for index in range(REQUESTS):
        prompt = draw.choice(prefixes)[:draw.randint(8, 300)]
        prompt = prompt + [draw.randrange(1000) for _ in range(draw.randint(0, 30))]
        made.append({"model": "recall", "prompt": prompt, "max_tokens": draw.randint(1, 80),
                     "temperature": draw.choice([0, 0.9]), "seed": index, "logprobs": 3,
                     "ignore_eos": True})
    return made


def ask(cluster, body):
    answer = post(cluster, "/v1/completions", body)
    (choice,) = answer["choices"]
    assert len(choice["logprobs"]["token_logprobs"]) == body["max_tokens"]
    return choice, answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_answers_under_churn_have_the_logprobs_of_answers_without_a_cache(tmp_path):
    bodies = requests()
    with start(tmp_path / "off", speculate="off", prefix_cache="off") as cluster:
        alone = [ask(cluster, body) for body in bodies]
        assert {cached for _, cached in alone} == {0}
    with start(tmp_path / "on") as cluster:
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(lambda body: ask(cluster, body), bodies))
        samples = scrape(cluster.http)
        cluster.nothing_is_left()
    for name in ("prefix_hit_tokens", "prefix_evictions", "preemptions"):
        assert total(samples, f"strata_{name}_total") > 0, name
    assert sum(cached > 0 for _, cached in answers) > REQUESTS / 10
    differ = [i for i, (mine, reference) in enumerate(zip(answers, alone))
              if mine[0] != reference[0]]
    assert not differ, [(answers[i], alone[i]) for i in differ[:1]]
