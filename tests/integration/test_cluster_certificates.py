"""A cluster whose certificates `strata cluster` made."""

import json
import pathlib
import re
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, Cluster


def strata(folder, *arguments):
    return subprocess.run([BIN / "strata", *map(str, arguments)], cwd=folder, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=GIVE_UP_S)


def made(folder, *arguments):
    done = strata(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def openssl(*arguments):
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    made(folder, "cluster", "init", "--name", "home", "--hosts", "127.0.0.1,localhost")
    made(folder, "cluster", "certificate", "worker", "w0", "--hosts", "127.0.0.1")
    return folder / "strata-cluster"


def test_openssl_finds_them_good_and_reads_what_they_say(folder):
    for name, subject in {"coordinator": "O = home, OU = coordinator, CN = coordinator",
                          "operator": "O = home, OU = operator, CN = operator",
                          "w0": "O = home, OU = worker, CN = w0"}.items():
        cert = folder / name / "cert.pem"
        for purpose in ["sslclient"] + (["sslserver"] if name != "operator" else []):
            verdict = openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", folder / "authority" / "ca.pem", cert)
            assert verdict.returncode == 0, verdict.stderr
        assert openssl("x509", "-in", cert, "-noout", "-subject").stdout.strip() == f"subject={subject}"
    verdict = openssl("verify", "-purpose", "sslserver", "-CAfile", folder / "authority" / "ca.pem",
                      folder / "operator" / "cert.pem")
    assert verdict.returncode != 0


def test_a_cluster_answers_with_them(folder, tmp_path):
    with Cluster(tmp_path, tls_dir=folder / "coordinator") as cluster:
        cluster.security = ["--tls-dir", folder / "w0"]
        cluster.start_worker("w0", wait=False)
        cluster.security = ["--tls-dir", folder / "operator"]
        cluster.wait_node("w0")
        cluster.run("model", "add", RECALL, "--name", "recall")
        cluster.run("model", "load", "recall")
        question = "The code for the village is 489. What is the code for the village?"
        out, _, _ = cluster.run("chat", "recall", question)
        assert "489" in out


def test_an_operator_of_another_cluster_is_refused(folder, tmp_path):
    made(tmp_path, "cluster", "init", "--name", "home", "--hosts", "127.0.0.1")
    with Cluster(tmp_path / "c", tls_dir=folder / "coordinator") as cluster:
        refused = strata(tmp_path, "status", "--coordinator", cluster.address, "--tls-dir",
                         tmp_path / "strata-cluster" / "operator")
        assert refused.returncode == 1 and "is not of the CA in --tls-dir" in refused.stderr, refused.stderr


# What `init` prints are the commands that come next, down to a worker that is there (test_joining.py).
def test_init_prints_what_comes_next(tmp_path):
    first = strata(tmp_path, "cluster", "init", "--hosts", "127.0.0.1")
    assert first.returncode == 0, first.stderr
    coordinator, token = re.findall(r"^  (strata.*)$", first.stdout, re.M)
    assert re.fullmatch(r"strata-coordinator --listen 0.0.0.0:7070 --tls-dir \S+ --authority \S+", coordinator)
    assert re.fullmatch(r"strata --tls-dir \S+ node token", token)
    folders = re.findall(r"--tls-dir (\S+)", first.stdout)
    assert len(folders) == 2 and all((tmp_path / folder / "key.pem").exists() for folder in folders)
    assert (tmp_path / coordinator.split()[-1] / "ca-key.pem").exists()


def test_what_is_refused_leaves_nothing(tmp_path):
    refused = strata(tmp_path, "cluster", "init", "--hosts", "10.0.0.1:7070")
    assert refused.returncode == 1 and "without a port" in refused.stderr, refused.stderr
    assert list(tmp_path.iterdir()) == []
    refused = strata(tmp_path, "cluster", "certificate", "worker", "box", "--hosts", "10.0.0.2")
    assert refused.returncode == 1 and "strata cluster init" in refused.stderr
    assert list(tmp_path.iterdir()) == []
    made(tmp_path, "cluster", "init", "--hosts", "127.0.0.1")
    key = tmp_path / "strata-cluster" / "authority" / "ca-key.pem"
    before = key.read_bytes()
    refused = strata(tmp_path, "cluster", "init", "--hosts", "127.0.0.1")
    assert refused.returncode == 1 and "already" in refused.stderr
    assert key.read_bytes() == before


@pytest.mark.parametrize("arguments, said", [
    (["worker", "box"], "--hosts"), (["client", "box", "--hosts", "10.0.0.2"], "leave --hosts out"),
    (["boss", "box"], "ROLE is")])
def test_wrong_use_says_what_is_wrong(tmp_path, arguments, said):
    refused = strata(tmp_path, "cluster", "certificate", *arguments)
    assert refused.returncode == 2 and said in refused.stderr


def test_a_certificate_made_again_replaces_the_folder(tmp_path):
    made(tmp_path, "cluster", "init", "--hosts", "127.0.0.1")
    box = pathlib.Path(tmp_path / "strata-cluster" / "box")
    contents = []
    for _ in range(2):
        made(tmp_path, "cluster", "certificate", "worker", "box", "--hosts", "10.0.0.2")
        contents.append([(box / name).read_bytes() for name in ("ca.pem", "cert.pem", "key.pem")])
    assert contents[0][0] == contents[1][0] and contents[0][2] != contents[1][2]
    assert len(list(box.parent.glob("box*"))) == 3  # The link, the folder, and the one before.
