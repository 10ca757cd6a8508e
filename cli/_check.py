"""`onward check`: whether a broker is well, for a program that watches it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from ..protocol.metrics import Metric, MetricFamily, metrics_text
from ._access import Access, access_of
from ._arguments import Commands, positive, seconds
from ._broker_options import add_broker
from ._run import Interrupted, StopRequest, run
from ._show import printable
from ._status import CommandError, Status

if TYPE_CHECKING:
    from ..transports.client import Client

__all__ = ["Health", "Result", "Thresholds", "add_commands", "formatted"]

_DESCRIPTION: Final = """\
Check a running broker: connect to it, with TLS and credentials; measure the round trip of a
question; look at the end of its certificate; and ask whether it is ready.
"""

_EPILOG: Final = """\
exit status:
  0  ok
  1  warning: above a lower threshold, or the broker drains
  2  critical: no connection, no answer, above a higher threshold, or not ready
  3  unknown: the command line is wrong, or the broker does not tell
"""

DAY: Final = 86_400.0
"""The seconds of a day."""

MAX_TEXT: Final = 200
"""The maximum number of characters of a problem that the broker tells."""

_READY: Final = "/readyz?verbose"


class Health(IntEnum):
    """The result of a check, as programs that watch others know it; also the exit status."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3

    @property
    def rank(self) -> int:
        """The place in the order from good to bad: what is not known is worse than a warning."""
        return (0, 1, 3, 2)[self]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one check.

    Attributes:
        name: The name of the check.
        health: The result.
        text: What was found, in a few words.
        seconds: The time that was found; `None` if there is none.
        thresholds: The times from which on it is a warning, and critical.
    """

    name: str
    health: Health
    text: str
    seconds: float | None = None
    thresholds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The times from which on, or below which, something is wrong, in seconds.

    Attributes:
        connect: To connect: a warning, and critical.
        rtt: The round trip.
        certificate: The time left of the certificate.
    """

    connect: tuple[float, float]
    rtt: tuple[float, float]
    certificate: tuple[float, float]


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "check",
        help="check whether a broker is well, for a program that watches it",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=_command, usage_status=int(Health.UNKNOWN))
    add_broker(parser)
    for name, what, low, high in (
        ("connect", "the time to connect", 1.0, 3.0),
        ("rtt", "the round trip", 0.5, 1.0),
    ):
        for level, default in (("warn", low), ("critical", high)):
            parser.add_argument(
                f"--{name}-{level}",
                metavar="SECONDS",
                type=seconds,
                default=default,
                help=f"{what} from which on it is {_LEVELS[level]} (default %(default)g)",
            )
    for level, days in (("warn", 14), ("critical", 3)):
        parser.add_argument(
            f"--certificate-{level}",
            metavar="DAYS",
            type=seconds,
            default=float(days),
            help="the days left of the certificate below which it is "
            f"{_LEVELS[level]} (default %(default)g)",
        )
    parser.add_argument(
        "--requests",
        metavar="N",
        type=positive,
        default=3,
        help="round trips, of which the median counts (default %(default)s)",
    )
    parser.add_argument(
        "--format", choices=tuple(_FORMATS), default="text", help="the output (default %(default)s)"
    )


_LEVELS: Final = {"warn": "a warning", "critical": "critical"}


def _command(arguments: argparse.Namespace) -> None:
    results: list[Result] = []
    try:
        access = access_of(arguments)
        thresholds = _thresholds(arguments)
    except CommandError as error:
        results.append(Result("usage", Health.UNKNOWN, str(error)))
    else:

        async def work(stop: StopRequest) -> None:
            async def gather() -> None:
                checks = checked(
                    arguments.broker, arguments.timeout, access, thresholds, arguments.requests
                )
                async for result in checks:
                    results.append(result)  # noqa: PERF401 - what was found stays on a stop

            try:
                await stop.unless(gather())
            except Interrupted:
                results.append(Result("check", Health.UNKNOWN, "interrupted"))

        run(work)
    print(formatted(results, arguments.format, arguments.broker))
    raise SystemExit(int(worst(results)))


def _thresholds(arguments: argparse.Namespace) -> Thresholds:
    given = vars(arguments)
    pairs = {
        name: (given[f"{name}_warn"], given[f"{name}_critical"])
        for name in ("connect", "rtt", "certificate")
    }
    for name in ("connect", "rtt"):
        if pairs[name][0] > pairs[name][1]:
            raise CommandError(f"--{name}-warn is above --{name}-critical", Status.USAGE)
    low, high = pairs["certificate"]
    if low < high:
        raise CommandError("--certificate-warn is below --certificate-critical", Status.USAGE)
    return Thresholds(pairs["connect"], pairs["rtt"], (low * DAY, high * DAY))


