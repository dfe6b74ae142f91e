"""GET /metrics of a real coordinator and of its workers, before and after requests."""

import re

import pytest

import test_dashboard as dashboard
from cluster import RECALL, SOURCE, Cluster, cut, recall_cases, wait_until
from http_client import begin, post, request
from metrics_text import scrape, scrape_text, total

CASE = next(c for c in recall_cases() if c["right"] and len(c["text"].split()) > 4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("metrics"), max_queued_requests=2) as c:
        assert not [line for line in scrape_text(c.http)[0].splitlines() if 'model="' in line]
        c.run("model", "add", RECALL, "--name", "recall")
        c.start_workers(2, "--metrics-listen", "127.0.0.1:0")
        c.load("recall", cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=512, sessions=4)
        yield c


def test_each_name_that_the_dashboard_asks_for_is_there(cluster):
    samples = scrape(cluster.http)
    names = {name for name, labels in samples if ("model_name", "recall") in labels}
    for expression in dashboard.expressions():
        for asked in re.findall(r'__name__=~\\?"([^"\\]+)|(vllm:[a-z0-9_]+)\{', expression):
            pattern = asked[0] or asked[1]
            # A name that is there in two spellings would make a rate ambiguous.
            assert len([n for n in names if re.fullmatch(pattern, n)]) == 1, pattern
        for own in re.findall(r"strata_[a-z0-9_]+", expression):
            assert total(samples, own, model="recall") >= 0
    for stem in dashboard.HISTOGRAMS:
        assert {f"vllm:{stem}_{part}" for part in ["bucket", "sum", "count"]} <= names


def families(address):
    names = set(re.findall(r"^# TYPE (\S+)", scrape_text(address)[0], re.M))
    return {name for name in names if not name.startswith("exposer_")}


def test_the_documents_have_each_metric(cluster):
    page = (SOURCE / "docs/OPERATIONS.md").read_text()
    sections = {title: re.search(rf"^## {title}$(.*?)^## ", page, re.M | re.S)[1]
                for title in ("Metrics", "Metrics of a worker")}
    name = r"`((?:strata_|vllm:)[a-z0-9_]+)`"
    # Of a worker's the first cells: others say what is like the coordinator's.
    cells = "".join(re.findall(r"^\| (`.*?) \|", sections["Metrics of a worker"], re.M))
    worker = cluster.workers["w0"].wait_for(r"^metrics listening on (\S+)").group(1)
    for title, documented, told in (
            ("Metrics", re.findall(name, sections["Metrics"]), families(cluster.http)),
            ("Metrics of a worker", re.findall(name, cells), families(worker))):
        assert set(documented) == told, (
            f"docs/OPERATIONS.md, {title}: it lacks {sorted(told - set(documented))}, "
            f"and has what is not told: {sorted(set(documented) - told)}")


def test_requests_are_counted_and_timed_as_their_answers_say(cluster):
    before = scrape(cluster.http)
    answers = [post(cluster, "/v1/completions",
                    {"model": "recall", "prompt": CASE["prompt_ids"], "temperature": 0,
                     "max_tokens": most}) for most in [96, 96, 2]]
    after = scrape(cluster.http)

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
    text = scrape_text(cluster.http)[0]
    assert total(scrape(cluster.http), "strata_requests_total", finished_reason="refused") == 1
    assert "other" not in text


def test_what_runs_and_its_pages_are_shown_until_it_ends(cluster):
    body = {"model": "recall", "prompt": [1] * 8, "max_tokens": 400, "ignore_eos": True,
            "speculate": "off", "stream": True}
    connection, response = begin(cluster, "/v1/completions", body)
    response.readline()
    busy = scrape(cluster.http)
    assert total(busy, "strata_requests_running", model="recall") == 1
    assert total(busy, "vllm:num_requests_waiting") == 0
    assert total(busy, "strata_sessions") == 1
    assert total(busy, "strata_pipeline_state", state="running") == 1
    for stage in "01":
        assert total(busy, "strata_kv_pages", stage=stage, state="live") > 0
    assert 0 < total(busy, "vllm:kv_cache_usage_perc") <= 1
    connection.close()

    def over():
        samples = scrape(cluster.http)
        return (total(samples, "strata_requests_running") == 0
                and total(samples, "strata_kv_pages", state="live") == 0
                and total(samples, "vllm:request_success_total", finished_reason="abort") == 1)

    wait_until(over, "the request that nobody listens to is gone from the metrics")


