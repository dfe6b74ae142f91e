"""Certificates while a cluster runs: renewed, replaced by hand, revoked; and another authority."""

import contextlib
import datetime
import json
import os
import re
import shutil
import ssl
import subprocess
import threading
import time

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, Process, shell, stop, wait_until
from test_joining import House, run

ROLES = {"coordinator": "serverAuth,clientAuth", "worker": "serverAuth,clientAuth", "operator": "clientAuth",
         "client": "clientAuth"}


def make_short_lived(folder, authority, role, name, seconds, age=0):
    """A folder for --tls-dir as `strata cluster certificate` makes them, but valid for so many seconds from now on, and made
    so many seconds ago."""
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "index").write_text("")
    (work / "serial").write_text(os.urandom(12).hex().upper())
    (work / "names").write_text(f"basicConstraints=critical,CA:FALSE\nextendedKeyUsage={ROLES[role]}\n"
                                "authorityKeyIdentifier=keyid:always\n"
                                + ("subjectAltName=IP:127.0.0.1\n" if "server" in ROLES[role] else ""))
    (work / "config").write_text(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=work/index\nnew_certs_dir=work\nserial=work/serial\nunique_subject=no\n"
        "default_md=sha256\npolicy=p\npreserve=yes\n[p]\norganizationName=supplied\norganizationalUnitName=supplied\n"
        "commonName=supplied\n")
    shutil.copy(authority / "ca.pem", folder / "ca.pem")
    now = datetime.datetime.now(datetime.timezone.utc)
    end = (now + datetime.timedelta(seconds=seconds)).strftime("%Y%m%d%H%M%SZ")
    shell(folder, f"""openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem \\
  -subj "/O=home/OU={role}/CN={name}" -out work/request
openssl ca -batch -config work/config -cert ca.pem -keyfile {authority / "ca-key.pem"} -notext -in work/request \\
  -startdate {(now - datetime.timedelta(seconds=age)).strftime("%Y%m%d%H%M%SZ")} -enddate {end} -extfile work/names -out cert.pem""")
    shutil.rmtree(work)
    return folder


def end_of(folder):
    """When a folder's certificate ends, as openssl says it."""
    return subprocess.run(["openssl", "x509", "-in", folder / "cert.pem", "-noout", "-enddate", "-serial"],
                          capture_output=True, text=True, check=True, timeout=GIVE_UP_S).stdout


def has_lapsed(folder):
    return subprocess.run(["openssl", "x509", "-in", folder / "cert.pem", "-noout", "-checkend", "0"],
                          capture_output=True, timeout=GIVE_UP_S).returncode == 1


def let_ask_again(folder):
    """As if `strata` had last asked with this folder two days ago."""
    os.utime(folder, (time.time() - 2 * 86400,) * 2)


class LiveHouse(House):
    def __init__(self, folder, seconds=None, *flags):
        self.seconds = seconds
        self.flags = flags
        super().__init__(folder)

    def start_coordinator(self, *flags, listen="127.0.0.1:0"):
        if self.seconds and not (self.folder / "data").exists():
            (self.files / "coordinator").unlink()
            make_short_lived(self.files / "coordinator", self.files / "authority", "coordinator", "coordinator",
                             self.seconds)
        super().start_coordinator(*self.flags, *flags, listen=listen)

    def restart_coordinator(self):
        self.coordinator.stop()
        self.start_coordinator(listen=self.address)

    def add_worker(self, name, seconds=None):
        if seconds:
            make_short_lived(self.folder / f"{name}-tls", self.files / "authority", "worker", name, seconds)
        else:
            assert self.join(self.token(), name).returncode == 0
        return self.run_worker(name)

    def run_worker(self, name, wait=True):
        config = self.folder / name / "worker.toml"
        how = (["--config", config] if config.exists() else
               ["--coordinator", self.address, "--name", name, "--tls-dir", self.folder / f"{name}-tls"])
        worker = Process(name, [BIN / "strata-worker", *how, "--data-dir", self.folder / name / "data", "--threads", "1",
                                "--memory", "1GiB", "--drain-timeout", "1s", *self.flags], self.folder)
        self.processes.append(worker)
        if wait:
            worker.wait_for("joined the cluster")
        return worker

    def authority(self, step):
        return self.strata("cluster", "authority", step)

    def step(self, step):
        """Takes it once all have followed the one before."""
        def taken():
            done = self.authority(step)
            assert done.returncode == 0 or "not yet the certificates of the step before" in done.stderr, done.stderr
            return done.returncode == 0
        wait_until(taken, f"strata cluster authority {step}")

    def followed(self):
        document = json.loads(self.strata("cluster", "authority", "status", "--json").stdout)
        return all(member["followed"] for member in document["members"])

    def load(self):
        assert self.strata("model", "add", RECALL, "--name", "recall").returncode == 0
        loaded = self.strata("model", "load", "recall", "--layers", "w0:0-3,w1:4-7", "--sessions", "8", "--context", "512")
        assert loaded.returncode == 0, loaded.stderr

    def answers(self):
        done = self.strata("chat", "recall", "The code for the village is 489. What is the code for the village?")
        return "489" in done.stdout, done.stderr


