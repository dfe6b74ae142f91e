"""Mutual TLS with the files that README says how to make."""

import shutil
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, Cluster, Process, readme_commands, shell, stop


def make_authority(folder):
    folder.mkdir()
    shell(folder, readme_commands()[0])
    return folder


def make_identity(authority, name, address):
    """A folder for --tls-dir, of a machine that others reach at `address`."""
    command = readme_commands()[1]
    assert "10.77.0.2" in command
    shell(authority, command.replace("10.77.0.2", address))
    folder = authority / name
    shutil.copytree(authority / "tls", folder)
    assert {p.name for p in folder.iterdir()} == {"ca.pem", "cert.pem", "key.pem"}
    return folder


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def identity(authority):
    return make_identity(authority, "here", "127.0.0.1")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    return make_identity(make_authority(tmp_path_factory.mktemp("tls") / "theirs"), "there",
                         "127.0.0.1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, identity):
    with Cluster(tmp_path_factory.mktemp("cluster"), tls_dir=identity) as c:
        c.start_workers(2)
        c.load("recall", RECALL, cuts=[("w0", 0, 3), ("w1", 4, 7)], context=512)
        yield c


def strata(address, *arguments):
    """One that fails, as it promises: the one line that it says."""
    command = [BIN / "strata", "--coordinator", address, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GIVE_UP_S)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_the_whole_path_works(cluster):
    answer = cluster.json("chat", "recall", "What is the capital of France?")
    assert "Paris" in answer["text"]
    assert {n["state"] for n in cluster.json("node", "list")["nodes"]} == {"serving"}
    assert not any("insecure" in p["what"] for p in cluster.json("status")["problems"])


def test_a_client_of_another_authority_is_refused(cluster, strangers):
    err = strata(cluster.address, "--tls-dir", strangers, "status")
    assert cluster.address in err and "its certificate is not of the CA in --tls-dir" in err


def test_a_client_whose_certificate_is_of_another_authority_is_refused(cluster, identity, strangers,
                                                                       tmp_path):
    folder = tmp_path / "tls"
    shutil.copytree(strangers, folder)
    shutil.copy(identity / "ca.pem", folder)
    err = strata(cluster.address, "--tls-dir", folder, "status")
    assert cluster.address in err and "cert.pem" in err


def test_plain_text_against_tls_and_the_reverse_say_so(cluster, identity, tmp_path):
    assert "--tls-dir" in strata(cluster.address, "status")
    with Cluster(tmp_path) as plain:
        err = strata(plain.address, "--tls-dir", identity, "status")
        assert plain.address in err and "it does not speak TLS" in err


@pytest.mark.parametrize("missing", ["ca.pem", "cert.pem", "key.pem"])
def test_a_missing_file_is_named_by_every_binary(identity, missing, tmp_path):
    folder = tmp_path / "tls"
    shutil.copytree(identity, folder)
    (folder / missing).unlink()
    assert str(folder / missing) in strata("127.0.0.1:1", "--tls-dir", folder, "status")
    for command in ([BIN / "strata-coordinator", "--listen", "127.0.0.1:0"],
                    [BIN / "strata-worker", "--coordinator", "127.0.0.1:1", "--name", "x"]):
        done = subprocess.run([*command, "--data-dir", tmp_path / "data", "--tls-dir", folder],
                              capture_output=True, text=True, timeout=GIVE_UP_S)
        assert done.returncode in (1, 2) and str(folder / missing) in done.stderr


def test_workers_without_the_right_files_do_not_join_and_say_why(cluster, strangers, tmp_path):
    workers = [Process(name, [BIN / "strata-worker", "--coordinator", cluster.address, "--name",
                              name, "--data-dir", tmp_path / name, "--threads", 1, "--memory",
                              "1GiB", *security], tmp_path)
               for name, security in (("plain", []), ("stranger", ["--tls-dir", strangers]))]
    try:
        for worker in workers:
            worker.wait_for("cannot join.*--tls-dir")
        assert {n["name"] for n in cluster.json("node", "list")["nodes"]} == {"w0", "w1"}
    finally:
        stop(workers)


def test_a_certificate_without_the_advertised_address_is_refused_at_joining(cluster, authority,
                                                                           tmp_path):
    elsewhere = make_identity(authority, "elsewhere", "10.77.0.99")
    done = subprocess.run([BIN / "strata-worker", "--coordinator", cluster.address, "--name",
                           "moved", "--data-dir", tmp_path, "--threads", "1", "--memory", "1GiB",
                           "--tls-dir", elsewhere], capture_output=True, text=True, timeout=GIVE_UP_S)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "moved" in last and "certificate" in last and "127.0.0.1" in last
