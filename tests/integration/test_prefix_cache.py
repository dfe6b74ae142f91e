"""The prefix cache through real processes: less work, the same answers."""

import pytest

from cluster import RECALL, Cluster

PREFIX = [(7 * i) % 900 for i in range(100)]
CUTS = [("w0", 0, 3), ("w1", 4, 7)]


def start(folder, **flags):
    cluster = Cluster(folder, **flags)
    cluster.start_workers(2)
    cluster.load("recall", RECALL, cuts=CUTS, context=512, sessions=4)
    return cluster


def ask(cluster, tail):
    return cluster.generate("recall", ids=PREFIX + tail, max_tokens=8, temperature=0,
                            ignore_eos=True, logprobs=1)


def essence(answer):
    return answer["token_ids"], [entry["logprob"] for entry in answer["logprobs"]]


@pytest.fixture(scope="module")
def uncached(tmp_path_factory):
    with start(tmp_path_factory.mktemp("off"), prefix_cache="off") as cluster:
        answers = [ask(cluster, [tail] * 5) for tail in (1, 2, 1)]
        assert [a["usage"]["cached_tokens"] for a in answers] == [0, 0, 0]
        assert all(entry["cached"] == 0 for entry in cluster.kv())
        yield answers


def test_a_shared_prefix_is_taken_from_the_cache_with_the_same_answer(uncached, tmp_path):
    with start(tmp_path) as cluster:
        answers = [ask(cluster, [tail] * 5) for tail in (1, 2, 1)]
        assert [a["usage"]["cached_tokens"] for a in answers] == [0, 100, 104]
        assert [essence(a) for a in answers] == [essence(a) for a in uncached]
        assert all(entry["cached"] > 0 for entry in cluster.kv())
