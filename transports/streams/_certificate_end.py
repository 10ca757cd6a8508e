"""The time at which a certificate expires, which `ssl` does not tell of one's own certificate.

It reads only the path to that field in DER: RFC 5280, section 4.1. OpenSSL has accepted the
certificate before, so anything unusual is an unknown end and no error.
"""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime
from typing import Final

__all__ = ["not_after", "read_not_after"]

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"

_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_LONG_LENGTH: Final = 0x80


def read_not_after(path: str | os.PathLike[str]) -> float | None:
    """Return the end of the first certificate in a PEM file; `None` if there is none to be read."""
    try:
        with open(path, encoding="latin-1") as file:  # noqa: PTH123 - the path may be of any type
            _, begin, rest = file.read().partition(_BEGIN)
        body, end, _ = rest.partition(_END)
        return not_after(ssl.PEM_cert_to_DER_cert(begin + body + end))
    except (OSError, ValueError):
        return None


def not_after(certificate: bytes) -> float | None:
    """Return the end of a certificate in DER, in seconds since 1970; `None` if it is not read."""
    try:
        return _time(*_not_after(certificate))
    except (IndexError, ValueError):
        return None


def _not_after(certificate: bytes) -> tuple[int, bytes]:
    """Return the type and the text of the field `notAfter`."""
    _, at, _ = _element(certificate, 0)  # Certificate
    _, at, _ = _element(certificate, at)  # tbsCertificate
    # RFC 5280, section 4.1: "version [0] EXPLICIT Version DEFAULT v1", so it may be missing.
    tag, _, end = _element(certificate, at)
    if tag == _VERSION:
        at = end
    for _ in ("serialNumber", "signature", "issuer"):
        _, _, at = _element(certificate, at)
    _, at, _ = _element(certificate, at)  # validity
    _, _, at = _element(certificate, at)  # notBefore
    tag, at, end = _element(certificate, at)
    return tag, certificate[at:end]


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of an element of DER, and where its content begins and ends."""
    tag, length = data[at], data[at + 1]
    at += 2
    if length & _LONG_LENGTH:
        size = length & ~_LONG_LENGTH
        length, at = int.from_bytes(data[at : at + size]), at + size
    return tag, at, at + length


def _time(tag: int, text: bytes) -> float | None:
    if tag == _UTC_TIME:
        # RFC 5280, section 4.1.2.5.1: "Where YY is greater than or equal to 50, the year SHALL be
        # interpreted as 19YY; and where YY is less than 50, the year SHALL be interpreted as 20YY."
        text = (b"20" if text[:2] < b"50" else b"19") + text
    elif tag != _GENERALIZED_TIME:
        return None
    if len(text) != len("YYYYMMDDHHMMSSZ"):
        return None
    return datetime.strptime(text.decode("ascii"), "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
