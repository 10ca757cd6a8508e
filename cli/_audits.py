"""What is wrong with a broker according to a report about it, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ..protocol import counted
from ._columns import duration

__all__ = ["Finding", "Level", "audit", "is_local"]

FEW: Final = 100
"""Requests or connections below which a share says nothing."""

SUCCESS: Final = 0.99
SLOW: Final = 1.0
"""The 99th percentile of answers, in seconds, from which on a service counts as slow."""

FULL: Final = 0.5
"""The part of a mailbox from which on it counts as full."""

PENDING: Final = 1024 * 1024
"""Bytes that wait for a socket from which on its peer counts as slow."""

SHORT: Final = 10.0
"""The seconds below which a connection counts as short."""

MAX_FINDINGS: Final = 10
"""The maximum number of findings of one audit; the others are counted."""

_ORDERLY: Final = frozenset({"by the peer", "stopped", "drained", "by an operator"})

Parts = Mapping[str, Any]


class Level(Enum):
    """The weight of a finding."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    """Something that an audit has found.

    Attributes:
        level: How much it matters.
        audit: The name of the audit.
        text: What is wrong.
        advice: What to do.
    """

    level: Level
    audit: str
    text: str
    advice: str


def audit(parts: Parts) -> list[Finding]:
    """Return the findings of all audits, the worst first.

    An audit that cannot read its part finds that; a part that is missing has nothing wrong.

    Args:
        parts: The parts of the report, by name.
    """
    found: list[Finding] = []
    for name, look in _AUDITS.items():
        try:
            own = list(look(parts))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = f"the report does not say enough: {type(error).__name__} {error}"
            own = [Finding(Level.NOTE, name, text[:200], "make the report with a rule to read")]
        found += own[:MAX_FINDINGS]
        if len(own) > MAX_FINDINGS:
            text = f"and {len(own) - MAX_FINDINGS} more"
            found.append(Finding(own[MAX_FINDINGS].level, name, text, own[MAX_FINDINGS].advice))
    order = list(Level)
    return sorted(found, key=lambda each: order.index(each.level))


def _of(parts: Parts, name: str, key: str) -> Any:
    """Return what a part has; nothing if the part is missing."""
    part: Any = parts.get(name)
    return () if part is None else part[key]


def _rows(parts: Parts, name: str) -> Sequence[Mapping[str, Any]]:
    rows: Sequence[Mapping[str, Any]] = _of(parts, name, "rows")
    return rows


def _missing(parts: Parts) -> Iterator[Finding]:
    for name, why in parts["report"].get("missing", {}).items():
        yield Finding(
            Level.NOTE,
            "parts",
            f"the report has no {name}: {why}",
            "give the operator a rule with read = true and operate = true",
        )


def _problems(parts: Parts) -> Iterator[Finding]:
    levels = {"critical": Level.CRITICAL, "warning": Level.WARNING}
    for each in _of(parts, "problems", "problems"):
        subject = f"{each['subject']}: " if each["subject"] else ""
        level = levels.get(each["severity"], Level.NOTE)
        yield Finding(level, str(each["kind"]), f"{subject}{each['text']}", str(each["advice"]))


def _open_listeners(parts: Parts) -> Iterator[Finding]:
    for each in _of(parts, "statistics", "listeners"):
        uri = str(each["uri"])
        if is_local(uri):
            continue
        if uri.startswith(("rsocket+tcp:", "rsocket+ws:")):
            text = f"{uri} is reached from other machines, without TLS"
            yield Finding(Level.WARNING, "tls", text, "listen by rsocket+tls or rsocket+wss")
        if each.get("authentication") is None:
            text = f"{uri} admits each client that can connect"
            advice = "give the broker --principals, --jwt-keys or --callout, and --rules"
            yield Finding(Level.WARNING, "authentication", text, advice)


def is_local(uri: str) -> bool:
    """Whether a URI is of a Unix socket or of the loopback interface."""
    if uri.startswith("rsocket+unix:"):
        return True
    host = urlsplit(uri).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _services(parts: Parts) -> Iterator[Finding]:
    for each in _rows(parts, "services"):
        name, requests = each["service"], int(each["requests"])
        success, p99 = each.get("success"), each.get("p99")
        if success is not None and success < SUCCESS and requests >= FEW:
            text = f"{name}: {success * 100:.1f} % of its requests were answered"
            advice = f"`onward watch` tells of rejected ones, `onward resolve service={name}` why"
            yield Finding(Level.WARNING, "success", text, advice)
        if p99 is not None and p99 > SLOW:
            text = f"{name}: 1 % of its answers take longer than {duration(float(p99))}"
            advice = "look for the slow destination: `onward routes`, LATENCY and OUTSTANDING"
            yield Finding(Level.WARNING, "latency", text, advice)
        if each["busy"]:
            text = f"{name}: {int(each['busy'])} of {int(each['destinations'])} are overloaded"
            yield Finding(Level.WARNING, "busy", text, "add destinations, or send less")
        if int(each["destinations"]) == 1 and requests >= FEW and name != "onward.management":
            text = f"{name} has one destination: when it leaves, requests wait"
            yield Finding(Level.NOTE, "spare", text, "run a second one")


def _slow_peers(parts: Parts) -> Iterator[Finding]:
    for each in _rows(parts, "connections"):
        if int(each["pending_bytes"]) >= PENDING:
            text = f"{each['peer']}: {int(each['pending_bytes'])} bytes wait for its socket"
            advice = "it reads slowly: have it request fewer elements, or `onward kick` it"
            yield Finding(Level.WARNING, "slow peers", text, advice)


def _closed(parts: Parts) -> Iterator[Finding]:
    rows = _rows(parts, "connections-closed")
    reasons = Counter(str(each["reason"]) for each in rows)
    for reason, many in reasons.items():
        if reason not in _ORDERLY and many >= FEW:
            text = f"{counted(many, 'connection')} of the last {len(rows)} ended: {reason}"
            advice = f"`onward connections --closed --filter 'reason={reason}'` has their peers"
            yield Finding(Level.WARNING, "closed", text, advice)
    short = Counter(
        str(each.get("source"))
        for each in rows
        if float(each["closed"]) - float(each["opened"]) < SHORT
    )
    for source, many in short.items():
        if many >= FEW:
            text = f"{source} has opened and closed {many} connections within {SHORT:g} s each"
            advice = "keep one connection open; `onward check` and scrapes count, too"
            yield Finding(Level.NOTE, "short connections", text, advice)


def _waiting(parts: Parts) -> Iterator[Finding]:
    for each in _rows(parts, "waiting"):
        text = f"{counted(int(each['requests']), 'request')} for {each['query']} wait"
        advice = f"start a destination, or see what lacks: onward resolve '{each['query']}'"
        yield Finding(Level.WARNING, "waiting", text, advice)


def _workers(parts: Parts) -> Iterator[Finding]:
    for each in _rows(parts, "workers"):
        where = f"{each['address']} ({each['kind']})"
        if each["limit"] and int(each["waiting"]) >= FULL * int(each["limit"]):
            text = f"{where}: {each['waiting']} of {each['limit']} messages wait"
            yield Finding(Level.WARNING, "mailboxes", text, "it is slower than what it is sent")
        if int(each["failed"]) or int(each["restarts"]):
            text = f"{where}: {each['failed']} failures, {each['restarts']} restarts"
            yield Finding(Level.WARNING, "failures", text, "the log has the error of each")


def _letters(parts: Parts) -> Iterator[Finding]:
    reasons: Mapping[str, Any] = _of(parts, "dead-letters", "reasons") or {}
    for reason, many in reasons.items():
        text = f"{counted(int(many), 'message')} could not be delivered: {reason}"
        yield Finding(Level.NOTE, "dead letters", text, "`onward dead-letters --broker` has routes")


def _certificates(parts: Parts) -> Iterator[Finding]:
    for each in _of(parts, "statistics", "listeners"):
        tls: Any = each.get("tls") or {}
        if tls.get("failed_reloads"):
            text = f"{each['uri']}: {tls['failed_reloads']} reloads of its certificate failed"
            yield Finding(Level.WARNING, "certificates", text, "see the log, and `onward reload`")


_AUDITS: Final[dict[str, Callable[[Parts], Iterator[Finding]]]] = {
    "problems": _problems,
    "listeners": _open_listeners,
    "certificates": _certificates,
    "services": _services,
    "slow peers": _slow_peers,
    "closed": _closed,
    "waiting": _waiting,
    "workers": _workers,
    "dead letters": _letters,
    "parts": _missing,
}
