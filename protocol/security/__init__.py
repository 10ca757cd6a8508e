"""Authentication and authorization without I/O: credentials, principals, and what they may do.

A peer shows [`Credentials`][onward.protocol.security.Credentials] in its SETUP. An authenticator of
`onward.actors.security` checks them and returns a
[`Principal`][onward.protocol.security.Principal].

```python
entry = format_credentials(BearerToken(b"onw_..."))
assert parse_credentials(entry) == BearerToken(b"onw_...")
```
"""

from ._attempts import Attempts
from ._credentials import (
    AUTHENTICATION_MIME,
    MAX_PASSWORD,
    MAX_TOKEN,
    MAX_USERNAME,
    BearerToken,
    Credentials,
    CustomCredentials,
    UserPassword,
    format_credentials,
    parse_credentials,
)
from ._errors import NOT_AUTHENTICATED, BadCredentials, NotAllowed, NotAuthenticated
from ._password_hash import (
    SALT_SIZE,
    PasswordHash,
    hash_password,
    parse_password_hash,
    verify_scrypt,
)
from ._principal import PeerIdentity, Principal
from ._principals_file import Account, Principals, PrincipalsLimits, read_principals
from ._remembered import Remembered
from ._token import TOKEN_BYTES, TOKEN_PREFIX, is_token, make_token, token_digest

__all__ = [
    "AUTHENTICATION_MIME",
    "MAX_PASSWORD",
    "MAX_TOKEN",
    "MAX_USERNAME",
    "NOT_AUTHENTICATED",
    "SALT_SIZE",
    "TOKEN_BYTES",
    "TOKEN_PREFIX",
    "Account",
    "Attempts",
    "BadCredentials",
    "BearerToken",
    "Credentials",
    "CustomCredentials",
    "NotAllowed",
    "NotAuthenticated",
    "PasswordHash",
    "PeerIdentity",
    "Principal",
    "Principals",
    "PrincipalsLimits",
    "Remembered",
    "UserPassword",
    "format_credentials",
    "hash_password",
    "is_token",
    "make_token",
    "parse_credentials",
    "parse_password_hash",
    "read_principals",
    "token_digest",
    "verify_scrypt",
]
