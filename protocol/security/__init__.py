"""Authentication and authorization without I/O: credentials, principals, and what they may do.

A peer shows [`Credentials`][onward.protocol.security.Credentials] in its SETUP. An authenticator of
`onward.actors.security` checks them and returns a
[`Principal`][onward.protocol.security.Principal]. [`Rules`][onward.protocol.security.Rules] decide
what it may register and request.

```python
entry = format_credentials(BearerToken(b"onw_..."))
assert parse_credentials(entry) == BearerToken(b"onw_...")

rules = read_rules("rule = [{roles = ['shop'], request = 'service=orders'}]")
shop = Principal("shop-1", "token", frozenset({"shop"}))
asked, _ = parse_patterns("service=orders region=eu")
assert rules.allows(shop, Action.REQUEST, asked)
```
"""

from ._attempts import Attempts
from ._callout import (
    format_callout,
    format_callout_answer,
    parse_callout,
    parse_callout_answer,
)
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
from ._errors import NOT_AUTHENTICATED, BadCredentials, BadKeySet, NotAllowed, NotAuthenticated
from ._jwt import (
    DEFAULT_ALGORITHMS,
    JWT_ALGORITHMS,
    MAX_KEYS,
    MAX_ROLES,
    JwtPolicy,
    UnverifiedJwt,
    inspect_jwt,
    looks_like_jwt,
    parse_jwt,
    parse_key_set,
    read_claims,
)
from ._password_hash import (
    SALT_SIZE,
    PasswordHash,
    hash_password,
    parse_password_hash,
    verify_scrypt,
)
from ._principal import ANONYMOUS, PeerIdentity, Principal
from ._principals_file import (
    Account,
    Principals,
    PrincipalsLimits,
    join_principals,
    principals_in,
    read_principals,
)
from ._remembered import Remembered
from ._rules import (
    MAX_NAME_PATTERNS,
    MAX_RULES,
    Action,
    Decision,
    Rule,
    Rules,
    TagPattern,
    add_forced_tags,
    parse_patterns,
)
from ._rules_file import MAX_RULES_FILE, contradictions, read_rules, rules_in
from ._token import TOKEN_BYTES, TOKEN_PREFIX, is_token, make_token, token_digest

__all__ = [
    "ANONYMOUS",
    "AUTHENTICATION_MIME",
    "DEFAULT_ALGORITHMS",
    "JWT_ALGORITHMS",
    "MAX_KEYS",
    "MAX_NAME_PATTERNS",
    "MAX_PASSWORD",
    "MAX_ROLES",
    "MAX_RULES",
    "MAX_RULES_FILE",
    "MAX_TOKEN",
    "MAX_USERNAME",
    "NOT_AUTHENTICATED",
    "SALT_SIZE",
    "TOKEN_BYTES",
    "TOKEN_PREFIX",
    "Account",
    "Action",
    "Attempts",
    "BadCredentials",
    "BadKeySet",
    "BearerToken",
    "Credentials",
    "CustomCredentials",
    "Decision",
    "JwtPolicy",
    "NotAllowed",
    "NotAuthenticated",
    "PasswordHash",
    "PeerIdentity",
    "Principal",
    "Principals",
    "PrincipalsLimits",
    "Remembered",
    "Rule",
    "Rules",
    "TagPattern",
    "UnverifiedJwt",
    "UserPassword",
    "add_forced_tags",
    "contradictions",
    "format_callout",
    "format_callout_answer",
    "format_credentials",
    "hash_password",
    "inspect_jwt",
    "is_token",
    "join_principals",
    "looks_like_jwt",
    "make_token",
    "parse_callout",
    "parse_callout_answer",
    "parse_credentials",
    "parse_jwt",
    "parse_key_set",
    "parse_password_hash",
    "parse_patterns",
    "principals_in",
    "read_claims",
    "read_principals",
    "read_rules",
    "rules_in",
    "token_digest",
    "verify_scrypt",
]
