"""HTTP over TLS: --http-tls and --http-tls-dir of strata-coordinator."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import shutil
import socket
import ssl
import subprocess
import time

import pytest

from cluster import BIN, GIVE_UP_S, RECALL, Cluster, Process, stop, wait_until
from test_cluster_certificates import made


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The cluster's folders, and two for HTTP alone, of one authority."""
    folder = tmp_path_factory.mktemp("files")
    made(folder, "cluster", "init", "--hosts", "127.0.0.1,localhost")
    for name in ("web", "web2"):
        made(folder, "cluster", "certificate", "worker", name, "--hosts", "127.0.0.1,localhost")
    return folder / "strata-cluster"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, files):
    with Cluster(tmp_path_factory.mktemp("cluster"), tls_dir=files / "coordinator", http_tls_dir=files / "web",
                 http_keepalive="200ms") as c:
        c.start_worker("w0")
        c.load("recall", RECALL, context=512)
        yield c


def port_of(address):
    return int(address.rsplit(":", 1)[1])


def trusting(files, version=None):
    context = ssl.create_default_context(cafile=str(files / "authority" / "ca.pem"))
    context.set_alpn_protocols(["http/1.1"])
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


@contextlib.contextmanager
def connected(address, context, name="127.0.0.1"):
    with socket.create_connection(("127.0.0.1", port_of(address)), timeout=GIVE_UP_S) as plain:
        with context.wrap_socket(plain, server_hostname=name) as secure:
            yield secure


def serial(address, files):
    with connected(address, trusting(files)) as secure:
        return secure.getpeercert()["serialNumber"]


def get(address, files, path="/v1/models"):
    connection = http.client.HTTPSConnection("127.0.0.1", port_of(address), context=trusting(files), timeout=GIVE_UP_S)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


QUESTION = json.dumps({"model": "recall", "prompt": "The key is", "max_tokens": 12, "temperature": 0, "stream": True,
                       "stream_options": {"include_usage": True}})


