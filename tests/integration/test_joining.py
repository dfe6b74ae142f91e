"""Machines that join with a token: certificates without a hand on them."""

import contextlib
import json
import re
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, Process, stop


def run(program, *arguments, cwd=None, text=None):
    return subprocess.run([BIN / program, *map(str, arguments)], cwd=cwd, capture_output=True, text=True,
                          input=text if text is not None else "", timeout=GIVE_UP_S)


class House:
    """A coordinator with an authority, and those who come to it."""

    def __init__(self, folder, hosts="127.0.0.1"):
        self.folder = folder
        done = run("strata", "cluster", "init", "--name", "home", "--hosts", hosts, cwd=folder)
        assert done.returncode == 0, done.stderr
        self.files = folder / "strata-cluster"
        self.processes = []
        self.start_coordinator()

    def start_coordinator(self, *flags, listen="127.0.0.1:0"):
        self.coordinator = Process("coordinator", [
            BIN / "strata-coordinator", "--listen", listen, "--http-listen", "127.0.0.1:0",
            *(() if "--join-listen" in flags else ("--join-listen", "127.0.0.1:0")), "--data-dir", self.folder / "data", "--tls-dir", self.files / "coordinator", "--authority",
            self.files / "authority", "--drain-timeout", "1s", *flags], self.folder)
        self.processes.append(self.coordinator)
        self.address = self.coordinator.wait_for(r"^listening on (\S+)").group(1)
        self.join_address = self.coordinator.wait_for(r"^joining on (\S+)").group(1)

    def strata(self, *arguments):
        return run("strata", *arguments, "--coordinator", self.address, "--tls-dir", self.files / "operator")

    def token(self, *flags):
        done = self.strata("node", "token", *flags, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["token"]

    def join(self, token, name="w0", hosts="127.0.0.1"):
        return run("strata-worker", "join", token, "--name", name, "--hosts", hosts, "--config-dir", self.folder / name)

    def start_worker(self, name):
        worker = Process(name, [BIN / "strata-worker", "--config", self.folder / name / "worker.toml", "--data-dir",
                                self.folder / name / "data", "--threads", "1", "--memory", "1GiB", "--drain-timeout",
                                "1s"], self.folder)
        self.processes.append(worker)
        worker.wait_for("joined the cluster")
        return worker


@pytest.fixture
def house(tmp_path):
    with contextlib.ExitStack() as stack:
        house = House(tmp_path)
        stack.callback(lambda: stop(house.processes))
        yield house


def test_two_machines_answer_by_what_each_command_prints(house):
    for name in ("w0", "w1"):
        printed = house.strata("node", "token")
        assert printed.returncode == 0, printed.stderr
        words = printed.stdout.split()
        assert words[:2] == ["strata-worker", "join"] and len(words) == 3
        joined = house.join(words[2], name)
        assert joined.returncode == 0, joined.stderr
        assert f"{name} is part of the cluster home now" in joined.stdout
        assert re.search(r"^start it: strata-worker --config (\S+)$", joined.stdout, re.M)[1] == str(
            house.folder / name / "worker.toml")
        house.start_worker(name)
    assert house.strata("model", "add", RECALL, "--name", "recall").returncode == 0
    loaded = house.strata("model", "load", "recall", "--layers", "w0:0-3,w1:4-7")
    assert loaded.returncode == 0, loaded.stderr
    answer = house.strata("chat", "recall", "The code for the village is 489. What is the code for the village?")
    assert "489" in answer.stdout, answer.stderr


def test_a_token_is_good_for_as_many_as_it_says(house):
    token = house.token("--uses", 2)
    assert house.join(token, "a").returncode == 0
    assert house.join(token, "b").returncode == 0
    refused = house.join(token, "c")
    assert refused.returncode == 1 and "used as often as it may be" in refused.stderr
    assert "strata node token" in refused.stderr
    assert not (house.folder / "c" / "worker.toml").exists() and not (house.folder / "c" / "worker-tls").exists()


def test_a_token_that_has_lapsed_is_refused(house):
    token = house.token("--expires", "1s")
    time.sleep(1.5)
    refused = house.join(token)
    assert refused.returncode == 1 and "has lapsed" in refused.stderr


def test_tokens_and_names_outlive_a_restart_of_the_coordinator(house):
    token = house.token("--uses", 3)
    assert house.join(token, "w0").returncode == 0
    house.start_worker("w0")
    join_address = house.join_address
    house.coordinator.kill()
    house.start_coordinator("--join-listen", join_address, listen=house.address)
    # The node is known to be w0, and by its key alone.
    again = house.join(token, "w0")
    assert again.returncode == 0, again.stderr
    shutil.move(house.folder / "w0" / "worker-tls", house.folder / "kept")
    other = house.join(token, "w0")
    assert other.returncode == 1 and "there is a node w0 already" in other.stderr
    assert house.join(token, "w1").returncode == 0
    house.coordinator.kill()
    house.start_coordinator("--join-listen", join_address, listen=house.address)
    refused = house.join(token, "w2")
    assert refused.returncode == 1 and "used as often as it may be" in refused.stderr, refused.stderr


def test_whoever_is_not_of_the_tokens_authority_is_not_told_the_secret(house, tmp_path):
    """Somebody else listens where the token leads."""
    token = house.token()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert run("strata", "cluster", "init", "--hosts", "127.0.0.1", cwd=elsewhere).returncode == 0
    files = elsewhere / "strata-cluster" / "coordinator"
    host, port = house.join_address.rsplit(":", 1)
    house.coordinator.stop()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "cert.pem", files / "key.pem")
    heard = []
    with socket.create_server((host, int(port))) as server:
        joining = subprocess.Popen([BIN / "strata-worker", "join", token, "--name", "w0", "--hosts", "127.0.0.1", "--config-dir",
                                    house.folder / "w0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        server.settimeout(GIVE_UP_S)
        with server.accept()[0] as plain, contextlib.suppress(ssl.SSLError, OSError):
            with context.wrap_socket(plain, server_side=True) as shown:
                heard.append(shown.recv(4096))
        out, err = joining.communicate(timeout=GIVE_UP_S)
    assert joining.returncode == 1 and "not of the authority that the token names" in err, (out, err)
    assert b"".join(heard) == b""


def test_a_members_name_is_refused_to_another_machine(house):
    assert house.join(house.token(), "w0").returncode == 0
    house.start_worker("w0")
    key = (house.folder / "w0" / "worker-tls" / "key.pem").read_bytes()
    # The same machine again, with the key that it kept.
    again = house.join(house.token(), "w0")
    assert again.returncode == 0, again.stderr
    assert (house.folder / "w0" / "worker-tls" / "key.pem").read_bytes() == key
    shutil.move(house.folder / "w0" / "worker-tls", house.folder / "kept")
    other = house.join(house.token(), "w0")
    assert other.returncode == 1 and "there is a node w0 already" in other.stderr
    assert "strata node remove w0" in other.stderr


def test_the_port_for_joining_gives_nothing_else(house):
    """Without a certificate nobody gets at the services that want one."""
    refused = run("strata", "status", "--coordinator", house.join_address, "--tls-dir", house.files / "operator")
    assert refused.returncode == 1 and "does not know this call" in refused.stderr, refused.stderr


def test_a_person_logs_in_and_is_known_from_then_on(house, tmp_path):
    printed = house.strata("cluster", "token", "operator")
    assert printed.returncode == 0, printed.stderr
    words = printed.stdout.split()
    assert words[:2] == ["strata", "login"]
    environment = {"HOME": str(tmp_path / "home"), "USER": "alice", "PATH": "/usr/bin:/bin"}

    def alice(*arguments):
        return subprocess.run([BIN / "strata", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env=environment, timeout=GIVE_UP_S)

    logged_in = alice(*words[1:])
    assert logged_in.returncode == 0, logged_in.stderr
    assert f"you are alice, operator of the cluster home at {house.address}" in logged_in.stdout
    # Neither an address nor a folder is named any more.
    listed = alice("node", "list", "--json")
    assert listed.returncode == 0 and json.loads(listed.stdout) == {"nodes": []}, listed.stderr
    # Who names another coordinator does not show it this certificate.
    assert alice("status", "--coordinator", house.address).returncode == 1
    exported = re.search(r"export STRATA_COORDINATOR=(\S+) STRATA_TLS_DIR=(\S+)", logged_in.stdout)
    assert exported[1] == house.address and run("strata", "status", "--coordinator", exported[1], "--tls-dir",
                                               exported[2]).returncode == 0


def test_tokens_are_for_what_they_were_made_for(house, tmp_path):
    person = house.strata("cluster", "token", "client", "--json")
    refused = house.join(json.loads(person.stdout)["token"])
    assert refused.returncode == 2 and "for a person" in refused.stderr
    refused = run("strata", "login", house.token(), "--dir", tmp_path / "me")
    assert refused.returncode == 2 and "strata-worker join" in refused.stderr
    wrong = house.strata("cluster", "token", "worker")
    assert wrong.returncode == 2 and "strata node token" in wrong.stderr


def test_what_worker_toml_says_besides_stays(house):
    folder = house.folder / "w0"
    folder.mkdir()
    (folder / "worker.toml").write_text("# Mine.\n# coordinator = \"127.0.0.1:7070\"\nthreads = 1\n")
    assert house.join(house.token(), "w0").returncode == 0
    text = (folder / "worker.toml").read_text()
    assert text.startswith(f'# Mine.\ncoordinator = "{house.address}"\nthreads = 1\n') and "tls-dir" in text


@pytest.mark.parametrize("token, said", [("hello", "does not begin with strata-join-"), ("strata-join-9.AA", "another version"),
                                         ("strata-join-1.AAAA", "missing or changed")])
def test_what_is_no_token_is_wrong_use(tmp_path, token, said):
    refused = run("strata-worker", "join", token, "--config-dir", tmp_path / "w")
    assert refused.returncode == 2 and said in refused.stderr
    from_stdin = run("strata-worker", "join", "-", "--config-dir", tmp_path / "w", text=token + "\n")
    assert from_stdin.returncode == 2 and said in from_stdin.stderr
    assert not (tmp_path / "w").exists()


def test_a_token_for_a_host_that_the_certificate_lacks_is_refused(house):
    refused = house.strata("node", "token", "--host", "10.9.9.9")
    assert refused.returncode == 1 and "does not have this address (it has IP:127.0.0.1)" in refused.stderr
    assert json.loads(house.strata("node", "token", "--host", "127.0.0.1", "--json").stdout)["uses"] == 1


def test_a_coordinator_without_an_authority_says_what_to_do(tmp_path):
    refused = run("strata-coordinator", "--authority", tmp_path, "--data-dir", tmp_path)
    assert refused.returncode == 2 and "--authority wants --tls-dir" in refused.stderr
    refused = run("strata-coordinator", "--join-listen", "127.0.0.1:0", "--data-dir", tmp_path)
    assert refused.returncode == 2 and "--join-listen wants --authority" in refused.stderr
