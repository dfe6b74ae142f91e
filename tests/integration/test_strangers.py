"""Whoever can connect and has no certificate says anything to every port, beside eight streams of those who have one: none
of these fails, no process ends, and none keeps memory for it.

With --all for ten minutes, else for some seconds.
"""

import contextlib
import os
import random
import re
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest

from cluster import GIVE_UP_S, stop, wait_until
from test_live_certificates import LiveHouse, Streams

SECONDS = {"some seconds": float(os.environ.get("STRATA_STRANGERS_S", "20")), "ten minutes": 600}
AT_ONCE = 6
# What a process may keep beside what it had under the same streams alone.
MOST_KEPT_BYTES = 48 << 20

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, body):
    """A frame of HTTP/2 (RFC 9113)."""
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


class Stranger:
    """One after another: a connection to one of the ports, and something that no client of ours does there."""

    def __init__(self, ports, foreign, seed):
        self.ports, self.foreign = ports, foreign
        self.rng = random.Random(seed)
        self.held = []
        self.deeds = 0

    def run(self, ending):
        while not ending.is_set():
            deed = self.rng.choice([self.noise, self.silence, self.half_a_hello, self.frames, self.huge_head, self.storm,
                                    self.inside_tls, self.foreign_certificate, self.a_call])
            # Whatever becomes of it: refused, ended, or nothing at all.
            with contextlib.suppress(OSError, ValueError):
                deed()
            self.deeds += 1
            while len(self.held) > 40:
                self.held.pop(0).close()
        for connection in self.held:
            connection.close()

    def connect(self):
        connection = socket.create_connection(self.rng.choice(self.ports), timeout=5)
        connection.settimeout(1)
        return connection

    def tls(self, **files):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        if files:
            context.load_cert_chain(**files)
        connection = self.connect()
        try:
            return context.wrap_socket(connection)
        except OSError:
            connection.close()
            raise

    def end(self, connection):
        """What is said there is read, or not; some stay open."""
        with contextlib.suppress(OSError):
            if self.rng.random() < 0.5:
                connection.recv(4096)
        self.held.append(connection) if self.rng.random() < 0.2 else connection.close()

    def noise(self):
        connection = self.connect()
        connection.sendall(self.rng.randbytes(self.rng.choice([1, 100, 5000, 200_000])))
        self.end(connection)

    def silence(self):
        self.held.append(self.connect())

    def half_a_hello(self):
        connection = self.connect()
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.rng.randbytes(300)
        connection.sendall(hello[:self.rng.randrange(1, len(hello))])
        self.end(connection)

    def some_frames(self):
        return b"".join(frame(self.rng.randrange(12), self.rng.randrange(256), self.rng.choice([0, 1, 3, 2**31 - 1]),
                              self.rng.randbytes(self.rng.choice([0, 4, 8, 1000]))) for _ in range(50))

    def frames(self):
        connection = self.connect()
        connection.sendall(PREFACE + frame(4, 0, 0, b"") + self.some_frames())
        self.end(connection)

    def huge_head(self):
        connection = self.connect()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\n" + b"x-a: " + b"a" * 1_000_000 + b"\r\n\r\n")
        self.end(connection)

    def storm(self):
        for _ in range(20):
            self.connect().close()

    def inside_tls(self):
        connection = self.tls()
        connection.sendall(PREFACE + frame(4, 0, 0, b"") + self.some_frames())
        self.end(connection)

    def foreign_certificate(self):
        connection = self.tls(certfile=self.foreign / "cert.pem", keyfile=self.foreign / "key.pem")
        connection.sendall(PREFACE + frame(4, 0, 0, b"") + self.some_frames())
        self.end(connection)

    def a_call(self):
        """Whole requests of HTTP/2 whose streams are then reset, as fast as it goes."""
        connection = self.tls()
        head = (b"\x83\x87\x44\x1e/strata.v1.JoiningService/Join\x41\x01a\x5f\x10application/grpc\x40\x02te\x08trailers")
        body = b"\x00\x00\x00\x10\x00" + self.rng.randbytes(4096)
        said = b"".join(frame(1, 4, stream, head) + frame(0, 0, stream, body) + frame(3, 0, stream, b"\x00\x00\x00\x08")
                        for stream in range(1, 201, 2))
        connection.sendall(PREFACE + frame(4, 0, 0, b"") + said)
        self.end(connection)


def heap(process, http=None):
    """What it has allocated and not given back."""
    at = http or process.wait_for(r"^metrics listening on (\S+)").group(1)
    with urllib.request.urlopen(f"http://{at}/metrics", timeout=GIVE_UP_S) as page:
        return float(re.search(r"^strata_(?:worker_)?heap_bytes(?:{.*})? (\S+)$", page.read().decode(), re.M)[1])


class OpenHouse(LiveHouse):
    """Whose workers have metrics, which are one more port."""

    def run_worker(self, name, wait=True):
        self.flags = ("--metrics-listen", "127.0.0.1:0")
        try:
            return super().run_worker(name, wait)
        finally:
            self.flags = ()


@pytest.mark.parametrize("how_long", ["some seconds", pytest.param("ten minutes", marks=pytest.mark.long)])
def test_strangers_on_every_port_disturb_no_stream_and_fill_no_memory(tmp_path, how_long):
    with contextlib.ExitStack() as stack:
        house = OpenHouse(tmp_path)
        stack.callback(lambda: stop(house.processes))
        workers = [house.add_worker(name) for name in ("w0", "w1")]
        house.load()
        http = house.coordinator.wait_for(r"^http listening on (\S+)").group(1)
        addresses = [house.address, house.join_address, http]
        for worker in workers:
            addresses += [worker.wait_for(r"^listening on (\S+)").group(1),
                          worker.wait_for(r"^metrics listening on (\S+)").group(1)]
        ports = [(host, int(port)) for host, port in (address.rsplit(":", 1) for address in addresses)]
        foreign = tmp_path / "foreign"
        foreign.mkdir()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        "/O=home/OU=worker/CN=w0", "-keyout", foreign / "key.pem", "-out", foreign / "cert.pem"],
                       check=True, capture_output=True)

        def kept():
            return {"coordinator": heap(house.coordinator, http), **{worker.name: heap(worker) for worker in workers}}

        streams = Streams(house)
        ending = threading.Event()
        strangers = [Stranger(ports, foreign, seed) for seed in range(AT_ONCE)]
        threads = [threading.Thread(target=one.run, args=[ending]) for one in strangers]
        try:
            wait_until(lambda: len(streams.runs) >= 1, "the streams have run alone")
            before = kept()
            for thread in threads:
                thread.start()
            time.sleep(SECONDS[how_long])
        finally:
            ending.set()
            for thread in threads:
                if thread.ident:
                    thread.join()
            requests, wrong = streams.end()
        print(f"{sum(one.deeds for one in strangers)} deeds of strangers beside {requests} requests")
        assert requests >= 800 and not wrong, wrong
        assert all(one.deeds > 10 for one in strangers)
        assert all(process.process.poll() is None for process in (house.coordinator, *workers))
        # What held connections keep is given back once they have ended.
        wait_until(lambda: all(kept()[name] - was < MOST_KEPT_BYTES for name, was in before.items()), "nothing is kept")
        assert house.answers()[0]
