"""A Spark session as Holdfast wants it, and what to say when there can be none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import Missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA: Final = 17  # what Spark 4 needs at least
JAVA_SECONDS: Final = 30.0
DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.mode": "FAIR",  # the queries of a pipeline share the cores; a slow one does not hold up the others
    "spark.sql.adaptive.enabled": "false",  # micro-batches are small, and planning each of them twice costs
}
LOCAL: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),  # Spark's 200 are for a cluster
}
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def session(app_name: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session on `master` (default: this machine's cores, unless Spark was told otherwise); `conf` goes before all.

    Raises `Missing` if there is no Java, or one that is too old.
    """
    check_java(os.environ)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = dict(conf or {})
    local = (master or given.get("spark.master", "local")).startswith("local")
    settings = {**DEFAULTS, **(LOCAL if local else {}), **given}
    builder = SparkSession.builder.appName(app_name)
    if master is not None or "spark.master" not in given:
        builder = builder.master(master or "local[*]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    started = builder.getOrCreate()
    if local:
        started.sparkContext.setLogLevel("OFF")  # its errors reach us as exceptions
    return started


def check_java(environment: Mapping[str, str]) -> None:
    """Raises `Missing`, which says what to install."""
    home = environment.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if command is None:
        raise Missing(_advice("no `java` was found on the PATH, and JAVA_HOME is not set"))
    try:
        found = subprocess.run(  # noqa: S603  the Java that Spark will start too
            [command, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as problem:
        raise Missing(_advice(f"{command} does not run: {problem}")) from None
    version = _VERSION.search(found)
    if version is None or int(version[1]) < JAVA:
        what = found.splitlines()[0] if found else "nothing"
        raise Missing(_advice(f"{command} is too old ({what})"))


def _advice(problem: str) -> str:
    return (
        f"Spark needs Java {JAVA} or newer, and {problem}. "
        f"Install it (Debian: apt install openjdk-{JAVA}-jre-headless; macOS: brew install openjdk@{JAVA}) "
        "or set JAVA_HOME to where it is."
    )
