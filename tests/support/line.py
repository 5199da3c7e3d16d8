"""A line to a server of this machine that can be cut, or go silent, and come back."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread

_HERE = "127.0.0.1"
_PIECE = 1 << 16


class Line:
    """Passes on what comes to `port`, both ways."""

    def __init__(self, server: int) -> None:
        """Listen at a port that is free, for a server at another one."""
        self._server, self._turn, self._flows = server, Lock(), Event()
        self._open = set[socket.socket]()
        self._flows.set()
        self._listening = socket.create_server((_HERE, 0))
        self.port: int = self._listening.getsockname()[1]
        self._listen()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Connections end, and new ones are refused, while the block runs."""
        self.end()
        yield
        self._listening = socket.create_server((_HERE, self.port))
        self._listen()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Connections stay, and nothing comes through, while the block runs."""
        self._flows.clear()
        yield
        self._flows.set()

    def end(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._turn:
            ended, self._open = self._open, set()
        for each in ended:
            _end(each)

    def _listen(self) -> None:
        Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.create_connection((_HERE, self._server))
                with self._turn:
                    self._open |= {client, server}
                for pair in ((client, server), (server, client)):
                    Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while piece := one.recv(_PIECE):
                self._flows.wait()
                other.sendall(piece)
        for each in (one, other):
            _end(each)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
