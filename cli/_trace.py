"""`onward trace`: one message along a route, and its outcome at each hop."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ..actors import Node
from ..actors.tracing import HopTracer, Trace, TraceClock, TraceOptions, trace
from ..actors.tracing._rows import trace_row
from ..protocol import OnwardError, Route, read_error_reply
from ..protocol.broker import parse_address_query
from ._access import access_of, add_credentials, credentials_for_node
from ._arguments import Commands, no_log, route as route_argument, seconds
from ._context import add_context
from ._join import Way, add_way, reach_by, way_of
from ._payload import PayloadNotation, add_arguments, payload_of
from ._run import StopRequest, run
from ._show import printable, table
from ._status import CommandError, Status, status_of
from ._trace_picture import brief_route, picture_of, text_of, worker_of
from ._trace_sight import Sight, sights_of
from ._trace_svg import draw
from ._trace_way import KnownWay, WayWatch

__all__ = ["OWN", "add_commands", "follow", "raise_for", "show"]

OWN: Final = "trace"
"""Name of the command's own node."""

_DESCRIPTION: Final = """\
Send one message along a route, marked so that the nodes on the route report each hop; wait for
the answer, and print the hops in order, with times, as a table and as a drawing.

Only nodes that trace report: `onward node --trace`, `onward broker --trace`, `onward dispatch
--trace`, nodes of a topology, and nodes of programs with a HopTracer. The others pass the mark on,
so that the nodes behind them report. Gaps in the reports are shown.

For a route to an identity, as in 36#engine:... or 36#relay:... => 36#engine:..., it says what each
hop can see, the relays that the node itself has chosen included, and which nodes were asked for the
way. A sealed message cannot be added to on its way, and its answer has a way that can be used once:
so relays and what is behind them report no hops.
"""

_EPILOG: Final = """\
exit status:
  0  the answer came
  1  certainly not delivered
  2  the command line is wrong
  3  in doubt: no answer in time, or the drawing could not be written

example:
  onward node --worker relay=forward --worker echo=echo --expose relay --allow echo --trace
  onward trace '1#127.0.0.1:4000 => relay => echo' hello --svg trace.svg
  onward trace '@shard=user service=orders user=42' hello --broker rsocket+tcp://127.0.0.1:8001
"""

_ROUTE: Final = (
    "the route: addresses TYPE#VALUE with => between, as in '1#127.0.0.1:4000 => echo'; with "
    "--broker: tags, as for `onward request`"
)


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "trace",
        help="follow a message along a route, hop by hop",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Its form depends on --broker, which may come later.
    parser.add_argument("route", metavar="ROUTE", help=_ROUTE)
    parser.set_defaults(refuse=parser.error)
    add_arguments(parser)
    add_way(parser)
    parser.add_argument(
        "--broker",
        metavar="URI",
        help="trace a request of an RSocket client through this broker, which runs with --trace, "
        "by any of the URIs it listens at",
    )
    add_context(parser)
    add_credentials(parser)
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=5.0,
        help="how long to wait for the answer (default %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--svg", metavar="FILE", help="draw it into this file as well")
    parser.set_defaults(command=_command)


def _command(arguments: argparse.Namespace) -> None:
    try:
        work = _traced(arguments)
    except argparse.ArgumentTypeError as error:
        arguments.refuse(f"argument ROUTE: {error}")
        return

    async def trace_it(stop: StopRequest) -> None:
        if arguments.svg is not None:
            _open(arguments.svg)
        traced, lost, known = await stop.unless(work())
        if arguments.json:
            print(json.dumps(_row(traced, known), indent=2))
        else:
            print(show(traced, arguments.form, known))
        if arguments.svg is not None:
            _write(arguments.svg, draw(picture_of(traced, OWN, known.lines())))
        if lost is not None:
            raise CommandError(printable(str(lost)), status_of(lost))
        raise_for(traced, arguments.timeout)

    with no_log("onward"):
        run(trace_it)


def _traced(
    arguments: argparse.Namespace,
) -> Callable[[], Coroutine[Any, Any, tuple[Trace, OnwardError | None, KnownWay]]]:
    """Return a function that traces what the arguments say, after a check of them.

    Raises:
        ArgumentTypeError: The route cannot be read.
        AddressError: The query cannot be read.
        CommandError: The arguments contradict each other.
    """
    given: str = arguments.route
    timeout: float = arguments.timeout
    payload = payload_of(arguments)
    if arguments.broker is None:
        route = route_argument(given)
        way = way_of(arguments, credentials_for_node(arguments))

        async def along() -> tuple[Trace, OnwardError | None, KnownWay]:
            traced, known = await follow(route, payload, timeout, way)
            return traced, None, known

        return along
    if arguments.connect is not None or arguments.join:
        flag = "--join" if arguments.join else "--connect"
        raise CommandError(f"{flag} and --broker do not go together", Status.USAGE)
    parse_address_query(given)  # a malformed query is refused before anything is sent
    access = access_of(arguments)

    async def through() -> tuple[Trace, OnwardError | None, KnownWay]:
        # The client library is a slow import; the other commands go without.
        from ._trace_request import trace_through

        traced, lost = await trace_through(arguments.broker, given, payload, timeout, access)
        return traced, lost, KnownWay()

    return through