def completion(connection):
    connection.request("POST", "/v1/completions", QUESTION, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    events = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    assert answer.status == 200 and events[-1] == "[DONE]"
    return "".join(choice["text"] for event in events[:-1] for choice in json.loads(event)["choices"])


def test_a_connection_serves_requests_and_streams_one_after_another(cluster, files):
    connection = http.client.HTTPSConnection("127.0.0.1", port_of(cluster.http), context=trusting(files), timeout=GIVE_UP_S)
    with contextlib.closing(connection):
        texts = {completion(connection) for _ in range(5)}
        # On the same connection, which no answer has ended.
        local = connection.sock.getsockname()
        connection.request("GET", "/v1/models")
        assert json.loads(connection.getresponse().read())["data"][0]["id"] == "recall"
        assert connection.sock.getsockname() == local
    over_grpc = cluster.generate("recall", text="The key is", max_tokens=12, temperature=0)["text"]
    assert texts == {over_grpc}


def test_versions_and_protocols(cluster, files):
    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        with connected(cluster.http, trusting(files, version)) as secure:
            assert secure.version() == name and secure.selected_alpn_protocol() == "http/1.1"
    old = subprocess.run(["openssl", "s_client", "-connect", cluster.http, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
                         capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=GIVE_UP_S)
    assert old.returncode != 0 and "protocol version" in old.stderr, old.stderr
    second = trusting(files)
    second.set_alpn_protocols(["h2"])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with connected(cluster.http, second):
            pass
    with pytest.raises(ssl.SSLCertVerificationError):
        with connected(cluster.http, ssl.create_default_context()):
            pass


def test_curl_and_the_load_generator_trust_the_authority(cluster, files):
    ca = files / "authority" / "ca.pem"
    done = subprocess.run(["curl", "-sS", "--cacert", ca, f"https://{cluster.http}/v1/models"], capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["data"][0]["id"] == "recall", done.stderr
    # A request whose answer ends the connection, and one whose body comes after the server has agreed.
    done = subprocess.run(["curl", "-sS", "--cacert", ca, "-H", "Connection: close", "-H", "Expect: 100-continue", "-d",
                           QUESTION, f"https://localhost:{port_of(cluster.http)}/v1/completions"], capture_output=True, text=True)
    assert done.returncode == 0 and "[DONE]" in done.stdout, done.stderr
    bench = [BIN / "strata", "bench", "recall", "--openai", f"https://{cluster.http}", "--requests", "4", "--clients", "2",
             "--prompt-tokens", "8", "--max-tokens", "4", "--vocab-size", "1000"]
    done = subprocess.run([*bench, "--ca", ca, "--json"], capture_output=True, text=True, timeout=GIVE_UP_S)
    assert done.returncode == 0 and json.loads(done.stdout)["failed"] == 0, done.stderr
    done = subprocess.run(bench, capture_output=True, text=True, timeout=GIVE_UP_S)
    assert done.returncode == 1 and "--ca FILE" in done.stderr
    assert cluster.json("status")["http_address"] == f"https://{cluster.http}"


def test_plain_text_is_told_what_to_do(cluster):
    with socket.create_connection(("127.0.0.1", port_of(cluster.http)), timeout=GIVE_UP_S) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        said = b""
        while part := plain.recv(4096):
            said += part
    assert said.startswith(b"HTTP/1.1 400 ") and b"https://" in said and b'"tls_wanted"' in said


def test_slow_handshakes_hold_nobody_up_and_end(tmp_path, files):
    with Cluster(tmp_path, http_tls_dir=files / "web", http_timeout="1s") as c:
        held = [socket.create_connection(("127.0.0.1", port_of(c.http)), timeout=GIVE_UP_S) for _ in range(100)]
        for i, one in enumerate(held):
            # The beginning of a ClientHello that never ends, or nothing at all.
            one.sendall(b"\x16\x03\x01\x02\x00\x01\x00" if i % 2 else b"")
        started = time.monotonic()
        assert get(c.http, files, "/livez")[0] == 200
        assert time.monotonic() - started < GIVE_UP_S / 4
        for one in held:
            assert one.recv(100) == b"", "it is closed by --http-timeout"
            one.close()


def test_garbage_ends_its_own_connection_alone(cluster, files):
    good = http.client.HTTPSConnection("127.0.0.1", port_of(cluster.http), context=trusting(files), timeout=GIVE_UP_S)
    good.request("GET", "/livez")
    good.getresponse().read()
    for i in range(200):
        with socket.create_connection(("127.0.0.1", port_of(cluster.http)), timeout=GIVE_UP_S) as one:
            with contextlib.suppress(ConnectionError):
                one.sendall((b"\x16\x03\x01" if i % 2 else b"") + os.urandom(300))
                one.shutdown(socket.SHUT_WR)
                while one.recv(4096):
                    pass
    # Behind a handshake, too.
    with connected(cluster.http, trusting(files)) as secure:
        secure.sendall(b"what is this\r\n\r\n")
        assert secure.recv(4096).startswith(b"HTTP/1.1 400 ")
    good.request("GET", "/livez")
    assert good.getresponse().status == 200
    good.close()


def test_a_client_that_goes_away_ends_its_request(cluster, files):
    body = json.dumps({"model": "recall", "prompt": "Once", "max_tokens": 480, "ignore_eos": True, "stream": True})
    connection = http.client.HTTPSConnection("127.0.0.1", port_of(cluster.http), context=trusting(files), timeout=GIVE_UP_S)
    with cluster.stalled("w0"):
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        cluster.wait_sessions(1)
        connection.sock.close()
    wait_until(lambda: cluster.json("session", "list")["sessions"] == [], "no session is left")


def test_what_a_stream_says_arrives_before_it_goes_on(cluster, files):
    with cluster.stalled("w0"), connected(cluster.http, trusting(files)) as secure:
        secure.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(QUESTION)}\r\n\r\n"
                       f"{QUESTION}".encode())
        said = b""
        while said.count(b": keep-alive") < 3:
            part = secure.recv(4096)
            assert part, said
            said += part
        assert b"data: " not in said, "nothing is computed meanwhile"
    wait_until(lambda: cluster.json("session", "list")["sessions"] == [], "no session is left")


def test_a_request_that_is_sent_ahead_is_answered(cluster, files):
    with connected(cluster.http, trusting(files)) as secure:
        one = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(QUESTION)}\r\n\r\n{QUESTION}"
        secure.sendall(one.encode())
        time.sleep(0.05)  # So that a record of its own comes, at times, while the first is answered.
        secure.sendall(one.encode())
        said = b""
        while said.count(b"[DONE]") < 2:
            part = secure.recv(4096)
            assert part, said
            said += part


def test_many_clients_stream_at_once(cluster, files):
    def ask(_):
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", port_of(cluster.http), context=trusting(files),
                                                            timeout=GIVE_UP_S)) as connection:
            return {completion(connection) for _ in range(3)}

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = set().union(*pool.map(ask, range(8)))
    assert len(texts) == 1


