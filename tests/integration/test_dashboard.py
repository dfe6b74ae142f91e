"""deploy/grafana: a dashboard that Grafana can import, of metrics that a coordinator promises."""

import json
import re

from cluster import SOURCE

COUNTERS = {"prompt_tokens_total", "generation_tokens_total", "request_success_total"}
# Exported with or without "_total": asked for both ways.
PLAIN_COUNTERS = {"num_preemptions", "prefix_cache_queries", "prefix_cache_hits"}
GAUGES = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"}
HISTOGRAMS = {"time_to_first_token_seconds", "inter_token_latency_seconds",
              "e2e_request_latency_seconds", "request_queue_time_seconds",
              "request_prefill_time_seconds", "request_decode_time_seconds"}
OWN_COUNTERS = {"strata_stage_compute_seconds_total", "strata_stage_bubble_seconds_total",
                "strata_stage_sent_bytes_total"}
OWN_HISTOGRAMS = {"strata_stage_step_seconds", "strata_step_hop_seconds",
                  "strata_admission_seconds"}
DASHBOARD = json.loads((SOURCE / "deploy" / "grafana" / "strata.json").read_text())


def expressions():
    return [t["expr"] for p in DASHBOARD["panels"] for t in p.get("targets", [])]


def test_it_asks_for_all_the_promised_metrics_and_no_others():
    asked, own = set(), set()
    for expression in expressions():
        names = re.findall(r"vllm:([a-z0-9_]+)", expression)
        own_names = re.findall(r"strata_[a-z0-9_]+", expression)
        assert names or own_names, expression
        asked |= {re.sub(r"_(bucket|sum|count)$", "", n) for n in names}
        own |= {re.sub(r"_(bucket|sum|count)$", "", n) for n in own_names}
    assert asked == COUNTERS | PLAIN_COUNTERS | GAUGES | HISTOGRAMS
    assert own == OWN_COUNTERS | OWN_HISTOGRAMS


def test_counters_are_rates_and_each_expression_keeps_to_the_model_chosen():
    for expression in expressions():
        for name in re.findall(r"vllm:([a-z0-9_]+)", expression):
            stem = re.sub(r"_(bucket|sum|count)$", "", name)
            counted = stem in COUNTERS | PLAIN_COUNTERS | HISTOGRAMS
            assert not counted or "rate(" in expression, expression
            assert stem not in HISTOGRAMS or name != stem, expression
        own = re.findall(r"strata_[a-z0-9_]+", expression)
        assert not own or "rate(" in expression, expression
        assert not OWN_HISTOGRAMS & set(own), expression
        assert expression.count("vllm:") == expression.count('model_name=~"$model"'), expression
        assert len(own) == expression.count('{model=~"$model"'), expression
        assert expression.count("(") == expression.count(")"), expression


def test_panels_have_a_place_of_their_own():
    panels = DASHBOARD["panels"]
    assert len({p["id"] for p in panels}) == len(panels)
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        assert 0 <= at["x"] and at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                 for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or (panel["description"] and panel["targets"])
