"""Certificates for this machine, which sign themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.conftest import need


def make_certificate(folder: Path, password: str = "") -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key, encrypted if there is a password."""
    need(None if shutil.which("openssl") else "There is no openssl; install it.")
    certificate, key = folder / "mars.pem", folder / "mars.key"
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2"),
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        *(("-passout", f"pass:{password}") if password else ("-nodes",)),
        *("-keyout", str(key), "-out", str(certificate)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
