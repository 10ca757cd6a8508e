"""Certificates of an authority of the tests' own."""

from __future__ import annotations

import datetime as dt
import hashlib
import ssl
from dataclasses import dataclass, replace
from pathlib import Path

import trustme

from onward.transports import TlsOptions

__all__ = ["Certificates"]


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of certificates, and options made of them."""

    folder: Path
    authority: Path
    server: Path
    client: Path
    expired: Path
    stranger: Path

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """Make them in a folder."""
        ours, other = trustme.CA(), trustme.CA()
        long_ago = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
        names = ("authority", "server", "client", "expired", "stranger")
        made = cls(folder, *(folder / f"{name}.pem" for name in names))
        ours.cert_pem.write_to_path(str(made.authority))
        for path, certificate in (
            (made.server, ours.issue_cert("127.0.0.1", "localhost", "::1")),
            (made.client, ours.issue_cert("client.example", common_name="Client One")),
            (made.expired, ours.issue_cert("127.0.0.1", not_after=long_ago)),
            (made.stranger, other.issue_cert("127.0.0.1", "client.example")),
        ):
            certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
        return made

    def digest(self, path: Path) -> bytes:
        """The SHA-256 of the certificate in a file."""
        _, mark, rest = path.read_text().partition("-----BEGIN CERTIFICATE-----")
        first, end, _ = rest.partition("-----END CERTIFICATE-----")
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(mark + first + end)).digest()

    @property
    def listener(self) -> TlsOptions:
        """Anybody may connect."""
        return TlsOptions(certificate=self.server)

    @property
    def strict(self) -> TlsOptions:
        """Who has a certificate of ours may connect."""
        return TlsOptions(certificate=self.server, authority=self.authority, client="required")

    @property
    def lenient(self) -> TlsOptions:
        """A client may connect with a certificate of ours, or with none."""
        return replace(self.strict, client="optional")

    @property
    def anonymous(self) -> TlsOptions:
        """A client without a certificate."""
        return TlsOptions(authority=self.authority)

    @property
    def named(self) -> TlsOptions:
        """A client with one."""
        return TlsOptions(authority=self.authority, certificate=self.client)
