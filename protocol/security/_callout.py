"""The question of a broker to a worker that authenticates its peers, and the answer, as CBOR.

```
question   {"peer": {"listener": "...", "source": "...", "names": [...], "digest": h'..',
                     "expires": null, "uid": null, "peer": "..."},
            "kind": "none" | "simple" | "bearer" | "custom", "name": "...",
            "padding": h'00..', "secret": h'..'}
accepted   {"name": "...", "roles": [...], "tags": {"key": "value"}, "expires": 1798761600.0}
refused    {"refused": true}
```

`name` of a question is the user name, or the name of a custom type. In an answer, all but the name
may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

from ..broker import TagSet, format_key, make_tags, tag_set
from ..payloads import CborCodec, PayloadError, PayloadLimits
from ._credentials import BearerToken, Credentials, CustomCredentials, UserPassword
from ._principal import PeerIdentity, Principal

__all__ = [
    "format_callout",
    "format_callout_answer",
    "parse_callout",
    "parse_callout_answer",
]

T = TypeVar("T")

PADDING: Final = 256
"""Bytes in front of the secret: no more of a payload is kept with a dead letter."""

MAX_NAME: Final = 255
MAX_ROLES: Final = 64

_CODEC: Final = CborCodec(PayloadLimits(size=64 * 1024, items=2000, depth=4))


def format_callout(credentials: Credentials | None, peer: PeerIdentity) -> bytes:
    """Return the question about a peer."""
    kind, name, secret = _parts(credentials)
    return _CODEC.encode(
        {
            "peer": {
                "listener": peer.listener,
                "source": peer.source,
                "names": list(peer.names),
                "digest": peer.digest,
                "expires": peer.expires,
                "uid": peer.user_id,
                "peer": peer.peer,
            },
            "kind": kind,
            "name": name,
            "padding": bytes(PADDING),
            "secret": secret,
        }
    )


def _parts(credentials: Credentials | None) -> tuple[str, str, bytes]:
    if credentials is None:
        return "none", "", b""
    if isinstance(credentials, UserPassword):
        return "simple", credentials.username, credentials.password.encode()
    if isinstance(credentials, BearerToken):
        return "bearer", "", credentials.token
    return "custom", credentials.type, credentials.payload


def parse_callout(payload: bytes) -> tuple[Credentials | None, PeerIdentity]:
    """Read a question: the credentials and the peer.

    Raises:
        PayloadError: It is no question.
    """
    asked = _map(_CODEC.decode(payload), "the question")
    kind, name = _get(asked, "kind", str), _get(asked, "name", str)
    secret = _get(asked, "secret", bytes)
    credentials: Credentials | None
    if kind == "none":
        credentials = None
    elif kind == "simple":
        credentials = UserPassword(name, _decoded(secret))
    elif kind == "bearer":
        credentials = BearerToken(secret)
    elif kind == "custom":
        credentials = CustomCredentials(name, secret)
    else:
        raise PayloadError("an unknown kind of credentials", "kind")
    return credentials, _peer(_map(asked.get("peer"), "peer"))


def _decoded(secret: bytes) -> str:
    try:
        return secret.decode()
    except UnicodeDecodeError:
        raise PayloadError("not UTF-8", "secret") from None


def _peer(fields: Mapping[str, Any]) -> PeerIdentity:
    user_id = fields.get("uid")
    return PeerIdentity(
        listener=_get(fields, "listener", str),
        source=_get(fields, "source", str),
        names=tuple(_texts(fields, "names")),
        digest=_get(fields, "digest", bytes),
        expires=_time(fields),
        user_id=None if user_id is None else _get(fields, "uid", int),
        peer=_get(fields, "peer", str),
    )


_ANSWER: Final = frozenset({"expires", "name", "refused", "roles", "tags"})
"""The keys of an answer."""


def format_callout_answer(principal: Principal | None) -> bytes:
    """Return the answer to a question: the principal of the peer; `None` refuses it."""
    if principal is None:
        return _CODEC.encode({"refused": True})
    tags = {format_key(key): value for key, value in principal.tags}
    return _CODEC.encode(
        {
            "name": principal.name,
            "roles": sorted(principal.roles),
            "tags": tags,
            "expires": principal.expires,
        }
    )


def parse_callout_answer(payload: bytes) -> Principal | None:
    """Read an answer: the principal of the method `callout`; `None` for a refusal.

    Raises:
        PayloadError: It is no answer.
    """
    answer = _map(_CODEC.decode(payload), "the answer")
    # A key with a spelling mistake would lose a tag that is forced, or a refusal.
    unknown = next((key for key in answer if key not in _ANSWER), None)
    if unknown is not None:
        shown = unknown if unknown.isprintable() else ascii(unknown)
        raise PayloadError("it is not known", shown[:64])
    refused = answer.get("refused", False)
    if not isinstance(refused, bool):
        raise PayloadError("not bool", "refused")
    if refused:
        return None
    name = _get(answer, "name", str)
    roles = _texts(answer, "roles") if "roles" in answer else []
    if len(roles) > MAX_ROLES:
        raise PayloadError(f"more than {MAX_ROLES}", "roles")
    if not all(map(_is_name, (name, *roles))):
        raise PayloadError(f"a name has 1 to {MAX_NAME} printable bytes", "name")
    return Principal(name, "callout", frozenset(roles), _tags(answer), _time(answer))


def _tags(answer: Mapping[str, Any]) -> TagSet:
    given = _map(answer.get("tags", {}), "tags")
    try:
        return tag_set(make_tags({key: _get(given, key, str) for key in given}))
    except PayloadError:
        raise
    except ValueError as error:
        raise PayloadError(str(error), "tags") from None


def _is_name(text: str) -> bool:
    return 0 < len(text.encode()) <= MAX_NAME and text.isprintable()


# --- fields ---------------------------------------------------------------------------------


def _map(value: object, field: str) -> dict[str, Any]:
    if isinstance(value, dict):
        keys = cast("dict[object, Any]", value)
        if all(isinstance(key, str) for key in keys):
            return cast("dict[str, Any]", keys)
    raise PayloadError("not a map with texts as keys", field)


def _get(fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = fields.get(name)
    if isinstance(value, kind) and not isinstance(value, bool):
        return value
    raise PayloadError(f"not {kind.__name__}", name)


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    listed = cast("list[object]", _get(fields, name, list))
    texts = [each for each in listed if isinstance(each, str)]
    if len(texts) < len(listed):
        raise PayloadError("not a list of texts", name)
    return texts


def _time(fields: Mapping[str, Any]) -> float | None:
    value = fields.get("expires")
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 10**12:
        return float(value)
    raise PayloadError("not a time in seconds since 1970", "expires")
