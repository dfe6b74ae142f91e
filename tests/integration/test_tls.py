"""Mutual TLS with the files that docs/OPERATIONS.md says how to make."""

import datetime
import re
import shutil
import subprocess

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, Cluster, Process, tls_commands, shell, stop


def make_authority(folder):
    folder.mkdir()
    shell(folder, tls_commands()[0])
    return folder


def make_identity(authority, name, address):
    """A folder for --tls-dir, of a machine that others reach at `address`."""
    command = tls_commands()[1]
    assert "IP:10.77.0.1,IP:127.0.0.1" in command
    shell(authority, command.replace("IP:10.77.0.1,IP:127.0.0.1", f"IP:{address}"))
    folder = authority / name
    shutil.copytree(authority / "tls", folder)
    assert {p.name for p in folder.iterdir()} == {"ca.pem", "cert.pem", "key.pem"}
    return folder


def with_times(authority, folder, first_days, last_days):
    """A copy of a folder for --tls-dir whose certificate is valid so many days from now."""
    made = folder.parent / f"{folder.name}{first_days}to{last_days}"
    shutil.copytree(folder, made)
    work = made / "ca"
    work.mkdir()
    (work / "index").write_text("")
    (work / "serial").write_text("01")
    (work / "names").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n")
    (work / "config").write_text(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=ca/index\nnew_certs_dir=ca\nserial=ca/serial\n"
        "default_md=sha256\npolicy=p\n[p]\ncommonName=supplied\n")
    now = datetime.datetime.now(datetime.timezone.utc)
    first, last = ((now + datetime.timedelta(days=d)).strftime("%Y%m%d%H%M%SZ")
                   for d in (first_days, last_days))
    shell(made, f"""openssl req -new -key key.pem -subj /CN=strata -out ca/request
openssl ca -batch -config ca/config -cert ca.pem -keyfile {authority / "ca-key.pem"} -notext \\
  -in ca/request -startdate {first} -enddate {last} -extfile ca/names -out cert.pem""")
    shutil.rmtree(work)
    return made


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


def of_expired(authority, identity, strangers, folder):
    return with_times(authority, identity, -20, -10), r"cert\.pem \(strata\) expired on \d{4}-"


def of_not_yet_valid(authority, identity, strangers, folder):
    return with_times(authority, identity, 10, 20), r"cert\.pem \(strata\) is valid only from \d{4}-"


def of_another_key(authority, identity, strangers, folder):
    shutil.copytree(identity, folder)
    shutil.copy(strangers / "key.pem", folder)
    return folder, r"key\.pem is not the key of the certificate in .*cert\.pem"


def of_another_authority(authority, identity, strangers, folder):
    shutil.copytree(strangers, folder)
    shutil.copy(identity / "ca.pem", folder)
    return folder, r"cert\.pem is not of the CA in --tls-dir"


def of_a_folder(authority, identity, strangers, folder):
    shutil.copytree(identity, folder)
    (folder / "key.pem").unlink()
    (folder / "key.pem").mkdir()
    return folder, r"cannot read .*key\.pem: it is a folder"


@pytest.mark.parametrize("fault", [of_expired, of_not_yet_valid, of_another_key,
                                   of_another_authority, of_a_folder])
def test_each_fault_of_its_own_files_is_told_to_who_starts_a_process(
        authority, identity, strangers, cluster, tmp_path, fault):
    folder, sentence = fault(authority, identity, strangers, tmp_path / "tls")
    for command in ([BIN / "strata-coordinator", "--listen", "127.0.0.1:0", "--http-listen",
                     "127.0.0.1:0"],
                    [BIN / "strata-worker", "--coordinator", cluster.address, "--name", "x",
                     "--memory", "1GiB"]):
        done = subprocess.run([*command, "--data-dir", tmp_path / "data", "--tls-dir", folder],
                              capture_output=True, text=True, timeout=GIVE_UP_S)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode in (1, 2) and re.search(sentence, last), done.stderr
        assert "port" not in last and "firewall" not in last
    assert re.search(sentence, strata(cluster.address, "--tls-dir", folder, "status"))


def test_both_ends_say_whose_certificate_is_not_accepted(cluster, identity, strangers, tmp_path):
    """A worker that trusts the cluster, and that the cluster does not know."""
    folder = tmp_path / "tls"
    shutil.copytree(strangers, folder)
    with open(folder / "ca.pem", "a") as both:
        both.write((identity / "ca.pem").read_text())
    worker = Process("unknown", [BIN / "strata-worker", "--coordinator", cluster.address, "--name",
                                 "unknown", "--data-dir", tmp_path / "unknown", "--threads", 1,
                                 "--memory", "1GiB", "--tls-dir", folder], tmp_path)
    try:
        worker.wait_for(r"cannot join.*it does not accept the certificate in .*cert\.pem")
        cluster.coordinator.wait_for(
            r"a connection was refused: a client's certificate is not of the CA in --tls-dir")
        assert "firewall" not in worker.text()
    finally:
        stop([worker])


def test_certificates_that_end_soon_are_problems(authority, identity, tmp_path):
    with Cluster(tmp_path, tls_dir=with_times(authority, identity, -80, 9)) as c:
        c.start_worker("w0")
        problems = c.json("status")["problems"]
        for whose in ("the coordinator's cert.pem", "the certificate of node w0"):
            assert any(p["what"].startswith(f"{whose} expires on ") and "within seconds" in p["do"]
                       for p in problems), problems


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
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "moved" in last and "certificate" in last and "127.0.0.1" in last
    assert "IP:10.77.0.99" in last and "firewall" not in last
