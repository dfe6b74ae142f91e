"""A handful of the fault suite (./dev test --faults has 200)."""

import os
import re
import subprocess
import sys

import pytest

from cluster import BIN, SLOW, SOURCE
from python_sdk import home  # noqa: F401 (a fixture)

SUITE = SOURCE / "tests" / "fault_suite"
sys.path.insert(0, str(SUITE))
import faults  # noqa: E402
import hosts  # noqa: E402
import measure  # noqa: E402

MISSING = hosts.what_is_missing()
needs_hosts = pytest.mark.skipif(bool(MISSING) or SLOW != 1,
                                 reason=f"the fault suite {MISSING or 'has limits of memory that sanitizers exceed'}")


@needs_hosts
@pytest.mark.parametrize("count, seed", [(2, 18), pytest.param(40, 7, marks=pytest.mark.long)])
def test_no_request_is_lost_while_nodes_come_and_go(tmp_path, home, count, seed):  # noqa: F811
    out = tmp_path / "faults.csv"
    done = subprocess.run([sys.executable, SUITE / "run.py", "--count", str(count), "--seed", str(seed), "--out", out, "--keep",
                           tmp_path / "kept"], env={**os.environ, "STRATA_BIN": str(BIN)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(measure.read(out)) == count


LISTEN = "import socket; s = socket.create_server(('', 7071)); print('there', flush=True); [s.accept() for _ in iter(int, 1)]"
DIAL = "import socket, sys; socket.create_connection((sys.argv[1], 7071), timeout=3)"


@pytest.fixture
def three_hosts():
    made = hosts.Hosts({"a": 1, "b": 2, "c": 3})
    listeners = []
    for name in ("a", "b", "switch"):
        listeners.append(subprocess.Popen(made.command(name, [sys.executable, "-c", LISTEN]), stdout=subprocess.PIPE))
        assert listeners[-1].stdout.readline() == b"there\n"
    yield made
    for listener in listeners:
        listener.kill()
        listener.communicate()
    made.close()


@needs_hosts
def test_hosts_lose_each_other_and_no_others(three_hosts):
    """Relays are on the bridge."""
    ways = [("a", 2), ("b", 1), ("a", 2 + hosts.RELAYS), ("b", 1 + hosts.RELAYS), ("c", 1), ("c", 2), ("c", 2 + hosts.RELAYS),
            ("switch", 2)]

    def open_ways():
        dials = [subprocess.Popen(three_hosts.command(name, [sys.executable, "-c", DIAL, hosts.address(number)]),
                                  stderr=subprocess.DEVNULL) for name, number in ways]
        return [way for way, dial in zip(ways, dials) if dial.wait() == 0]

    assert open_ways() == ways
    three_hosts.cut("a", "b")
    # Of a connection the answers of the other end have to come back, too; those of a relay are not from b.
    assert open_ways() == [way for way in ways if way not in [("a", 2), ("b", 1), ("a", 2 + hosts.RELAYS)]]
    three_hosts.join("a", "b")
    assert open_ways() == ways
    three_hosts.unplug("b")
    assert open_ways() == [("a", 2 + hosts.RELAYS), ("c", 1), ("c", 2 + hosts.RELAYS)]
    three_hosts.plug_in("b")
    assert open_ways() == ways


def test_a_seed_draws_the_same_faults_each_time():
    assert list(faults.draw(5, 50)) == list(faults.draw(5, 50))
    assert list(faults.draw(5, 50)) != list(faults.draw(6, 50))
    assert {f.kind for f in faults.draw(5, 400)} == set(faults.KINDS)


LOG = """2026-11-29T10:00:01.000 I a model is registered model=m
2026-11-29T10:00:12.000 W a node is lost: its control stream ended node=w0
2026-11-29T10:00:12.500 I the model moves to other nodes model=m deployment=1 requests=2 stages=3
2026-11-29T10:00:14.000 I fence model=m deployment=1 epoch=3
not a line with a time
""".splitlines()


def test_a_fault_is_measured_from_the_log_and_what_clients_saw():
    ((start, _), *_) = measure.log_times(LOG)
    seen = [[("asked", start, 30), ("token", start + 9.8, 31), ("token", start + 14.3, 32)],
            [("token", start + 9.9, 51), ("token", start + 15, 52), ("token", start + 16, 53)]]
    row = measure.measure(LOG, seen, start + 10, start + 20)
    assert {key: round(value, 3) for key, value in row.items()} == {
        "sign_s": 1.0, "verdict_s": 1.5, "moved": 1, "silence_s": 4.3, "first_token_s": 2.8, "all_tokens_s": 3.5,
        "pause_s": 5.1, "waiting": 2, "tokens_again": 82}


def test_a_fault_that_nobody_noticed_has_neither_verdict_nor_recovery():
    ((start, _), *_) = measure.log_times(LOG)
    seen = [[("token", start + i / 10, i) for i in range(200)]]
    row = measure.measure([], seen, start + 10, start + 19)
    assert (row["sign_s"], row["verdict_s"], row["all_tokens_s"], row["moved"]) == (None, None, None, 0)
    assert round(row["pause_s"], 3) == 0.1


def test_a_fence_alone_is_a_sign():
    ((start, _), *_) = measure.log_times(LOG)
    seen = [[("token", start + 9.9, 1), ("token", start + 13.5, 2), ("token", start + 14, 3)]]
    row = measure.measure(LOG[3:], seen, start + 10, start + 19)
    assert (row["sign_s"], row["verdict_s"], row["moved"]) == (3.0, 3.0, 0)


def test_the_loss_of_a_node_without_layers_is_no_pause():
    ((start, _), *_) = measure.log_times(LOG)
    lost = LOG[1:2]
    seen = [[("token", start + i / 10, i) for i in range(150)] + [("token", start + 16, 150), ("token", start + 17, 151)]]
    row = measure.measure(lost, seen, start + 10, start + 19)
    assert (round(row["verdict_s"], 3), row["all_tokens_s"], row["waiting"]) == (1.0, None, 0)


def test_a_table_sums_up_what_faults_of_a_kind_took(tmp_path):
    usual = {"where": "", "away_s": 1.0, "moved": 1, "pause_s": 2.0, "tokens_again": 600, "lost": 0, "wrong": 0}
    rows = [{"kind": "kill", "verdict_s": 0.1, "all_tokens_s": 1.0, **usual},
            {"kind": "kill", "verdict_s": 0.2, "all_tokens_s": 3.0, **usual},
            {"kind": "coordinator cut", "verdict_s": 0.2, "all_tokens_s": 3.0, **usual},
            {"kind": "stall", **usual, "moved": 0, "tokens_again": 0}]
    measure.write(tmp_path / "f.csv", [("title", "T")], rows)
    assert list(measure.table(measure.read(tmp_path / "f.csv")))[2:] == [
        "| coordinator cut | 1 | 1 | 0.20 | 0.20 | 2.20 | 2.20 | 2.0 | 2.0 | 600 | 0 |",
        "| kill | 2 | 2 | 0.10 | 0.20 | 1.00 | 3.00 | 2.0 | 2.0 | 1,200 | 0 |",
        "| stall | 1 | 0 |  |  |  |  | 2.0 | 2.0 | 0 | 0 |",
        "| **all** | 4 | 3 | 0.20 | 0.20 | 2.20 | 3.00 | 2.0 | 2.0 | 1,800 | 0 |"]

def test_the_published_table_is_that_of_the_data_file_which_the_page_names():
    page = (SOURCE / "docs" / "RELIABILITY.md").read_text()
    (name,) = re.findall(r"\.\./(bench/results/[\w-]*faults[\w-]*\.csv)", page)
    assert "\n".join(measure.table(measure.read(SOURCE / name))) in page