def test_new_files_are_taken_and_bad_ones_refused(tmp_path, files):
    folder = tmp_path / "http"
    shutil.copytree(files / "web", folder)
    with Cluster(tmp_path / "c", http_tls_dir=folder) as c:
        def problems():
            return [problem["what"] for problem in c.json("status")["problems"] if "HTTP" in problem["what"]]

        first = serial(c.http, files)
        with connected(c.http, trusting(files)) as secure:
            # A certificate without its key, as whoever copies one file after the other leaves it.
            shutil.copy(files / "web2" / "cert.pem", folder / "cert.pem")
            wait_until(problems, "a problem of status")
            assert "is not the key of the certificate" in problems()[0]
            assert serial(c.http, files) == first, "the old one goes on"
            shutil.copy(files / "web2" / "key.pem", folder / "key.pem")
            wait_until(lambda: serial(c.http, files) != first, "the new one")
            assert problems() == []
            secure.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert secure.recv(4096).startswith(b"HTTP/1.1 200 "), "open connections stay"
        (folder / "key.pem").unlink()
        wait_until(problems, "a problem of status")
        assert f"cannot read {folder / 'key.pem'}" in problems()[0]
        log = c.coordinator.text()
        assert log.count("HTTP shows the new certificate") == 1
        assert log.count("HTTP goes on with the certificate that it has") == 2, log


def refused(*flags, http_listen="127.0.0.1:0"):
    done = subprocess.run([BIN / "strata-coordinator", "--listen", "127.0.0.1:0", "--http-listen", http_listen,
                           *map(str, flags)], capture_output=True, text=True, timeout=GIVE_UP_S)
    assert done.returncode != 0 and done.stdout == ""
    return done.returncode, done.stderr.splitlines()[-1]


def test_what_cannot_be_served_is_refused_at_the_start(tmp_path, files):
    data = ("--data-dir", tmp_path / "data")
    code, said = refused(*data, "--http-tls")
    assert code == 2 and "--http-tls wants --tls-dir" in said
    empty = tmp_path / "empty"
    empty.mkdir()
    code, said = refused(*data, "--http-tls-dir", empty)
    assert code == 1 and f"cannot read {empty / 'cert.pem'}" in said and "--http-tls-dir is a folder with" in said
    mixed = tmp_path / "mixed"
    shutil.copytree(files / "web", mixed)
    shutil.copy(files / "web2" / "key.pem", mixed / "key.pem")
    code, said = refused(*data, "--http-tls-dir", mixed)
    assert code == 1 and "is not the key of the certificate" in said
    (mixed / "key.pem").write_text("nothing")
    code, said = refused(*data, "--http-tls-dir", mixed)
    assert code == 1 and f"{mixed / 'key.pem'} has no private key" in said


def test_plain_text_off_loopback_must_be_wanted_and_is_repeated(tmp_path, files):
    data = ("--data-dir", tmp_path / "data")
    code, said = refused(*data, http_listen="0.0.0.0:0")
    assert code == 1 and "API keys would travel in plain text" in said and "--http-tls-dir" in said
    code, said = refused(*data, "--tls-dir", files / "coordinator", http_listen="0.0.0.0:0")
    assert code == 1 and "give --http-tls," in said
    plain = Process("coordinator", [BIN / "strata-coordinator", "--listen", "127.0.0.1:0", "--http-listen", "0.0.0.0:0",
                                    "--insecure", *data], tmp_path)
    try:
        address = plain.wait_for(r"^listening on (\S+)").group(1)
        done = subprocess.run([BIN / "strata", "status", "--coordinator", address], capture_output=True, text=True,
                              timeout=GIVE_UP_S)
        assert "HTTP is in plain text: prompts, answers and API keys can be read on their way" in done.stdout
        assert "HTTP is in plain text" in plain.text()
    finally:
        stop([plain])


def test_the_clusters_own_certificate_is_shown_off_loopback(tmp_path, files):
    """--http-tls alone: the certificate of --tls-dir, and no client's is wanted."""
    own = Process("coordinator", [BIN / "strata-coordinator", "--listen", "127.0.0.1:0", "--http-listen", "0.0.0.0:0",
                                  "--tls-dir", files / "coordinator", "--http-tls", "--data-dir", tmp_path / "data"], tmp_path)
    try:
        http_address = own.wait_for(r"^http listening on (\S+) \(TLS\)").group(1)
        assert get(http_address, files, "/livez") == (200, b'{"status":"alive"}')
        address = own.wait_for(r"^listening on (\S+)").group(1)
        done = subprocess.run([BIN / "strata", "status", "--json", "--coordinator", address, "--tls-dir",
                               files / "operator"], capture_output=True, text=True, timeout=GIVE_UP_S)
        assert json.loads(done.stdout)["problems"] == []
    finally:
        stop([own])
