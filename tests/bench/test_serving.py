"""What serving.py makes of what it measures. The measuring here is canned."""

import argparse
import contextlib
import itertools
import pathlib
import re
import sys
import threading
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import serving  # noqa: E402


@pytest.fixture
def arguments(tmp_path):
    return argparse.Namespace(rounds=3, llama_cpp=None, models=tmp_path)


@pytest.fixture
def table(monkeypatch):
    @contextlib.contextmanager
    def strata_cluster(*_, **__):
        yield types.SimpleNamespace(http="strata", command=lambda *a: ["strata", *a])

    monkeypatch.setattr(serving, "strata_cluster", strata_cluster)
    monkeypatch.setattr(serving, "over_http", lambda cluster: ["strata"])
    # From one look at the clock to the next 30 seconds pass.
    clock = itertools.count(0, 30)
    monkeypatch.setattr(serving, "time", types.SimpleNamespace(
        sleep=lambda seconds: None, monotonic=lambda: next(clock)))
    return serving.Table()


def verdicts(table):
    return [row["met"] for row in table.rows if row["met"] is not None]


def options(flags):
    flags = list(map(str, flags))
    return {name: flags[i + 1] for i, name in enumerate(flags[:-1]) if name.startswith("--")}


@pytest.mark.parametrize("speed, met", [(50, True), (49, False)])
def test_eight_clients_have_to_get_five_times_what_the_better_llama_server_gives(
        arguments, table, monkeypatch, speed, met):
    @contextlib.contextmanager
    def llama_server(_, folder, flash):
        yield f"llama-{flash}"

    def bench(command, *flags):
        asked = options(flags)
        mine = "--openai" not in command
        given = speed if mine else {"llama-on": 10, "llama-off": 8}[command[-1]]
        return {"requests": int(asked["--requests"]),
                "generated_tokens": 64 * int(asked["--requests"]), "generated_tokens_per_s": given}

    monkeypatch.setattr(serving, "llama_server", llama_server)
    monkeypatch.setattr(serving, "bench", bench)
    arguments.llama_cpp = "there"
    serving.measure_clients(arguments, pathlib.Path("x"), table)
    assert verdicts(table) == [met]
    (judged,) = [row["what"] for row in table.rows if row["met"] is not None]
    assert judged == "Strata to llama-server, 8 clients"


def test_without_a_peer_clients_are_measured_and_not_judged(arguments, table, monkeypatch):
    monkeypatch.setattr(serving, "bench", lambda command, *flags: {
        "requests": 1, "generated_tokens": 64, "generated_tokens_per_s": 1})
    serving.measure_clients(arguments, pathlib.Path("x"), table)
    assert len(table.rows) == len(serving.CLIENTS) and not verdicts(table)


def test_answers_that_are_too_short_are_no_measurement(arguments, table, monkeypatch):
    monkeypatch.setattr(serving, "bench", lambda command, *flags: {
        "requests": 2, "generated_tokens": 127, "generated_tokens_per_s": 1})
    with pytest.raises(SystemExit, match="127 tokens in 2 answers of 64"):
        serving.measure_clients(arguments, pathlib.Path("x"), table)


@pytest.mark.parametrize("compute_s, tokens, met", [
    (27.7, 4417, [True, True]), (27.5, 4417, [False, True]), (27.7, 4415, [True, False])])
def test_the_slowest_stage_is_busy_and_as_fast_as_its_steps_alone(
        arguments, table, monkeypatch, compute_s, tokens, met):
    # 30 s; a step of 16 rows takes 100 ms alone, so 160 tokens/s are possible.
    looks = iter([(0, 0), (0, 0), (compute_s, tokens)])

    def scrape(http):
        busy, generated = next(looks)
        return {("strata_requests_running", ()): 32,
                ("strata_generation_tokens_total", ()): generated,
                ("strata_stage_compute_seconds_total", (("stage", "0"),)): busy / 2,
                ("strata_stage_compute_seconds_total", (("stage", "1"),)): busy}

    monkeypatch.setattr(serving, "scrape", scrape)
    monkeypatch.setattr(serving, "bench", lambda *_: None)
    monkeypatch.setattr(serving, "sixteen_rows_ms", lambda *_: 100)
    monkeypatch.setattr(serving, "subprocess", types.SimpleNamespace(
        DEVNULL=None, Popen=lambda *_, **__: types.SimpleNamespace(
            terminate=lambda: None, wait=lambda: None)))
    serving.measure_busy(arguments, pathlib.Path("x"), table)
    assert verdicts(table) == met


