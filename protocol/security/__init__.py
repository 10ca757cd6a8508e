"""Authentication and authorization without I/O: credentials, principals, and what they may do.

A peer shows [`Credentials`][onward.protocol.security.Credentials] in its SETUP. An authenticator of
`onward.actors.security` checks them and returns a
[`Principal`][onward.protocol.security.Principal].

```python
entry = format_credentials(BearerToken(b"onw_..."))
assert parse_credentials(entry) == BearerToken(b"onw_...")
```
"""

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
from ._errors import BadCredentials, NotAllowed, NotAuthenticated
from ._principal import PeerIdentity, Principal

__all__ = [
    "AUTHENTICATION_MIME",
    "MAX_PASSWORD",
    "MAX_TOKEN",
    "MAX_USERNAME",
    "BadCredentials",
    "BearerToken",
    "Credentials",
    "CustomCredentials",
    "NotAllowed",
    "NotAuthenticated",
    "PeerIdentity",
    "Principal",
    "UserPassword",
    "format_credentials",
    "parse_credentials",
]