@contextlib.contextmanager
def live_house(*arguments):
    with contextlib.ExitStack() as stack:
        house = LiveHouse(*arguments)
        stack.callback(lambda: stop(house.processes))
        yield house


class Streams:
    """Eight clients that ask one request after another, over connections that last, until they are told to end."""

    def __init__(self, house):
        self.command = ["bench", "recall", "--clients", 8, "--requests", 400, "--prompt-tokens", 8, "--max-tokens", 24,
                        "--json", "--coordinator", house.address, "--tls-dir", house.files / "operator"]
        self.ending = threading.Event()
        self.runs = []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ending.is_set():
            self.runs.append(run("strata", *self.command))

    def end(self):
        """How many requests there were, and what went wrong."""
        self.ending.set()
        self.thread.join()
        documents = [json.loads(done.stdout) if done.stdout else {"requests": 0, "failed": 1} for done in self.runs]
        wrong = [(document, done.stderr) for document, done in zip(documents, self.runs)
                 if done.returncode or document["failed"]]
        return sum(document["requests"] for document in documents), wrong


def renewals(process):
    return len(re.findall(r"connections use a new certificate from now on", process.text()))


def change_authority(house, rotations):
    """The authorities that there were."""
    signers = set()
    for _ in range(rotations):
        house.step("rotate")
        wait_until(house.followed, "everybody trusts the next authority")
        house.step("switch")
        wait_until(house.followed, "everybody has a certificate of it")
        house.step("finish")
        document = json.loads(house.strata("cluster", "authority", "status", "--json").stdout)
        assert document["phase"] == "settled"
        signers.add(document["signer"])
    return signers


def run_under_streams(tmp_path, seconds, times, rotations):
    """All certificates are renewed so many times, and the authority changes so often, under eight streams."""
    with live_house(tmp_path, seconds, "--max-connection-age", "3s", "--renew-before", "15s") as house:
        workers = [house.add_worker(name, seconds) for name in ("w0", "w1")]
        house.load()
        streams = Streams(house)
        try:
            signers = change_authority(house, rotations)
            for process in (house.coordinator, *workers):
                wait_until(lambda process=process: renewals(process) >= times,
                           f"{process.name} has {times} new certificates")
            for folder in (house.files / "coordinator", tmp_path / "w0-tls", tmp_path / "w1-tls"):
                wait_until(lambda folder=folder: has_lapsed(folder), f"what {folder} was made with has lapsed")
        finally:
            requests, wrong = streams.end()
        assert len(signers) == rotations
        assert requests >= 200 and not wrong, wrong
        # A process that starts anew uses what it renewed.
        workers[0].stop()
        house.run_worker("w0")
        house.restart_coordinator()
        wait_until(lambda: house.answers()[0], "an answer after the restarts")
        # The old authority's key makes nothing that anybody takes.
        assert not (house.files / "authority" / "previous").exists()


def test_streams_go_on_while_certificates_are_renewed_and_the_authority_changes(tmp_path):
    run_under_streams(tmp_path, 24, 2, 1)


@pytest.mark.long
def test_streams_go_on_through_twenty_renewals_and_two_changes_of_the_authority(tmp_path):
    run_under_streams(tmp_path, 24, 20, 2)


def test_files_that_are_put_there_by_hand_are_taken_within_seconds(tmp_path):
    with live_house(tmp_path) as house:
        coordinator = house.files / "coordinator"
        made = run("strata", "cluster", "certificate", "coordinator", "coordinator", "--hosts", "127.0.0.1", "--days", "3",
                   cwd=tmp_path)
        assert made.returncode == 0, made.stderr
        house.coordinator.wait_for("connections use a new certificate from now on")
        problems = json.loads(house.strata("status", "--json").stdout)["problems"]
        assert not any("certificate" in p["what"] for p in problems), problems
        # Another's: refused by name, and the one before goes on.
        for role, name in (("worker", "w9"), ("coordinator", "other")):
            made = run("strata", "cluster", "certificate", role, name, "--hosts", "127.0.0.1", "--out", coordinator,
                       cwd=tmp_path)
            assert made.returncode == 0, made.stderr
            house.coordinator.wait_for(
                rf"new files of --tls-dir are not used.*cert\.pem is of {role} {name} of home, and this process is coordinator")
        assert house.strata("node", "list").returncode == 0
        (coordinator / "key.pem").write_text("nonsense")
        house.coordinator.wait_for(r"new files of --tls-dir are not used.*key\.pem is no PEM file")
        assert house.strata("node", "list").returncode == 0


def test_http_shows_the_renewed_certificate_too(tmp_path):
    with live_house(tmp_path, None, "--http-tls", "--renew-before", "8760h") as house:
        host, port = house.coordinator.wait_for(r"^http listening on (\S+) \(TLS\)").group(1).rsplit(":", 1)
        first = (house.files / "coordinator" / "cert.pem").read_text().strip()

        def shown():
            return ssl.get_server_certificate((host, int(port))).strip()

        wait_until(lambda: shown() != first, "HTTP shows another certificate")
        assert (tmp_path / "data" / "tls" / "cert.pem").exists()


