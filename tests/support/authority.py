"""Certificates that are replaced while they are in use."""

from __future__ import annotations

import os
from pathlib import Path

import trustme

__all__ = ["put_authorities", "put_certificate"]


def put_certificate(path: Path, authority: trustme.CA, *names: str) -> None:
    """Put a new certificate, with its key, in the place of a file, at once."""
    made = authority.issue_cert(*(names or ("127.0.0.1", "localhost", "::1")))
    _put(path, made.private_key_and_cert_chain_pem.bytes())


def put_authorities(path: Path, *authorities: trustme.CA) -> None:
    """Put these authorities in the place of a file, at once."""
    _put(path, b"".join(each.cert_pem.bytes() for each in authorities))


def _put(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)  # noqa: PTH105 - of one file system
