"""The job on YARN, submitted as `docs/where-it-runs.md` says, on a cluster of Hadoop's own tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.support.standalone import HOME, submit
from pipeline.client.create import create_all
from pipeline.client.producing.inbox import OutgoingMessage, send
from pipeline.client.subscribing.subscriptions import Subscription, subscribe
from pipeline.config.sparkversion import delta_package
from tests.support.cluster import node_python, package
from tests.support.invoked import output
from tests.support.jobs import PATIENCE_S, PROFILE, delivered, said, started, until
from tests.support.minicluster import yarn

COUNT = 3


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_job_on_yarn_delivers_and_ends_well(tmp_path: Path, mode: str) -> None:
    """The driver here, or in a container of the cluster; executors in containers, whose nodes have four packages."""
    warehouse, folder = tmp_path / "warehouse", tmp_path / "job"
    create_all(str(warehouse))
    subscribe(str(warehouse), Subscription("t", "s", tick_ms=1))
    shipped, python = package(tmp_path), node_python(tmp_path / "env")
    with yarn(tmp_path / "hadoop", 2) as conf:
        driver = sys.executable
        settings = {
            "spark.submit.deployMode": mode,
            "spark.yarn.jars": f"local:{HOME}/jars/*",
            "spark.driver.memory": "1g",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "2",
            "spark.executorEnv.PYSPARK_PYTHON": str(python),
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": driver,
            "spark.yarn.submit.waitAppCompletion": "true",
        }
        words = ["--py-files", str(shipped), str(shipped.parent / "jobs" / "deliver.py")]
        words += ["--profile", str(PROFILE), "--warehouse", str(warehouse)]
        variables = {"HADOOP_CONF_DIR": str(conf), "PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": driver}
        command = submit("yarn", [delta_package()], settings, words)
        with started(command, folder, **variables, SPARK_HOME=str(HOME), PYTHONPATH="") as job:
            until((warehouse / "_checkpoints/dispatch/offsets").exists, job, folder)
            send(str(warehouse), [OutgoingMessage("t", b"%d" % n, deliver_after_ms=500 * n) for n in range(COUNT)])
            until(lambda: len(delivered(warehouse)) >= COUNT, job, folder)
            output(str(warehouse), "stop")
            assert job.wait(timeout=PATIENCE_S) == 0, said(folder)
    assert delivered(warehouse) == [str(number) for number in range(COUNT)]