@pytest.mark.parametrize("itl, ttft, met", [
    (15, 250, [True, True]), (15.1, 250, [False, True]), (15, 251, [True, False])])
def test_long_prompts_beside_streams_slow_both_down_by_so_much(
        arguments, table, monkeypatch, itl, ttft, met):
    beside, asked_twice = threading.Event(), threading.Event()

    def bench(command, *flags):
        asked = options(flags)
        seed = int(asked["--seed"])
        if asked["--clients"] == "1" and seed < 400:
            return {"ttft_ms": {"p50": 100}}
        if asked["--clients"] == "1":
            beside.wait(10)
            if seed == 401:
                asked_twice.set()
            return {"ttft_ms": {"p50": ttft}}
        if seed < 300:
            return {"inter_token_ms": {"p95": 10}}
        beside.set()
        asked_twice.wait(10)
        return {"inter_token_ms": {"p95": itl}}

    arguments.rounds = 1
    monkeypatch.setattr(serving, "bench", bench)
    serving.measure_prompt(arguments, pathlib.Path("x"), table)
    assert verdicts(table) == met


@pytest.mark.parametrize("cached, hit_ms, met", [
    (61773, 13, [True, True]), (61772, 13, [False, True]), (61773, 13.1, [True, False])])
def test_a_shared_prefix_is_computed_once_and_found_fast(
        arguments, table, monkeypatch, cached, hit_ms, met):
    def bench(command, *flags):
        asked = options(flags)
        return {"cached_tokens": cached if asked["--clients"] == "64" else 0,
                "ttft_ms": {"p50": hit_ms if "--shared-prefix" in asked else 10}}

    monkeypatch.setattr(serving, "bench", bench)
    serving.measure_prefix(arguments, pathlib.Path("x"), table)
    assert verdicts(table) == met


class FakeCluster(contextlib.nullcontext):
    """Its worker logs these times, and that it found so much packed before."""

    def __init__(self, folder, took_ms, packed):
        super().__init__(self)
        kept = folder / "w0" / "packed" / "deployment"
        kept.mkdir(parents=True, exist_ok=True)
        with open(kept / "stage", "wb") as file:
            file.truncate(2 * 10**9)
        self.took_ms, self.packed = iter(took_ms), packed

    def run(self, *_, **__):
        pass

    def start_worker(self, *_, **__):
        line = f"layers are ready took_ms={next(self.took_ms)} packed_before={self.packed}"
        return types.SimpleNamespace(wait_for=lambda pattern: re.search(pattern, line),
                                     stop=lambda: None)


@pytest.mark.parametrize("took_ms, met", [
    ([9000, 900, 1000, 3000], [True]), ([9000, 900, 1001, 3000], [False])])
def test_a_start_reads_two_gigabytes_a_second(arguments, table, monkeypatch, tmp_path, took_ms, met):
    monkeypatch.setitem(sys.modules, "cluster", types.SimpleNamespace(
        Cluster=lambda folder, **_: FakeCluster(folder, took_ms, "1.9 GiB")))
    serving.measure_start(arguments, tmp_path, table)
    assert verdicts(table) == met


def test_a_start_that_found_nothing_packed_is_no_measurement(arguments, table, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cluster", types.SimpleNamespace(
        Cluster=lambda folder, **_: FakeCluster(folder, [1, 1], "0 B")))
    with pytest.raises(SystemExit, match="nothing was kept"):
        serving.measure_start(arguments, tmp_path, table)


def test_the_table_says_what_was_met_and_what_was_missed(capsys, monkeypatch):
    def measure(arguments, folder, table):
        table.add("well", 1, "<= 2", True, unit="s")
        table.add("badly", 3, "<= 2", False)
        table.add("only measured", 5)

    monkeypatch.setattr(serving, "measure_prefix", measure)
    monkeypatch.setattr(sys, "argv", ["serving.py", "--models", "x", "--rows", "prefix"])
    serving.main()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| well | 1 s | <= 2 | met |", "| badly | 3  | <= 2 | missed |",
        "| only measured | 5  |  |  |"]
