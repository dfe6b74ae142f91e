"""Layers with a sliding window are granted their window's pages, and keep no others."""

import json

import pytest

from cluster import GIVE_UP_S, GOLDEN, NEVER, Cluster, cut, wait_until
from metrics_text import scrape, total

PAGE = 16
BATCH = 64  # Rows of a step, at most.
CONTEXT = 4096
PROMPT = 600
WORKERS = ["w0", "w1"]
# The window of each model's configuration, and which layers have it.
WINDOWS = {"mistral": (20, lambda layer: True),
           "phi3": (23, lambda layer: True),
           "gemma2": (16, lambda layer: layer % 2 == 0),
           "gemma3": (18, lambda layer: (layer + 1) % 6 != 0),
           "gpt-oss": (19, lambda layer: layer % 2 == 0)}


def most_pages(positions):
    """Pages that so many positions in a row lie in, wherever they begin."""
    return max((first + positions - 1) // PAGE + 1 for first in range(PAGE))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # Workers are halted for a while.
    with Cluster(tmp_path_factory.mktemp("windows"), max_batch_tokens=BATCH, lease=NEVER,
                 step_timeout=NEVER) as c:
        c.start_workers(len(WORKERS), "--metrics-listen", "127.0.0.1:0")
        for model in WINDOWS:
            c.run("model", "add", GOLDEN / "models" / model)
        yield c


def used(cluster, stage, model, group):
    """Pages that the worker's sequences have, by its own count."""
    address = cluster.workers[WORKERS[stage]].wait_for(r"^metrics listening on (\S+)").group(1)
    return total(scrape(address), "strata_worker_kv_pages", model=model, group=group, state="used")


def halt_while_it_answers(cluster, halted, model, look):
    """`look()` while a request is in the middle of its answer and one worker is halted."""
    call = cluster.popen("generate", model, "--token-ids", ",".join(["5"] * PROMPT), "--max-tokens",
                         CONTEXT - PROMPT, "--temperature", 0, "--ignore-eos")

    def answers():
        sessions = cluster.json("session", "list")["sessions"]
        return sessions and sessions[0]["generated_tokens"] > 0 and sessions[0]["request_id"]

    try:
        request = wait_until(answers, "it has begun to answer")
        with cluster.stalled(halted):
            look()
        cluster.run("session", "cancel", request, check=False)
    finally:
        call.communicate(timeout=GIVE_UP_S)
    cluster.nothing_is_left()


@pytest.mark.parametrize("model", WINDOWS)
def test_layers_with_a_window_keep_only_its_pages(cluster, model):
    window, has_window = WINDOWS[model]
    config = json.loads((GOLDEN / "models" / model / "config.json").read_text())
    assert config["sliding_window"] == window
    layers = config["num_hidden_layers"]
    cuts = cut(WORKERS, layers)
    # A step has one token, whose pages are counted.
    cluster.load(model, cuts=cuts, context=CONTEXT, sessions=1, speculate="off")
    # The whole context, and a page to grow into; or what the oldest token in flight looks back at,
    # and those in flight: a step for each stage, and one more.
    granted = {"full": CONTEXT // PAGE + 1,
               f"window-{window}": most_pages(window - 1 + 3 * BATCH)}
    groups = {(stage, f"window-{window}" if has_window(layer) else "full")
              for stage, (_, first, last) in enumerate(cuts) for layer in range(first, last + 1)}
    kv = {(entry["stage"], entry["group"]): entry["total"]
          for entry in cluster.json("status")["kv"]}
    assert {key: pages for key, pages in kv.items() if pages} == {
        (stage, group): granted[group] for stage, group in groups}

    def look():
        for stage, group in groups:
            if WORKERS[stage] == halted:
                continue
            pages = used(cluster, stage, model, group)
            if group == "full":
                assert pages > PROMPT // PAGE
            else:
                # One token is on its way; the next one, and what it looks back at, is there.
                assert window // PAGE <= pages <= most_pages(window + 2), (stage, group, pages)

    for halted in WORKERS:
        halt_while_it_answers(cluster, halted, model, look)
    notes = cluster.json("model", "show", model)["notes"]
    count = sum(map(has_window, range(layers)))
    assert (f"{count} of {layers} layers keep only the KV of their window of {window} tokens"
            in notes)
    cluster.run("model", "unload", model)
