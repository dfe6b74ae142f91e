"""Who changed what is in the coordinator's store before they are told that it is done."""

import concurrent.futures
import json
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, Cluster, wait_until
from test_cluster_certificates import made


def entries(cluster, *flags):
    return cluster.json("audit", *flags)["entries"]


def said(entry):
    return entry["who"], entry["call"], entry["object"], entry["outcome"]


def test_changes_are_recorded_and_outlive_the_process(tmp_path):
    with Cluster(tmp_path) as c:
        c.start_worker("w0")
        c.load("recall", RECALL)
        secret = c.json("key", "create", "--name", "ci")["secret"]
        c.run("node", "drain", "w0")
        c.run("node", "drain", "w9", check=False)
        c.run("model", "unload", "recall")
        c.run("model", "move", "recall", "--plan-only", check=False)
        for reading in (("status",), ("node", "list"), ("model", "list"), ("key", "list"), ("plan", "recall")):
            c.run(*reading, check=False)
        found = entries(c)
        who = "plain text"
        key = found[3]["object"]
        assert key.startswith("ci (key-")
        assert [said(entry) for entry in found] == [
            (who, "UnloadModel", "recall", "OK"), (who, "DrainNode", "w9", "NODE_NOT_FOUND"), (who, "DrainNode", "w0", "OK"),
            (who, "CreateKey", key, "OK"), (who, "LoadModel", "recall", "OK"), (who, "AddModel", "recall", "OK")]
        assert {entry["address"] for entry in found} == {"127.0.0.1"}
        c.coordinator.kill()
        c.start_coordinator(listen=c.address)
        assert entries(c) == found
        assert secret.encode() not in (tmp_path / "coordinator" / "admin.db").read_bytes()
        assert entries(c, "--limit", 2) == found[:2]
        assert entries(c, "--who", "127.0.0") == found and entries(c, "--who", "anna") == []
        assert entries(c, "--since", "1h") == found and entries(c, "--since", "1ms") == []


def test_a_key_is_named_and_no_secret_is_kept(tmp_path):
    with Cluster(tmp_path, audit_entries=4) as c:
        secret = c.json("key", "create", "--name", "root", "--admin")["secret"]
        refused = c.run("key", "create", check=False)
        assert refused[2] == 1

        def as_root(*arguments):
            done = subprocess.run(c.command(*arguments), capture_output=True, text=True, timeout=GIVE_UP_S,
                                  env={"STRATA_API_KEY": secret, "PATH": "/usr/bin:/bin"})
            assert done.returncode == 0, done.stderr
            return done.stdout

        as_root("model", "add", str(RECALL), "--name", "recall")
        found = json.loads(as_root("audit", "--json"))["entries"]
        assert said(found[0])[1:] == ("AddModel", "recall", "OK") and found[0]["who"].startswith("key root (key-")
        assert found[1]["refused"] and said(found[1]) == ("plain text", "CreateKey", "", "KEY_MISSING")
        for i in range(6):
            as_root("key", "create", "--name", f"k{i}")
        found = json.loads(as_root("audit", "--json"))["entries"]
        assert [entry["call"] for entry in found if not entry["refused"]] == ["CreateKey"] * 4, "the newest of them"
        assert sum(entry["refused"] for entry in found) == 1, "refusals are counted for themselves"


@pytest.fixture
def house(tmp_path):
    made(tmp_path, "cluster", "init", "--hosts", "127.0.0.1")
    made(tmp_path, "cluster", "certificate", "client", "bob")
    files = tmp_path / "strata-cluster"
    with Cluster(tmp_path / "c", tls_dir=files / "coordinator", authority=files / "authority", join_listen="127.0.0.1:0") as c:
        yield c, files


def test_certificates_are_named_and_joining_is_traced_to_its_token(house):
    c, files = house

    def strata(role, *arguments):
        return subprocess.run([BIN / "strata", "--coordinator", c.address, "--tls-dir", files / role, *arguments],
                              capture_output=True, text=True, timeout=GIVE_UP_S)

    def audit(*flags):
        return json.loads(strata("operator", "audit", "--json", *flags).stdout)["entries"]

    made_token = json.loads(strata("operator", "node", "token", "--json").stdout)["token"]
    for _ in range(2):
        subprocess.run([BIN / "strata-worker", "join", made_token, "--name", "w0", "--hosts", "127.0.0.1", "--config-dir",
                        files.parent / "w0"], capture_output=True, timeout=GIVE_UP_S)
    # What its role may not is refused, and so many of them are one entry.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        refused = list(pool.map(lambda _: strata("bob", "node", "drain", "w0"), range(12)))
    assert all(done.returncode == 1 and "one for role client" in done.stderr for done in refused)
    assert strata("bob", "audit").returncode == 1

    def all_there():
        found = audit()
        return len(found) == 5 and found

    found = wait_until(all_there, "each is recorded")
    read, drained, again, joined, token = found
    assert said(read) == ("client bob", "ListAudit", "", "ROLE_MAY_NOT") and read["refused"]
    assert said(drained) == ("client bob", "DrainNode", "", "ROLE_MAY_NOT") and drained["refused"] and drained["times"] >= 2
    name = token["object"].split(" for ")[0]
    assert said(token) == ("operator operator", "CreateToken", f"{name} for 1 use as worker", "OK")
    assert said(joined) == (name, "Join", "worker w0", "OK")
    assert said(again) == (name, "Join", "w0", "TOKEN_USED") and again["refused"]
    assert [entry["number"] for entry in found] == [5, 4, 3, 2, 1]
    assert audit("--who", "operator") == [token]
    kept = (files.parent / "c" / "coordinator" / "admin.db").read_bytes()
    assert made_token.encode() not in kept


def test_an_admin_key_that_was_made_offline_is_recorded(tmp_path):
    with Cluster(tmp_path) as c:
        c.coordinator.stop()
        done = subprocess.run([BIN / "strata-coordinator", "new-admin-key", "--data-dir", c.data_dir], capture_output=True,
                              text=True, timeout=GIVE_UP_S)
        secret = done.stdout.strip()
        c.start_coordinator(listen=c.address)
        listed = subprocess.run(c.command("audit", "--json"), capture_output=True, text=True, timeout=GIVE_UP_S,
                                env={"STRATA_API_KEY": secret, "PATH": "/usr/bin:/bin"})
        found = json.loads(listed.stdout)["entries"]
        assert [entry["who"] for entry in found] == ["strata-coordinator new-admin-key"]
        assert found[0]["call"] == "CreateKey" and found[0]["object"].startswith("offline (key-")
