"""Spark Connect, a store that speaks S3 and `delayline run`, each a process of its own, as beside a platform."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import environ
from pathlib import Path

import pyspark
import pytest

pytest.importorskip("moto", reason="the store needs requirements/all.lock")
pytest.importorskip("grpc", reason="Spark Connect needs requirements/all.lock")

from benchmarks.support.brokers import free_port
from pipeline.client.create import create_all
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.s3 import Store
from pipeline.config.session import CORRECTNESS
from pipeline.config.sparkversion import delta_package, hadoop, hadoop_aws
from pipeline.subscriptions.policies import Policies
from tests.support import jobs
from tests.support.connect import FAILS, KEPT, SENT, SUBSCRIPTION, TOPIC, client
from tests.support.modules import ROOT as TREE
from tests.support.s3 import named

ROOT, DELAY_MS = "s3a://bucket/beside", 20_000
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
OF_DELTA = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server as `docs/beside-a-platform.md` starts it, on the loopback; the address."""
    port = free_port()
    settings = Store.of(environ).hadoop() | {name: CORRECTNESS[name] for name in OF_DELTA}
    settings |= {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--class", SERVER]
    stated = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    packages = ["--packages", f"{delta_package()},{hadoop_aws(hadoop())}", "spark-internal"]
    variables = {"PYTHONPATH": str(TREE), "PYSPARK_PYTHON": sys.executable}
    with jobs.started([*submit, *stated, *packages], folder, **variables) as server:
        jobs.until(lambda: answers(port), server, folder)
        yield f"sc://127.0.0.1:{port}"


def answers(port: int) -> bool:
    """Whether somebody listens to a port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_a_client_of_connect_works_on_a_bucket_beside_the_job(tmp_path: Path) -> None:
    """It sends, cancels, follows, acknowledges, and what it says has failed comes again."""
    command = jobs.module("cli", "run", "--warehouse", ROOT)
    with named("bucket"), connect_server(tmp_path / "server") as address:
        create_all(ROOT)
        subscribe(ROOT, Subscription(TOPIC, SUBSCRIPTION, tick_ms=1, policies=Policies(ack=True)))
        with jobs.started(command, tmp_path / "job", PYTHONPATH=str(TREE)) as job:
            jobs.until(lambda: "Running on" in jobs.said(tmp_path / "job"), job, tmp_path / "job")
            with client(address, ROOT, DELAY_MS) as program:
                assert program("append") == len(SENT)
                jobs.until(lambda: program("accepted") == len(SENT), job, tmp_path / "job")
                assert program("cancel") == 1
                jobs.until(lambda: program("keys") == [FAILS, KEPT], job, tmp_path / "job")
                assert program("follow") == [FAILS, KEPT]
                assert program("fail") == 1
                jobs.until(lambda: program("keys") == [FAILS, FAILS, KEPT], job, tmp_path / "job")