def test_a_node_that_is_removed_is_refused_until_it_joins_anew(tmp_path):
    with live_house(tmp_path) as house:
        worker = house.add_worker("w0")
        other = house.add_worker("w1")
        wait_until(house.followed, "both have said what they have")
        removed = house.strata("node", "remove", "w0")
        assert removed.returncode == 0, removed.stderr
        assert [n["name"] for n in json.loads(house.strata("node", "list", "--json").stdout)["nodes"]] == ["w1"]
        refused = r"a connection was refused: a client's certificate \(worker w0\) was revoked.*strata node token"
        house.coordinator.wait_for(refused)
        worker.wait_for(r"cannot join.*certificate \(worker w0\) was revoked")
        other.wait_for("the coordinator has revoked certificates")
        # It is remembered.
        house.restart_coordinator()
        house.coordinator.wait_for(refused)
        worker.stop()
        assert house.join(house.token(), "w0").returncode == 0
        house.run_worker("w0")
        assert {n["name"] for n in json.loads(house.strata("node", "list", "--json").stdout)["nodes"]} >= {"w0"}


def test_a_person_whose_certificates_are_revoked_is_refused_at_once(tmp_path):
    with live_house(tmp_path) as house:
        for name in ("w0", "w1"):
            house.add_worker(name)
        house.load()
        alice = tmp_path / "alice"
        for command in (["certificate", "client", "alice", "--out", alice],):
            assert run("strata", "cluster", *command, cwd=tmp_path).returncode == 0
        asking = ["--coordinator", house.address, "--tls-dir", alice]
        assert run("strata", "generate", "recall", "Hello", "--max-tokens", "2", *asking).returncode == 0
        streaming = subprocess.Popen([BIN / "strata", "bench", "recall", "--clients", "2", "--requests", "100000",
                                      "--prompt-tokens", "8", "--max-tokens", "64", *asking], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True)
        wait_until(lambda: len(json.loads(house.strata("session", "list", "--json").stdout)["sessions"]) > 0,
                   "alice's requests run")
        revoked = house.strata("cluster", "revoke", "client", "alice", "--json")
        assert revoked.returncode == 0, revoked.stderr
        wait_until(lambda: json.loads(house.strata("session", "list", "--json").stdout)["sessions"] == [],
                   "alice's requests have ended")
        streaming.kill()
        streaming.communicate()
        refused = run("strata", "generate", "recall", "Hello", *asking)
        assert refused.returncode == 1 and "does not accept the certificate in" in refused.stderr, refused.stderr
        house.coordinator.wait_for(r"a client's certificate \(client alice\) was revoked.*strata cluster token")
        # Others go on, and a later certificate of that name is good.
        assert house.strata("node", "list").returncode == 0
        time.sleep(1)
        assert run("strata", "cluster", "certificate", "client", "alice", "--out", alice, cwd=tmp_path).returncode == 0
        assert run("strata", "generate", "recall", "Hello", "--max-tokens", "2", *asking).returncode == 0
        wrong = house.strata("cluster", "revoke", "coordinator", "coordinator")
        assert wrong.returncode == 1 and "workers, operators and clients can be revoked" in wrong.stderr


def test_an_authority_is_not_changed_while_a_node_has_not_followed(tmp_path):
    with live_house(tmp_path) as house:
        worker = house.add_worker("w0")
        wait_until(house.followed, "w0 has said what it has")
        wrong = house.authority("switch")
        assert wrong.returncode == 1 and "there is no next authority" in wrong.stderr, wrong.stderr
        worker.stop()
        house.step("rotate")
        refused = house.authority("switch")
        assert refused.returncode == 1 and "node w0" in refused.stderr and "strata node remove w0" in refused.stderr
        shown = house.authority("status")
        assert "spreading" not in shown.stdout and "learn to trust the next one" in shown.stdout
        assert re.search(r"w0 +no, it is not there", shown.stdout), shown.stdout
        house.run_worker("w0")
        house.step("switch")
        house.step("finish")
        assert house.authority("finish").returncode == 1


def test_a_persons_certificate_is_renewed_when_it_is_used(tmp_path):
    with live_house(tmp_path) as house:
        alice = tmp_path / "alice"
        assert run("strata", "cluster", "certificate", "client", "alice", "--out", alice, cwd=tmp_path).returncode == 0
        before = end_of(alice)

        def ask():
            done = run("strata", "model", "list", "--coordinator", house.address, "--tls-dir", alice)
            assert done.returncode == 0 and not done.stderr, done.stderr

        ask()
        house.step("rotate")
        # Whoever changes it follows at once, and the others when they ask again.
        assert (house.files / "operator" / "ca.pem").read_text().count("BEGIN") == 2
        ask()
        assert end_of(alice) == before
        let_ask_again(alice)
        ask()
        assert end_of(alice) != before and (alice / "ca.pem").read_text().count("BEGIN") == 2
        # One that ends soon does not wait for that.
        alice.unlink()
        make_short_lived(alice, house.files / "authority", "client", "alice", 600, age=3000)
        before = end_of(alice)
        ask()
        assert end_of(alice) != before
