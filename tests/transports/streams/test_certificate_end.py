"""When a certificate ends: read from DER, whatever it has."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest
import trustme
from cryptography import x509

from onward.transports.streams._certificate_end import not_after, read_not_after


def element(tag: int, *content: bytes) -> bytes:
    body = b"".join(content)
    return bytes((tag, len(body))) + body


def certificate(end: bytes, *, version: bytes = b"", tag: int = 0x17) -> bytes:
    """What is read of a certificate, and nothing else."""
    validity = element(0x30, element(0x17, b"000101000000Z"), element(tag, end))
    number, nothing = element(0x02, b"\x01"), element(0x30)
    return element(0x30, element(0x30, version, number, nothing, nothing, validity))


@pytest.mark.parametrize("year", [2030, 2049, 2050, 2101, 9999])
def test_what_others_read(year: int) -> None:
    end = dt.datetime(year, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    made = trustme.CA().issue_cert("a.example", not_after=end)
    pem = made.cert_chain_pems[0].bytes()
    assert not_after(ssl.PEM_cert_to_DER_cert(pem.decode())) == end.timestamp()
    assert x509.load_pem_x509_certificate(pem).not_valid_after_utc == end


def test_the_first_of_a_file(tmp_path: Path) -> None:
    end = dt.datetime(2040, 2, 29, 1, 2, 3, tzinfo=dt.UTC)
    made = trustme.CA().issue_cert("a.example", not_after=end)
    path = tmp_path / "server.pem"
    authority = trustme.CA().cert_pem.bytes()
    path.write_bytes(b"caf\xe9\n" + made.private_key_and_cert_chain_pem.bytes() + authority)
    assert read_not_after(path) == end.timestamp()


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b"491231235959Z", "2049-12-31T23:59:59Z"),
        (b"500101000000Z", "1950-01-01T00:00:00Z"),
        (b"991231235959Z", "1999-12-31T23:59:59Z"),
    ],
)
def test_years_of_two_digits_and_a_certificate_without_a_version(text: bytes, end: str) -> None:
    for version in (b"", element(0xA0, element(0x02, b"\x02"))):
        wanted = dt.datetime.fromisoformat(end).timestamp()
        assert not_after(certificate(text, version=version)) == wanted


@pytest.mark.parametrize(
    "made",
    [
        certificate(b"4912312359Z"),
        certificate(b"491231235959+0100"),
        certificate(b"\xff" * 13),
        certificate(b"20491231235959Z", tag=0x04),
    ],
)
def test_what_is_unusual_is_unknown(made: bytes) -> None:
    assert not_after(made) is None


def test_a_certificate_that_is_cut_short() -> None:
    pem = trustme.CA().issue_cert("a.example").cert_chain_pems[0].bytes().decode()
    whole = ssl.PEM_cert_to_DER_cert(pem)
    end = not_after(whole)
    assert end is not None
    assert {not_after(whole[:size]) for size in range(len(whole))} == {None, end}


@pytest.mark.parametrize("text", ["", "nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n", None])
def test_files_without_a_certificate(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    if text is not None:
        path.write_text(text)
    assert read_not_after(path) is None
