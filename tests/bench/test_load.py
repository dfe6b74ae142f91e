"""What load.py takes for wrong, and a small crowd that has to meet it."""

import copy
import os
import pathlib
import socket
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import load  # noqa: E402
import refusals  # noqa: E402

ADMISSION = "strata_admission_seconds_bucket"


def samples(failed=0, refused=0, slow=0):
    out = {("strata_requests_total", (("finished_reason", "failed"),)): failed,
           ("strata_requests_total", (("finished_reason", "refused"),)): refused,
           ("strata_preemptions_total", ()): 3}
    for end, count in (("0.004", 1000 - slow), ("0.02", 1000), ("+Inf", 1000)):
        out[ADMISSION, (("le", end),)] = count
        out["strata_admission_part_seconds_bucket", (("le", end), ("part", "loop"))] = count
    return out


def look(at_s, live=0.9, waiting=5, mib=50, heap_mib=20):
    return {"at_s": at_s, "running": 40, "waiting": waiting, "live": live, "free": 1 - live,
            "cached": 0, "fenced": 0, "heap_bytes": heap_mib * 2**20, "rss_bytes": mib * 2**20}


def crowd():
    """Two looks while the clients come, twelve after; all is well."""
    return {
        "result": {"wall_s": 14, "requests": 2, "failed": 0, "refused": 0, "failures": [],
                   "prompt_tokens_per_s": 1, "generated_tokens_per_s": 1, "cached_tokens": 0,
                   "ttft_ms": {}, "inter_token_ms": {}},
        "answers": [{"request": 0, "text": "a", "generated_tokens": 1},
                    {"request": 1001, "text": "b", "generated_tokens": 2}],
        "sampled": [(0, "digest", None), (7, "another", None)],
        "rows": [look(1, live=0.1), look(2, live=0.3), *[look(3 + i) for i in range(12)]],
        "left": 8, "left_wrong": [],
        "refusals": {"seconds": [0.001] * 98 + [0.5, 0.7], "wrong": []},
        "samples": samples(refused=100), "peak_bytes": 60 * 2**20}


ALONE = {0: {"text": "a", "generated_tokens": 1}, 1: {"text": "b", "generated_tokens": 2}}
SAMPLED_ALONE = {0: "digest", 7: "another"}


def shown(seen):
    arguments = load.parse(["--clients", "4", "--ramp", "2s", "--duration", "12s"])
    return load.figures(arguments, seen, ALONE, SAMPLED_ALONE)


def test_a_crowd_that_got_what_was_wanted_misses_nothing():
    assert list(load.missed(shown(crowd()))) == []


def test_what_a_client_sees_of_a_refusal_is_shown_and_not_judged():
    figures = shown(crowd())
    assert figures["refusal_seen_s"] == {"p50": 0.001, "p99": 0.7}
    assert figures["refusals_seen"] == 100


def change(path, value):
    def act(seen):
        *way, last = path
        for name in way:
            seen = seen[name]
        seen[last] = value
    return act


@pytest.mark.parametrize("act, said", [
    (change(["result", "failed"], 2), "2 failed"),
    (change(["sampled"], [(0, None, "429: too many"), (7, "another", None)]), "1 failed"),
    (change(["left_wrong"], ["HTTP/1.1 429 Too Many Requests"]), "429 Too Many"),
    (change(["samples"], samples(failed=1, refused=100)), "counts 1 that failed and 0 "),
    (change(["samples"], samples(refused=103)), "counts 0 that failed and 3 "),
    (change(["refusals", "wrong"], [200]), "never fit was answered [200]"),
    (change(["answers", 1, "text"], "c"), "1 answers differ"),
    (change(["answers", 1, "generated_tokens"], 3), "1 answers differ"),
    (change(["sampled", 1], (7, "changed", None)), "1 answers drawn by a seed differ"),
    (change(["sampled"], []), "no answer was drawn by a seed"),
    (change(["rows"], [look(1 + i, waiting=0) for i in range(14)]), "no request ever waited"),
    # The first look after the clients came.
    (change(["rows", 2, "live"], 0.79), "only 79% of the pages"),
    (change(["rows", 13], look(14, live=0.5)), "only 50% of the pages"),
    (change(["rows"], [look(3 + i, heap_mib=20 + i) for i in range(12)]), "more and more"),
    (change(["rows", 7, "heap_bytes"], 200 * 2**20), "200.0 MiB at its peak"),
])
def test_each_thing_that_is_wrong_is_said(act, said):
    seen = copy.deepcopy(crowd())
    act(seen)
    (line,) = load.wrong(shown(seen))
    assert said in line


@pytest.mark.parametrize("act, said", [
    (change(["rows"], [look(3 + i, mib=50 + i) for i in range(12)]), "memory grew"),
    (change(["peak_bytes"], 200 * 2**20), "200.0 MiB at its peak"),
])
def test_resident_memory_is_missed_but_not_wrong(act, said):
    seen = crowd()
    act(seen)
    assert list(load.wrong(shown(seen))) == []
    (line,) = load.missed(shown(seen))
    assert said in line


def test_a_late_admission_is_missed_but_not_wrong():
    seen = crowd()
    seen["samples"] = samples(refused=100, slow=11)  # Of 1,000.
    assert list(load.wrong(shown(seen))) == []
    (line,) = load.missed(shown(seen))
    assert "took 20 ms" in line


def test_a_refusal_is_timed_from_its_last_byte():
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            connection, _ = server.accept()
            asked = refusals.message("recall")
            with connection:
                got = b""
                while len(got) < len(asked):
                    got += connection.recv(65536)
                assert got == asked
                threading.Event().wait(0.1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=serve)
        thread.start()
        with socket.create_connection(server.getsockname()) as connection:
            took, status = refusals.ask(connection, refusals.message("recall"))
        thread.join()
    assert status == 400 and took >= 0.1


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("STRATA_PRESET", "release") != "release",
                    reason="a sanitizer's memory is not the coordinator's")
def test_a_hundred_clients_get_their_own_answers_on_a_pool_for_twenty(tmp_path):
    # Of a smaller one, a sequence that ends is too large a part for LEAST_LIVE.
    arguments = load.parse(["--clients", "100", "--ramp", "5s", "--duration", "30s", "--pool", "20"])
    figures = load.measure(arguments, tmp_path)
    assert list(load.wrong(figures)) == [], figures
    assert figures["refusals_seen"] > 20 and figures["went_away"] > 50
