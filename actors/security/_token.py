"""The method `token`: bearer tokens of this broker, known by their digests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...protocol.security import (
    BearerToken,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    is_token,
    token_digest,
)
from ._authenticator import Authenticator
from ._principals_file import PrincipalsFile

__all__ = ["TokenAuthenticator"]


class TokenAuthenticator(Authenticator):
    """The method for tokens that `onward token new` has made.

    It decides on bearer tokens that begin with `onw_`. Others may be a JWT.

    Args:
        file: The file with the digests of the tokens, or its path.
    """

    method = "token"

    def __init__(self, file: PrincipalsFile | str | Path) -> None:
        self._file = file if isinstance(file, PrincipalsFile) else PrincipalsFile(file)

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        """Return the principal of a token, or `None` for other credentials.

        Raises:
            NotAuthenticated: The token is unknown, or disabled.
        """
        if not isinstance(credentials, BearerToken) or not is_token(credentials.token):
            return None
        account = self._file.content.tokens.get(token_digest(credentials.token))
        if account is None:
            raise NotAuthenticated("unknown")
        if account.disabled:
            raise NotAuthenticated("disabled")
        return account.principal

    def readmit(self, principal: Principal, peer: PeerIdentity) -> Principal | None:
        """Return the principal of the entry of its token, if it is there and not disabled."""
        account = self._file.content.tokens.get(principal.entry)
        return None if account is None or account.disabled else account.principal

    async def prepare_reload(self) -> Callable[[], object]:
        """Read the file again."""
        return await self._file.prepare_reload()
