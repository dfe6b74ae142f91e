"""A TCP relay that tests break, stall, slow down and hold."""

import random
import select
import socket
import threading
import time


class Relay:
    """Passes bytes between those who connect to `address` and `target`, which may be set later."""

    def __init__(self, target=None, hold_after=None, host="127.0.0.1", port=0):
        """`hold_after`: bytes towards a client after which its connection waits for release(). `port`: 0 for any."""
        self.target = target
        self.hold_after = hold_after
        self.delay_s = 0.0  # What each piece of data waits for.
        self.flip = 0.0  # Chance that a piece of data arrives with one wrong bit.
        self.rng = random.Random(1)
        self.held = threading.Event()  # Some connection waits.
        self.flowing = threading.Event()
        self.flowing.set()
        self.released = threading.Event()
        self.lock = threading.Lock()
        self.sockets = set()
        self.servers = set()  # Those of them that lead to the target.
        self.half_closed = set()
        self.listener = None
        self.host = host
        self.port = port
        self.mend()

    @property
    def address(self):
        return f"{self.host}:{self.port}"

    def mend(self):
        """Listens (again) on the same port."""
        self.flowing.set()
        if self.listener is None:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind((self.host, self.port))
            self.listener.listen(64)
            self.port = self.listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def cut(self):
        """Ends every connection; new ones are refused."""
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self.lock:
            for s in self.sockets:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def half_close(self):
        """The target's end of every connection closes; the other end is not told, and goes on."""
        with self.lock:
            for server in self.servers:
                self.half_closed.add(server)
                try:
                    server.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def stall(self):
        """Connections stay, and new ones are taken, but nothing passes."""
        self.flowing.clear()

    def release(self):
        self.released.set()

    def close(self):
        self.released.set()
        self.flowing.set()
        self.cut()

    def _accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        host, port = self.target.rsplit(":", 1)
        try:
            server = socket.create_connection((host, int(port)))
        except OSError:
            client.close()
            return
        with self.lock:
            self.sockets |= {client, server}
            self.servers.add(server)
        passed = 0
        try:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for source in ready:
                    data = source.recv(1 << 16)
                    if not data and source is server and server in self.half_closed:
                        while client.recv(1 << 16):
                            pass
                    if not data:
                        return
                    self.flowing.wait()
                    time.sleep(self.delay_s)
                    if self.rng.random() < self.flip:
                        at = self.rng.randrange(len(data))
                        wrong = bytes([data[at] ^ (1 << self.rng.randrange(8))])
                        data = data[:at] + wrong + data[at + 1:]
                    if source is server and self.hold_after is not None:
                        passed += len(data)
                        if passed > self.hold_after and not self.released.is_set():
                            self.held.set()
                            self.released.wait()
                    (client if source is server else server).sendall(data)
        except OSError:
            pass
        finally:
            with self.lock:
                self.sockets -= {client, server}
                self.servers.discard(server)
                self.half_closed.discard(server)
            client.close()
            server.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
