"""Rows of what is known of identities and adverts, for people or JSON."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..actors import MissingExtra
from ..protocol import OnwardError
from ._show import printable
from ._status import CommandError

if TYPE_CHECKING:
    from ..protocol.identity import Advert

__all__ = [
    "advert_rows",
    "content_rows",
    "failures",
    "identity_rows",
    "need_extra",
    "print_rows",
    "time_text",
]


def print_rows(rows: Mapping[str, object]) -> None:
    """Print rows for people."""
    for name, value in rows.items():
        print(printable(f"{name.replace('_', ' '):<12} {_shown(value)}").rstrip())


def _shown(value: object) -> str:
    if value is None:
        return "never"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "  ".join(map(str, cast("list[object]", value))) or "none"
    return str(value)


def advert_rows(text: str) -> dict[str, object]:
    """Return the rows of an advert, given as base64.

    Raises:
        CommandError: It is no advert, or its signature does not fit.
    """
    from ..protocol.identity import BadRecord, Verifiers, open_advert, parse_advert_envelope

    try:
        envelope = parse_advert_envelope(b64decode("".join(text.split()), validate=True))
        advert = open_advert(envelope, Verifiers())
    except (ValueError, BadRecord):
        raise CommandError("it is no advert, and there is no such file") from None
    if advert is None:
        raise CommandError("the signature of the advert does not fit")
    return {
        "advert": envelope.kind.name.lower(),
        **identity_rows(advert.identity),
        "signature": "fits",
        **content_rows(advert),
    }


def content_rows(advert: Advert) -> dict[str, object]:
    """Return the rows of what an advert says."""
    from ..protocol.identity import (
        DomainAdvert,
        EngineAdvert,
        NodeAdvert,
        TopicAdvert,
        identity_text,
        key_id,
    )

    rows: dict[str, object] = {
        "version": advert.version,
        "created": time_text(advert.created),
    }
    match advert:
        case NodeAdvert(addresses=addresses, kx=kx):
            rows["routes"] = [each.route for each in addresses]
            rows["sealing_key"] = key_id(kx).hex()
        case EngineAdvert(node=node, name=name):
            rows["node"] = identity_text(node)
            if name is not None:
                rows["worker"] = _name(name)
        case TopicAdvert(tags=tags, publishers=publishers, scope=scope):
            rows["tags"] = list(tags)
            rows["publishers"] = "any"
            if publishers is not None:
                rows["publishers"] = [identity_text(each) for each in publishers]
            rows["scope"] = scope.kind.name.lower()
        case DomainAdvert(nodes=nodes):
            rows["nodes"] = [identity_text(each) for each in nodes]
    return rows


def identity_rows(identity: bytes) -> dict[str, object]:
    """Return the rows of an identity."""
    from ..protocol.identity import identity_text, is_derived, parse_identity_bytes, short_text

    made = parse_identity_bytes(identity)
    return {
        "identity": identity_text(made),
        "short": short_text(made),
        "kind": "derived" if is_derived(made) else "key",
        "checksum": "fits",
    }


def time_text(ms: int) -> str:
    """Return a time in Unix milliseconds as text."""
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def need_extra() -> None:
    """Check that the extra for identities is installed.

    Raises:
        MissingExtra: It is not.
    """
    try:
        import_module("cryptography")
    except ImportError:
        raise MissingExtra("an identity", "identity") from None


@contextmanager
def failures(path: Path) -> Generator[None]:
    """Report what fails as one line, and the extra if that is what is missing."""
    need_extra()
    try:
        yield
    except OSError as error:
        raise CommandError(printable(f"{path}: {error.strerror}")) from error
    except OnwardError as error:
        raise CommandError(printable(str(error))) from error


def _name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.hex()