async def checked(
    uri: str, timeout: float, access: Access, thresholds: Thresholds, requests: int
) -> AsyncGenerator[Result]:
    """Check a broker, and yield each result as it is found.

    Args:
        uri: The URI of the broker.
        timeout: The longest time to connect, and for each answer, in seconds.
        access: The certificates and credentials.
        thresholds: What is wrong.
        requests: The number of round trips.
    """
    from ._client import ask_of, connected

    began = time.perf_counter()
    name = "connect"
    try:
        async with connected(uri, timeout, access) as client:
            took = time.perf_counter() - began
            yield _timed(name, "connected", took, thresholds.connect)
            found = _certificate(client, thresholds.certificate)
            if found is not None:
                yield found
            name = "rtt"
            ask = ask_of(client, uri, timeout, access)
            times, answer = list[float](), None
            for _ in range(requests):
                began = time.perf_counter()
                answer = await ask(_READY)
                times.append(time.perf_counter() - began)
            yield _timed(name, "round trip", sorted(times)[len(times) // 2], thresholds.rtt)
            yield _readiness(answer)
    except CommandError as error:
        health = Health.UNKNOWN if error.status is Status.USAGE else Health.CRITICAL
        yield Result(name, health, str(error))


def _timed(name: str, what: str, took: float, thresholds: tuple[float, float]) -> Result:
    low, high = thresholds
    health = Health.CRITICAL if took >= high else Health.WARNING if took >= low else Health.OK
    return Result(name, health, f"{what} in {took * 1000:.1f} ms", took, thresholds)


def _certificate(client: Client, thresholds: tuple[float, float]) -> Result | None:
    """Return the result for the certificate of the broker; `None` without TLS."""
    from ..transports.streams._certificate_end import not_after

    certificate = client.peer_certificate()
    if certificate is None:
        return None
    end = not_after(certificate)
    if end is None:
        return Result("certificate", Health.UNKNOWN, "the end of the certificate cannot be read")
    left = end - time.time()
    low, high = thresholds
    health = Health.CRITICAL if left < high else Health.WARNING if left < low else Health.OK
    text = f"the certificate ends in {left / DAY:.0f} days" if left > 0 else "it has expired"
    return Result("certificate", health, text, left, thresholds)


def _readiness(answer: Any) -> Result:
    """Return the result for what a broker says of its readiness."""
    try:
        problems = [
            # The problem is told only to clients that may read the broker's state.
            (str(each["name"]), f": {each['problem']}" if "problem" in each else "")
            for each in answer["checks"]
            if not each["passed"]
        ]
        ready = bool(answer["passed"]) and not problems
    except (KeyError, TypeError):
        return Result("ready", Health.UNKNOWN, "the program of the broker does not say")
    if ready:
        return Result("ready", Health.OK, "ready")
    drains = [name for name, _ in problems] == ["draining"]
    text = "; ".join(name + problem for name, problem in problems)[:MAX_TEXT]
    health = Health.WARNING if drains else Health.CRITICAL
    return Result("ready", health, f"not ready: {text}")


def worst(results: list[Result]) -> Health:
    """Return the worst of several results."""
    return max((each.health for each in results), key=lambda each: each.rank)


# --- formats --------------------------------------------------------------------------------


def formatted(results: list[Result], name: str, broker: str) -> str:
    """Return results in a format.

    Args:
        results: The results, at least one.
        name: `text`, `nagios`, `json` or `prometheus`.
        broker: The URI of the broker.
    """
    return _FORMATS[name](results, broker)


def _as_text(results: list[Result], broker: str) -> str:
    lines = [f"{worst(results).name.lower()}: {printable(broker)}"]
    lines += [
        f"  {each.name:<12} {each.health.name.lower():<9} {printable(each.text)}"
        for each in results
    ]
    return "\n".join(lines)


def _as_nagios(results: list[Result], broker: str) -> str:
    """Return one line: the state, what is wrong first, and the figures behind a bar."""
    ordered = sorted(results, key=lambda each: -each.health.rank)
    told = ", ".join(each.text for each in ordered)
    figures = " ".join(
        f"{each.name}={each.seconds:.6f}s;{_range(each)}"
        for each in results
        if each.seconds is not None
    )
    # The bar separates the figures: no text of a peer may have one.
    line = printable(f"ONWARD {worst(results).name}: {told}").replace("|", "/")
    return f"{line} | {figures}" if figures else line


def _range(result: Result) -> str:
    if result.thresholds is None:
        return ";"
    low, high = result.thresholds
    # Monitoring Plugins, "Threshold and Ranges": "10:" alerts below 10.
    mark = ":" if low > high else ""
    return f"{low:.12g}{mark};{high:.12g}{mark}"


def _as_json(results: list[Result], broker: str) -> str:
    checks = [
        {"check": each.name, "status": each.health.name.lower(), "text": each.text}
        | ({} if each.seconds is None else {"seconds": each.seconds})
        for each in results
    ]
    found = {"broker": broker, "status": worst(results).name.lower(), "checks": checks}
    return json.dumps(found, indent=2)


_STATUS: Final = MetricFamily(
    "onward_check_status",
    "gauge",
    "The result of a check of a broker: 0 ok, 1 warning, 2 critical, 3 unknown.",
    ("broker", "check"),
)
_SECONDS: Final = MetricFamily(
    "onward_check_seconds",
    "gauge",
    "The time that a check has found: to connect, of a round trip, or left of the certificate.",
    ("broker", "check"),
)


def _as_prometheus(results: list[Result], broker: str) -> str:
    def series() -> Iterator[Metric]:
        states = [((broker, each.name), float(each.health)) for each in results]
        yield Metric(_STATUS, states)
        times = [
            ((broker, each.name), each.seconds) for each in results if each.seconds is not None
        ]
        yield Metric(_SECONDS, times)

    return "".join(metrics_text(series())).rstrip("\n")


_FORMATS: Final[dict[str, Callable[[list[Result], str], str]]] = {
    "text": _as_text,
    "nagios": _as_nagios,
    "json": _as_json,
    "prometheus": _as_prometheus,
}
