"""`delayline web`: serve the page until somebody stops it."""

from __future__ import annotations

import os
import socket

import uvicorn

from jobs.niceness import be_nice
from jobs.terminal import echo
from jobs.web.app import Options, application
from jobs.web.guard import LOOPBACK, TOKEN
from jobs.withoutpandas import leave_out_pandas
from pipeline.config.errors import BadValue
from pipeline.delta.deltars import open_table
from schemas import MESSAGES

_BASE = "empty, or a path as /delayline"


def serve(root: str, host: str, port: int, base: str, *, allow_commands: bool) -> None:
    """Serve the page of a warehouse.

    Args:
        root: the warehouse.
        host: the address to listen at.
        port: the port; 0: any that is free.
        base: the path below which it is reached, behind a proxy.
        allow_commands: whether it offers actions.

    Raises:
        NoWarehouse: the folder has no messages.
        BadValue: the address is not the loopback and no token is set, or somebody else has the port.
    """
    leave_out_pandas()
    open_table(root, MESSAGES)
    token = os.environ.get(TOKEN) or None
    if host not in LOOPBACK and token is None:
        raise BadValue("host", host, f"{LOOPBACK[0]}; another address when the variable {TOKEN} holds a token")
    base = base.rstrip("/")
    if base and not base.startswith("/"):
        raise BadValue("base_path", base, _BASE)
    with _listening(host, port) as listener:
        address = f"[{host}]" if ":" in host else host
        echo(f"Page of {root} at http://{address}:{listener.getsockname()[1]}{base}/; stop with Ctrl-C")
        app = application(root, Options(host, base, token, allow_commands))
        config = uvicorn.Config(app, log_level="warning", root_path="", server_header=False, lifespan="off")
        be_nice()
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        BadValue: it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise BadValue("port", port, f"one that nobody listens at on {host} ({error.strerror})") from error
    return listener