def test_stages_tell_what_they_computed_waited_for_and_sent(cluster):
    # A step of a request that was left before may still be on its way, and counts when it comes.
    wait_until(lambda: total(scrape(cluster.http), "strata_steps_in_flight") == 0,
               "no step is in flight")
    before = scrape(cluster.http)
    answer = post(cluster, "/v1/completions",
                  {"model": "recall", "prompt": [5] * 40, "temperature": 0, "max_tokens": 64,
                   "ignore_eos": True, "speculate": "off"})
    wait_until(lambda: total(scrape(cluster.http), "strata_requests_running") == 0,
               "it has ended")
    after = scrape(cluster.http)

    def grew(name, **labels):
        return total(after, name, **labels) - total(before, name, **labels)

    generated = answer["usage"]["completion_tokens"]
    assert generated == 64
    busy = grew("strata_pipeline_busy_seconds_total")
    for stage, node in enumerate(["w0", "w1"]):
        labels = {"model": "recall", "stage": str(stage), "node": node}
        compute = grew("strata_stage_compute_seconds_total", **labels)
        assert 0 < compute <= busy
        # What is no computing is a bubble, but for what was known of the time before.
        assert compute + grew("strata_stage_bubble_seconds_total", **labels) == pytest.approx(
            busy, abs=0.05 + busy / 10)
        # A step for the prompt and for each token but the last at least, and those of commands.
        assert grew("strata_stage_steps_total", **labels) >= generated
        assert grew("strata_stage_step_seconds_count", **labels) >= generated
        assert grew("strata_stage_rows_total", **labels) == 40 + generated - 1
    # 64 hidden values of a row at least go over the link between stages, as float32.
    sent = grew("strata_stage_sent_bytes_total", stage="0")
    assert sent == grew("strata_stage_received_bytes_total", stage="1")
    assert sent > (40 + generated - 1) * 64 * 4
    assert grew("strata_stage_received_bytes_total", stage="0") > 0
    assert grew("strata_stage_sent_bytes_total", stage="1") > 0
    assert grew("strata_step_hop_seconds_count") == grew("strata_steps_committed_total")
    assert 0 < grew("strata_request_hop_seconds_sum") <= busy
    assert grew("strata_admission_seconds_count") == 1
    for part in ["thread", "prepare", "loop", "decide"]:
        assert grew("strata_admission_part_seconds_count", part=part) == 1, part


def test_a_worker_tells_the_same_of_its_stage(cluster):
    wait_until(lambda: total(scrape(cluster.http), "strata_requests_running") == 0,
               "it is idle")
    told = scrape(cluster.http)
    for stage, name in enumerate(["w0", "w1"]):
        address = cluster.workers[name].wait_for(r"^metrics listening on (\S+)").group(1)
        own = scrape(address)
        assert total(own, "strata_worker_info", node=name, backend="cpu") == 1
        assert total(own, "strata_worker_joined") == 1
        assert total(own, "strata_worker_threads") == 1
        assert total(own, "strata_worker_weight_bytes", model="recall", stage=str(stage)) > 0
        for what in ["compute_seconds", "wait_seconds", "rows", "received_bytes"]:
            assert total(own, f"strata_worker_{what}_total") == pytest.approx(
                total(told, f"strata_stage_{what}_total", stage=str(stage)), rel=0.02,
                abs=0.01), what
        pages = {state: total(told, "strata_kv_pages", stage=str(stage), state=state)
                 for state in ["free", "live", "cached", "fenced"]}
        assert total(own, "strata_worker_kv_pages", state="used") == (
            pages["live"] + pages["cached"] + pages["fenced"])
        assert total(own, "strata_worker_kv_pages") == sum(pages.values()) == total(
            told, "strata_kv_pool_pages", stage=str(stage))


def test_a_worker_that_cannot_serve_its_metrics_does_not_start(cluster):
    address = cluster.workers["w0"].wait_for(r"^metrics listening on (\S+)").group(1)
    second = cluster.start_worker("w9", "--metrics-listen", address, wait=False)
    second.killed = True  # Its exit status is the test's.
    assert second.wait() == 1
    assert address in second.text()
    other = cluster.start_worker("w8", "--metrics-listen", "0.0.0.0:0", wait=False)
    other.killed = True
    assert other.wait() == 2
    assert "--metrics-listen 0.0.0.0:0 is off loopback" in other.text()


def test_the_series_of_a_removed_model_disappear(cluster):
    cluster.load("gone", path=RECALL, cuts=cut(["w0", "w1"], 8), kv_dtype="f32", context=64,
                 sessions=1)
    post(cluster, "/v1/completions", {"model": "gone", "prompt": [1] * 8, "max_tokens": 2})
    samples = scrape(cluster.http)
    assert total(samples, "strata_generation_tokens_total", model="gone") == 2
    assert total(samples, "strata_stage_rows_total", model="gone", stage="1") == 9
    cluster.run("model", "unload", "gone")
    # What was counted of its requests stays as long as it is known.
    assert total(scrape(cluster.http), "strata_generation_tokens_total", model="gone") == 2
    cluster.run("model", "remove", "gone")
    assert "gone" not in scrape_text(cluster.http)[0]
    assert total(scrape(cluster.http), "strata_generation_tokens_total", model="recall") > 0
