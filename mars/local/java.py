"""The Java machine of the servers, and the jars that come with pyspark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mars.core.errors import LocalClusterError
from mars.core.extras import not_installed
from mars.core.java import find_java, java_identity, java_version

__all__ = ["find_java", "java_identity", "java_version", "pyspark_jar", "pyspark_jars"]


def pyspark_jars() -> Path:
    """The folder of pyspark's jars: ZooKeeper and Ivy are among them."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise LocalClusterError(not_installed("pyspark", "cluster"))
    return Path(spec.origin).parent / "jars"


def pyspark_jar(pattern: str) -> Path:
    """The one jar of pyspark's whose name fits `pattern` (as `ivy-*.jar`)."""
    found = sorted(pyspark_jars().glob(pattern))
    if not found:
        raise LocalClusterError(f"pyspark's jars hold no {pattern}; reinstall pyspark.")
    return found[0]
