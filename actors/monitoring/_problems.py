"""What is wrong with a node and its broker, found in figures of two moments.

The functions are pure: a monitor takes the figures, and the console, the API and commands show what
is found in them. Each problem says what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ...protocol import counted
from ...protocol.metrics import BUCKETS
from ..broker._reports import LimitUse

__all__ = ["Observation", "Problem", "Severity", "find_problems"]

CERTIFICATE_WARNING: Final = 21.0
"""The days before the end of a certificate from which on it is a problem: two thirds of the usual
90 days are over a week before."""

CERTIFICATE_CRITICAL: Final = 3.0
"""The days before the end of a certificate from which on it is a critical problem."""

LIMIT_SHARE: Final = 0.8
"""The share of a limit above which its use is a problem."""

LAG: Final = 0.25
"""The seconds that the event loop may be held; the next bound of a bucket counts."""

REJECTED_SHARE: Final = 0.01
"""The share of requests without a destination above which there is a problem."""

REJECTED_CRITICAL: Final = 0.1
"""The share of requests without a destination above which the problem is critical."""

ERROR_SHARE: Final = 0.05
"""The share of requests that a destination has answered with an error, or not at all, above which
there is a problem."""

OLDEST_WAIT: Final = 10.0
"""The seconds that a request may wait for a destination."""

_DAY: Final = 86_400.0
_LAG_BUCKET: Final = next(at for at, bound in enumerate(BUCKETS) if bound >= LAG)


class Severity(Enum):
    """The weight of a problem."""

    CRITICAL = "critical"
    """Requests fail now, or will soon."""

    WARNING = "warning"
    """Something to look after before requests fail."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong.

    Attributes:
        severity: How much it matters.
        kind: Its name, which stays the same in later versions, such as `certificate`.
        subject: What it is about: a listener, a limit, a check; or empty.
        text: What is wrong, in a sentence.
        advice: What to do about it, in a sentence or two.
    """

    severity: Severity
    kind: str
    subject: str
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class Observation:
    """The figures of a node and its broker at one moment. Counts are since the start.

    Attributes:
        at: The time, in seconds since 1970.
        failed_checks: The problem of each failed health check, by its stage and name.
        reload_error: The text of the last reload, if it was refused.
        certificates: The time at which the certificate of a listener expires, by listener.
        limits: The limits by the listener that they belong to, which may be empty.
        lags: How often the event loop was held, by the buckets of `Durations`.
        ended: Requests that have ended.
        rejected: Of those, the ones that no destination could take.
        failed: Of those, the ones that a destination has answered with an error, or not at all.
        oldest_wait: How long the oldest waiting request has waited, in seconds.
        peers: The other brokers of the cluster that are not reached, or with routes not in use:
            name, state, reason, and the broker that has told of it, or an empty text.
        counts: Other counts, by the kind of problem and its subject.
    """

    at: float
    failed_checks: Mapping[str, str] = field(default_factory=dict[str, str])
    reload_error: str = ""
    certificates: Mapping[str, float] = field(default_factory=dict[str, float])
    limits: tuple[tuple[str, LimitUse], ...] = ()
    lags: tuple[int, ...] = ()
    ended: int = 0
    rejected: int = 0
    failed: int = 0
    oldest_wait: float = 0.0
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    peers: tuple[tuple[str, str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Counted:
    """A problem that is a count above zero.

    Attributes:
        noun: What is counted, in the singular.
        verb: What has happened to each.
        advice: What to do.
    """

    noun: str
    verb: str
    advice: str


_COUNTED: Final = {
    "lost": _Counted(
        "request",
        "lost with a destination that left or failed",
        "See in the events which destinations leave, and let them drain before they stop.",
    ),
    "slow-peers": _Counted(
        "connection",
        "closed because the peer did not read",
        "See the closed connections for the peers. A client that asks for more than it can take "
        "should request less at a time; flow.high_water and flow.max_pending are the limits.",
    ),
    "authentication": _Counted(
        "peer",
        "refused by authentication",
        "The log has the cause and the source of each. Many from one source are guesses, or a "
        "client with old credentials.",
    ),
    "bans": _Counted(
        "connection",
        "closed at once for the failures of its source",
        "The log has the sources. Clients behind one address share its failures: with a balancer "
        "in front, use the PROXY protocol.",
    ),
    "events": _Counted(
        "event",
        "lost by the list of recent events",
        "The event loop is too busy to take them in time; see the lag.",
    ),
    "event-log": _Counted(
        "record",
        "not written to the event log",
        "See that its disk has room and keeps up; a larger buffer helps only against bursts.",
    ),
    "failures": _Counted(
        "failure",
        "of workers",
        "The log has the traceback of each; the page of workers shows which ones restart.",
    ),
}
"""The problems that are counts, in the order in which they are shown."""


def find_problems(now: Observation, before: Observation | None = None) -> tuple[Problem, ...]:
    """Return what is wrong, critical problems first.

    Args:
        now: The figures now.
        before: The figures at the start of the time that is looked at; `None`: at the start of the
            program.
    """
    earlier = before or Observation(now.at)
    found = (
        *_of_state(now),
        *_of_certificates(now),
        *_of_limits(now),
        *_of_requests(now, earlier),
        *_of_loop(now, earlier),
        *_of_peers(now),
        *_of_counts(now, earlier),
    )
    return tuple(sorted(found, key=lambda each: each.severity is not Severity.CRITICAL))


def _of_state(now: Observation) -> Iterator[Problem]:
    for name, problem in now.failed_checks.items():
        yield Problem(
            Severity.CRITICAL,
            "not-ready",
            name,
            f"The check {name} has failed: {problem}.",
            "Load balancers send no new clients here until it passes.",
        )
    if now.reload_error:
        yield Problem(
            Severity.WARNING,
            "reload-failed",
            "",
            f"The last reload was refused, and nothing has changed: {now.reload_error}.",
            "Mend the file and reload again; the old settings stay in effect.",
        )


def _of_certificates(now: Observation) -> Iterator[Problem]:
    for listener, not_after in now.certificates.items():
        days = (not_after - now.at) / _DAY
        if days > CERTIFICATE_WARNING:
            continue
        severity = Severity.CRITICAL if days <= CERTIFICATE_CRITICAL else Severity.WARNING
        if days > 0:
            text = f"The certificate expires in {_days(days)}."
        else:
            text = "The certificate has expired: clients refuse it."
        advice = "Replace the files of the certificate and its key, and reload."
        yield Problem(severity, "certificate", listener, text, advice)


def _days(days: float) -> str:
    return counted(int(days), "day") if days >= 1 else "less than a day"


def _of_limits(now: Observation) -> Iterator[Problem]:
    for listener, use in now.limits:
        if use.limit <= 0 or use.used <= LIMIT_SHARE * use.limit:
            continue
        share = use.used / use.limit
        full = share >= 1
        yield Problem(
            Severity.CRITICAL if full else Severity.WARNING,
            "limit",
            " of ".join(filter(None, (use.name, listener))),
            f"{100 * share:.0f} % of {use.name} are used: {use.used:g} of {use.limit:g}.",
            "More is refused. " * full + "Find what uses it, or raise the limit if there is memory "
            "and a processor for more.",
        )


def _of_requests(now: Observation, before: Observation) -> Iterator[Problem]:
    ended, rejected = now.ended - before.ended, now.rejected - before.rejected
    if rejected > REJECTED_SHARE * ended:
        share = rejected / max(ended, rejected)
        severity = Severity.CRITICAL if share > REJECTED_CRITICAL else Severity.WARNING
        yield Problem(
            severity,
            "rejected",
            "",
            f"{100 * share:.1f} % of the requests had no destination that could take them: "
            f"{rejected} of {max(ended, rejected)}{_within(now, before)}.",
            "The events have their queries. Ask `resolve` for one of them: it says which tags the "
            "destinations lack.",
        )
    failed = now.failed - before.failed
    if failed > ERROR_SHARE * ended:
        yield Problem(
            Severity.WARNING,
            "errors",
            "",
            f"{100 * failed / max(ended, failed):.1f} % of the requests ended with an error of "
            f"their destination: {failed} of {max(ended, failed)}{_within(now, before)}.",
            "See which service has the low share of success; its own log has the cause.",
        )
    if now.oldest_wait > OLDEST_WAIT:
        yield Problem(
            Severity.WARNING,
            "oldest-wait",
            "",
            f"A request has waited for a destination for {now.oldest_wait:.0f} s.",
            "See which queries wait: no destination carries their tags, or all are at their limit.",
        )


def _of_loop(now: Observation, before: Observation) -> Iterator[Problem]:
    held = sum(now.lags[_LAG_BUCKET + 1 :]) - sum(before.lags[_LAG_BUCKET + 1 :])
    if held > 0:
        yield Problem(
            Severity.WARNING,
            "loop-lag",
            "",
            f"The event loop was held for more than {BUCKETS[_LAG_BUCKET]:.2f} s "
            f"{counted(held, 'time')}{_within(now, before)}.",
            "All requests stood still meanwhile. The processor is too busy, or a handler blocks: "
            "take a profile.",
        )


def _of_peers(now: Observation) -> Iterator[Problem]:
    for name, state, reason, reported_by in now.peers:
        why = f": {reason}" if reason else ""
        if reported_by:
            text = f"{name} is reported by {reported_by} and cannot be reached{why}."
        elif state == "connecting":
            text = f"{name} cannot be reached{why}."
        else:
            text = f"The destinations at {name} get no requests from here; it is {state}{why}."
        yield Problem(
            Severity.WARNING,
            "peer",
            name,
            text,
            "No third broker relays: clients here do without its destinations. See the log of both "
            "brokers, and whether its URI is a seed or allowed.",
        )


def _of_counts(now: Observation, before: Observation) -> Iterator[Problem]:
    for kind, it in _COUNTED.items():
        for (of, subject), total in now.counts.items():
            count = total - before.counts.get((of, subject), 0)
            if of == kind and count > 0:
                text = f"{counted(count, it.noun)} {it.verb}{_within(now, before)}."
                yield Problem(Severity.WARNING, kind, subject, text, it.advice)


def _within(now: Observation, before: Observation) -> str:
    seconds = now.at - before.at
    if seconds <= 0:
        return " since the start"
    if seconds < 90:
        return f" in the last {seconds:.0f} s"
    return f" in the last {counted(round(seconds / 60), 'minute')}"
