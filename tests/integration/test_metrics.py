"""GET /metrics of a real coordinator, before and after requests."""

import http.client
import re

import pytest

import test_dashboard as dashboard
from cluster import RECALL, Cluster, cut, recall_cases, wait_until
from http_client import begin, post, request

CASE = next(c for c in recall_cases() if c["right"] and len(c["text"].split()) > 4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("metrics"), max_queued_requests=2) as c:
        assert not [line for line in scrape_text(c).splitlines() if 'model="' in line]
        c.run("model", "add", RECALL, "--name", "recall")
        c.start_workers(2)
        c.load("recall", cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=512, sessions=4)
        yield c


def scrape_text(cluster):
    connection = http.client.HTTPConnection(cluster.http, timeout=60)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode()
        assert response.status == 200, text
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return text
    finally:
        connection.close()


def scrape(cluster):
    """{(name, ((label, value), ...)): number}; fails on a line that is not of the format."""
    out = {}
    for line in scrape_text(cluster).splitlines():
        if line.startswith("# HELP ") or line.startswith("# TYPE "):
            continue
        name, labels, value = re.fullmatch(r"([a-z_:][a-z0-9_:]*)\{(.*)\} (\S+)", line).groups()
        key = (name, tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels))))
        assert key not in out, line
        out[key] = float(value)
    return out


def total(samples, name, **labels):
    found = [v for (n, ls), v in samples.items() if n == name and set(labels.items()) <= set(ls)]
    assert found, (name, labels)
    return sum(found)


def test_each_name_that_the_dashboard_asks_for_is_there(cluster):
    samples = scrape(cluster)
    names = {name for name, labels in samples if ("model_name", "recall") in labels}
    for expression in dashboard.expressions():
        for asked in re.findall(r'__name__=~\\?"([^"\\]+)|(vllm:[a-z0-9_]+)\{', expression):
            pattern = asked[0] or asked[1]
            # A name that is there in two spellings would make a rate ambiguous.
            assert len([n for n in names if re.fullmatch(pattern, n)]) == 1, pattern
    for stem in dashboard.HISTOGRAMS:
        assert {f"vllm:{stem}_{part}" for part in ["bucket", "sum", "count"]} <= names


def test_requests_are_counted_and_timed_as_their_answers_say(cluster):
    before = scrape(cluster)
    answers = [post(cluster, "/v1/completions",
                    {"model": "recall", "prompt": CASE["prompt_ids"], "temperature": 0,
                     "max_tokens": most}) for most in [96, 96, 2]]
    after = scrape(cluster)

    def grew(name, **labels):
        return total(after, name, **labels) - total(before, name, **labels)

    prompt = sum(a["usage"]["prompt_tokens"] for a in answers)
    generated = sum(a["usage"]["completion_tokens"] for a in answers)
    assert (grew("strata_prompt_tokens_total"), grew("strata_generation_tokens_total")) == (
        prompt, generated)
    assert grew("strata_requests_total", finished_reason="stop") == 2
    assert grew("vllm:request_success_total", finished_reason="length") == 1
    assert grew("strata_inter_token_seconds_count") == generated - 3
    for name in ["time_to_first_token", "request", "request_queue", "request_prefill",
                 "request_decode"]:
        assert grew(f"strata_{name}_seconds_count") == 3, name
    parts = sum(grew(f"strata_request_{part}_seconds_sum")
                for part in ["queue", "prefill", "decode"])
    # First tokens are timed when they are told, the end by the engine.
    assert parts == pytest.approx(grew("strata_request_seconds_sum"), abs=0.1)
    assert grew("strata_steps_committed_total") > 0
    # What was refused is counted, and what is not a model makes no series.
    status, _, _ = request(cluster, "POST", "/v1/completions",
                           {"model": "recall", "prompt": [1], "max_tokens": 100000})
    assert status == 400
    assert request(cluster, "POST", "/v1/completions", {"model": "other", "prompt": [1]})[0] == 404
    text = scrape_text(cluster)
    assert total(scrape(cluster), "strata_requests_total", finished_reason="refused") == 1
    assert "other" not in text


def test_what_runs_and_its_pages_are_shown_until_it_ends(cluster):
    body = {"model": "recall", "prompt": [1] * 8, "max_tokens": 400, "ignore_eos": True,
            "stream": True}
    connection, response = begin(cluster, "/v1/completions", body)
    response.readline()
    busy = scrape(cluster)
    assert total(busy, "strata_requests_running", model="recall") == 1
    assert total(busy, "vllm:num_requests_waiting") == 0
    assert total(busy, "strata_sessions") == 1
    assert total(busy, "strata_pipeline_state", state="running") == 1
    for stage in "01":
        assert total(busy, "strata_kv_pages", stage=stage, state="live") > 0
    assert 0 < total(busy, "vllm:kv_cache_usage_perc") <= 1
    connection.close()

    def over():
        samples = scrape(cluster)
        return (total(samples, "strata_requests_running") == 0
                and total(samples, "strata_kv_pages", state="live") == 0
                and total(samples, "vllm:request_success_total", finished_reason="abort") == 1)

    wait_until(over, 10, "the request that nobody listens to is gone from the metrics")
