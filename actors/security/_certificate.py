"""The method `certificate`: the verified certificate of a peer."""

from __future__ import annotations

from dataclasses import replace

from ...protocol.security import (
    NotAuthenticated,
    PeerIdentity,
    Principal,
)
from ._transport_method import TransportMethod

__all__ = ["CertificateAuthenticator"]


class CertificateAuthenticator(TransportMethod):
    """The method for peers with a certificate that the transport has verified.

    With a file, the first name of the certificate that has an entry makes the principal; a peer
    without such a name is left to the next method. Without one, each peer with a certificate is
    accepted, by the first name in it: then the authorities that the listener trusts decide. The
    principal expires with the certificate.

    Args:
        file: The file with the names of certificates, or its path.
        roles: Without a file: the roles of each peer.
    """

    method = "certificate"

    def _find(self, peer: PeerIdentity) -> Principal | None:
        if self._file is None:
            if not peer.names:
                return None
            return Principal(peer.names[0], self.method, self._roles, expires=peer.expires)
        known = self._file.content.certificates
        found = [known[name] for name in peer.names if name in known]
        if any(account.disabled for account in found):
            raise NotAuthenticated("disabled")
        return _at_most_until(peer.expires, found[0].principal) if found else None


def _at_most_until(expires: float | None, principal: Principal) -> Principal:
    """Return a principal that expires no later than its certificate."""
    if expires is None or (principal.expires is not None and principal.expires <= expires):
        return principal
    return replace(principal, expires=expires)