async def follow(
    route: Route, payload: bytes, timeout: float, way: Way | None
) -> tuple[Trace, KnownWay]:
    """Trace a message from a node of its own, and return what its router has found as well.

    Args:
        route: The route.
        payload: The payload.
        timeout: The longest time to connect, and then again to wait for the answer, in seconds.
        way: A node to connect to first, or nodes to join; `None` for the start of the route.

    Raises:
        OnwardError: It could not be sent.
        CommandError: The URI or a certificate of the node to connect to first is wrong.
    """
    async with Node(OWN, error_replies=True) as node:
        node.add_instrument(HopTracer(node))
        watch = WayWatch()
        _, route = await reach_by(node, route, timeout, way, watch.begin)
        traced = await trace(node, route, payload, options=TraceOptions(timeout=timeout))
        return traced, watch.found(traced)


def _open(name: str) -> None:
    """Check that a file can be written before the message is sent; its contents stay."""
    try:
        with Path(name).open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise CommandError(f"cannot write {name}: {error.strerror}") from error


def _write(name: str, text: str) -> None:
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        # The message has been sent: repeating the command would send it twice.
        raise CommandError(f"cannot write {name}: {error.strerror}", Status.IN_DOUBT) from error


def raise_for(traced: Trace, timeout: float) -> None:
    """Raise the error of a trace without an answer.

    Raises:
        CommandError: There is no answer.
    """
    if traced.answer is None:
        if traced.lost is not None:
            raise CommandError(f"not delivered: {traced.lost}")
        raise CommandError(f"no answer in {timeout:g} s", Status.IN_DOUBT)
    reply = read_error_reply(traced.answer)
    if reply is not None:
        status = Status.FAILED if reply.certain else Status.IN_DOUBT
        raise CommandError(f"{printable(reply.reason)}: {reply.address}", status)


# --- as text ----------------------------------------------------------------------------------


def _sights(traced: Trace, known: KnownWay) -> tuple[Sight, ...]:
    """Return what each hop can see; none of a message that has not left its node."""
    stayed = traced.lost is not None and not traced.hops
    return () if stayed else sights_of(traced.route, known)


def _row(traced: Trace, known: KnownWay) -> dict[str, Any]:
    row, sights = trace_row(traced), _sights(traced, known)
    if known.lines() or sights:
        row["way"] = known.row()
    if sights:
        row["sights"] = [asdict(each) for each in sights]
    return row


def show(traced: Trace, form: PayloadNotation, known: KnownWay | None = None) -> str:
    """Format a trace as text: the hops, a drawing, the gaps, what hops can see, and the answer."""
    known = known or KnownWay()
    remarks = [*_remarks(traced)]
    if known.relays:
        remarks.append("Relays, and what is behind them, can report no hops of a sealed message.")
    parts = [_hops(traced), text_of(picture_of(traced, OWN, known.lines())), "\n".join(remarks)]
    sights = [(each.hop, each.sees, each.hidden) for each in _sights(traced, known)]
    if sights:
        parts.append(table(("HOP", "CAN SEE", "CANNOT SEE"), sights))
    if traced.answer is not None and read_error_reply(traced.answer) is None:
        parts.append(f"answer: {printable(_payload(traced.answer.payload, form))}")
    return "\n\n".join(part for part in parts if part)


def _hops(traced: Trace) -> str:
    number = {hop.report.hop: index for index, hop in enumerate(traced.hops, 1)}
    rows = [
        (
            index,
            number.get(hop.report.before, 0),
            hop.node,
            worker_of(hop.report),
            hop.report.kind,
            _milliseconds(hop.at),
            _milliseconds(hop.waited),
            _milliseconds(hop.handled),
            hop.report.outcome.name.lower(),
        )
        for index, hop in enumerate(traced.hops, 1)
    ]
    headings = (
        *("HOP", "FROM", "NODE", "WORKER", "KIND"),
        *("    AT, ms", "WAITED, ms", "HANDLED, ms", "RESULT"),
    )
    return table(headings, rows)


def _milliseconds(value: float | None) -> str:
    return f"{'-':>10}" if value is None else f"{value * 1e3:10.3f}"


def _remarks(traced: Trace) -> Iterator[str]:
    number = {hop.report.hop: str(index) for index, hop in enumerate(traced.hops, 1)}
    if not traced.hops:
        yield "No node reported a hop: no node on the route traces, or the message was lost."
    for gap in traced.gaps:
        after = number.get(gap.after)
        before = number.get(gap.before or "", "the answer")
        place = f"After hop {after}" if after else "From the start"
        if gap.due:
            yield f"{place} it was to go to {brief_route(gap.due)}: nothing was heard of that."
        elif gap.passed:
            yield f"{place} and before {_hop(before)}, no report came of {brief_route(gap.passed)}."
        else:
            yield f"Before {_hop(before)}, at least one report was lost."
    yield from map(_clock_remark, traced.clocks)


def _hop(number: str) -> str:
    return number if number == "the answer" else f"hop {number}"


def _clock_remark(clock: TraceClock) -> str:
    if clock.error == 0:
        return f"Times of {printable(clock.name)} are of the clock that all are compared with."
    if clock.error is None:
        return (
            f"Times of {printable(clock.name)} are of its own clock, which could not be compared: "
            "none of its hops led to an answer."
        )
    apart = f"{abs(clock.offset) * 1e3:.3f} ms {'ahead' if clock.offset > 0 else 'behind'}"
    taken = "as ours" if clock.offset == 0 else f"as {apart}"
    return (
        f"The clock of {printable(clock.name)} is taken {taken}, "
        f"give or take {clock.error * 1e3:.3f} ms."
    )


def _payload(payload: bytes, form: PayloadNotation) -> str:
    try:
        return form.decode(payload)
    except ValueError:
        return f"{payload.hex()} (as hex)"
