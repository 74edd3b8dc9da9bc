"""Our code as one archive, for executors that have our requirements but not our code.

Executors on other machines need the same version of Python with the packages of
`requirements.lock`, under the name in `spark.pyspark.python` (default: `python3`), or an archive of
such an environment by Spark's own means (`spark.archives`). Mars itself is sent with each session.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from mars.core.errors import Unavailable

PACKAGE = Path(__file__).parents[2]
"""The folder of the package `mars`: all that runs on executors is in it."""

EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time stamp of every file: equal code makes equal archives. ZIP begins there."""

KINDS = frozenset({".py", ".lua", ".properties"})


@functools.cache
def archive() -> Path:
    """A ZIP file with the package, in a temporary folder; the same code gives the same bytes.

    Raises Unavailable where it cannot be written.
    """
    folder = Path(tempfile.mkdtemp(prefix="mars-code-"))
    path = folder / f"mars-{fingerprint(PACKAGE)}.zip"
    try:
        write_archive(path, PACKAGE)
    except OSError as error:
        raise Unavailable(
            "spark", f"the code for executors cannot be written to {path} ({error.strerror})"
        ) from error
    return path


def write_archive(path: Path, package: Path) -> None:
    """Write the ZIP file of a package's folder. Raises OSError."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in files(package):
            name = file.relative_to(package.parent).as_posix()
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            zipped.writestr(entry, file.read_bytes())


def fingerprint(package: Path) -> str:
    """Twelve hex digits of what is in the archive."""
    digest = hashlib.sha256()
    for file in files(package):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def files(package: Path) -> Iterator[Path]:
    """The files of the package, in order of their names."""
    return iter(sorted(path for path in package.rglob("*") if path.suffix in KINDS))
