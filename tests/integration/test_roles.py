"""Each call is for the roles that docs/OPERATIONS.md says, and refuses the others."""

import json
import re
import subprocess

import pytest

import python_sdk
from cluster import GIVE_UP_S, SOURCE, Cluster, wait_until
from test_cluster_certificates import made, strata

ROLES = ("coordinator", "worker", "operator", "client")


def documented():
    """{call: the roles that may make it}, by the table in docs/OPERATIONS.md."""
    text = (SOURCE / "docs/OPERATIONS.md").read_text()
    rows = re.findall(r"^\| (`\w+Service`.*?) \| (.*?) \|$", text, re.M)
    found = {}
    for calls, roles in rows:
        allowed = ROLES if roles == "all" else tuple(re.findall(r"`(\w+)`", roles))
        for service, methods in re.findall(r"`(\w+Service)`(?:: ([^;]*))?", calls):
            for method in re.findall(r"`(\w+)`", methods) or [None]:
                found[service, method] = allowed
    return found


def calls():
    """Every call of the protos: (service, method, whether it takes a stream, whether it gives one)."""
    found = []
    for path in sorted((SOURCE / "proto/strata/v1").glob("*.proto")):
        for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", path.read_text(), re.M | re.S):
            for method, takes, gives in re.findall(r"^  rpc (\w+)\((stream )?\w+\) returns \((stream )?\w+\)", body, re.M):
                found.append((service, method, bool(takes), bool(gives)))
    # It makes a key without which nobody is served: last.
    return sorted(found, key=lambda call: call[1] == "CreateKey")


def allowed_by_table(table, service, method):
    return table[service, method] if (service, method) in table else table[service, None]


@pytest.fixture(scope="module")
def python_sdk_home():
    return python_sdk.environment()


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A cluster, the folders of its roles, and where the services are that the coordinator does not have on its port."""
    folder = tmp_path_factory.mktemp("roles")
    made(folder, "cluster", "init", "--hosts", "127.0.0.1")
    made(folder, "cluster", "certificate", "worker", "worker", "--hosts", "127.0.0.1")
    made(folder, "cluster", "certificate", "client", "client")
    files = folder / "strata-cluster"
    with Cluster(folder / "c", tls_dir=files / "coordinator", authority=files / "authority", join_listen="127.0.0.1:0") as cluster:
        cluster.security = ["--tls-dir", files / "worker"]
        cluster.start_worker("worker", wait=False)
        worker = cluster.workers["worker"].wait_for(r"^listening on (\S+)").group(1)
        cluster.workers["worker"].wait_for("joined the cluster")
        join = cluster.coordinator.wait_for(r"^joining on (\S+)").group(1)

        yield cluster, files, {"WeightsService": worker, "KvService": worker, "RanksService": worker, "ShardService": worker, "DiagnosisService": worker, "JoiningService": join}


def test_every_call_of_every_service_is_in_the_table():
    table = documented()
    for service, method, _, _ in calls():
        assert allowed_by_table(table, service, method), (service, method)
    known = {(s, m) for s, m, _, _ in calls()} | {(s, None) for s, _, _, _ in calls()}
    assert set(table) <= known, set(table) - known


def make_calls(python_sdk_home, files, made_calls):
    """{role: [whether each call was refused for it]}"""
    done = subprocess.run([python_sdk_home / "bin" / "python", SOURCE / "tests/integration/role_calls.py"],
                          input=json.dumps({"folders": {role: str(files / role) for role in ROLES}, "calls": made_calls}),
                          capture_output=True, text=True, timeout=GIVE_UP_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_refused_calls_of_clients_and_workers_are_in_the_audit(places, python_sdk_home):
    cluster, files, _ = places
    # The coordinator has both services of links and weights too.
    services = {"InferenceService": ["worker"], "MembershipService": ["client", "operator"], "ShardService": ["client", "operator"]}
    made_calls = [[cluster.address, *call] for call in calls() if call[0] in services and call[1] != "Probe"]
    make_calls(python_sdk_home, files, made_calls * 2)
    expected = {(f"{role} {role}", call[2], "ROLE_MAY_NOT") for call in made_calls for role in services[call[1]]}

    def recorded():
        listed = strata(files, "audit", "--json", "--coordinator", cluster.address, "--tls-dir", files / "operator")
        found = [(entry["who"], entry["call"], entry["outcome"]) for entry in json.loads(listed.stdout)["entries"] if entry["refused"]]
        return len(found) == len(expected) and found

    found = wait_until(recorded, "each is an entry, once for all that are alike")
    assert set(found) == expected


def test_each_role_may_what_the_table_says_and_no_more(places, python_sdk_home):
    cluster, files, elsewhere = places
    made_calls = [[elsewhere.get(call[0], cluster.address), *call] for call in calls()]
    refusals = make_calls(python_sdk_home, files, made_calls)
    table = documented()
    wrong = []
    for role, refused in refusals.items():
        for (_, service, method, _, _), was in zip(made_calls, refused, strict=True):
            may = role in allowed_by_table(table, service, method)
            if was == may:
                wrong.append((role, service, method, "is refused" if may else "is not refused"))
    assert not wrong


def test_a_worker_is_the_node_that_its_certificate_says(places):
    cluster, files, _ = places
    cluster.security = ["--tls-dir", files / "worker"]
    worker = cluster.start_worker("other", wait=False)
    assert worker.wait() == 1
    worker.killed = True  # It has ended, as it should.
    assert "certificate is of the node worker, and it says that it is other" in worker.text()


def test_what_is_refused_says_what_to_do(places):
    cluster, files, _ = places
    refusal = strata(files, "model", "list", "--coordinator", cluster.address, "--tls-dir", files / "worker")
    assert refusal.returncode == 1
    assert "one for role worker" in refusal.stderr and "--tls-dir" in refusal.stderr
