"""A TCP relay between one server and PostgreSQL, so that this one alone can be cut off."""

import socket
import threading


class Relay:
    """Passes bytes both ways until it is cut: then it passes none and answers nobody, as a broken network does."""

    def __init__(self, target: int):
        self.target = target
        self.through = threading.Event()
        self.through.set()
        self.lock = threading.Lock()
        self.open: set[socket.socket] = set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Passes nothing from now on."""
        self.through.clear()

    def mend(self) -> None:
        """Passes bytes again. What was open is reset, as by a router that forgot it."""
        with self.lock:
            gone, self.open = self.open, set()
        for sock in gone:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.through.set()

    def _accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self.through.wait()
        try:
            far = socket.create_connection(("127.0.0.1", self.target), 5)
            far.settimeout(None)
        except OSError:
            near.close()
            return
        with self.lock:
            self.open |= {near, far}
        for source, sink in ((near, far), (far, near)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self.through.wait()
                sink.sendall(data)
        except OSError:
            pass
        for sock in (source, sink):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        with self.lock:
            self.open -= {source, sink}
