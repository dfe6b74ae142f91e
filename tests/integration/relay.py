"""A TCP relay on loopback that tests break, stall and hold."""

import select
import socket
import threading


class Relay:
    """Passes bytes between those who connect to `address` and `target`, which may be set later."""

    def __init__(self, target=None, hold_after=None):
        """`hold_after`: bytes towards a client after which its connection waits for release()."""
        self.target = target
        self.hold_after = hold_after
        self.held = threading.Event()  # Some connection waits.
        self.flowing = threading.Event()
        self.flowing.set()
        self.released = threading.Event()
        self.lock = threading.Lock()
        self.sockets = set()
        self.listener = None
        self.port = 0
        self.mend()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def mend(self):
        """Listens (again) on the same port."""
        self.flowing.set()
        if self.listener is None:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(("127.0.0.1", self.port))
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
        passed = 0
        try:
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for source in ready:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    self.flowing.wait()
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
            client.close()
            server.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()
