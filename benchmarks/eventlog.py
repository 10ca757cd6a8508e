"""The cost of the event log: of a hop, recorded or not sampled, a count, and a broker's CPU.

All of it is the code of a broker, with a log on a disk:

- *hop*: `Recorder.hop` with the clock, packing, and a writer that writes full blocks to a disk.
  With the look-up of origin and destination, and without;
- *message's hop*: `MessageLog.record`: the hop and all else that is recorded of a message, except
  for the parsing of its mark;
- *sampling decision*: the extra time of `Node.send` with a log for a message that is not sampled.
  Between workers there is not even that;
- *request not sampled*: the work of the routing thread for a request through a broker that has no
  record of its own: `OriginLog.received` and the part of the log in `Exchange.end`. It includes the
  decision, but most of it is counting, which is never sampled: the arrival, the delivery and the
  end of the request, with the bytes, by origin, kind, tags and destination;
- *request with a trace*: the same for a request with a Zipkin trace id, which decides by a hash,
  and is not sampled either;
- *request sampled*: the same with a trace id that is sampled: it includes the hop;
- *message to a name*: the three counts of one at the node where it entered and its consumer is: its
  arrival, its outcome, and its copy;
- *broker*: the CPU time of a request through `onward broker`, with an event log at the
  default sampling and without, window by window in turn, for several pairs of brokers. Windows are
  short and many: other load on the machine is the same for two consecutive windows, or the median
  leaves it out.

The bare operations, in the same run, are `struct.pack_into` of the same record, and an addition to
an attribute. Noise as in `_harness`.

Targets: a recorded hop at most 400 ns, the decision at most 50 ns, and at most 1.03 times the CPU
time of a broker's request. The cost of a request's counters is reported without a target: the last
one bounds it.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from _harness import Report, parse_arguments, repeat
from _rawload import cpu_seconds, open_load
from broker import IN_FLIGHT, ONWARD, broker

from onward.actors import MailboxOptions, Node, Worker
from onward.actors.broker import Broker
from onward.actors.broker._exchange import RELAYED, Exchange
from onward.actors.broker.table._remote import own_route
from onward.actors.broker.table._route import BrokerRoute
from onward.actors.broker.table._selector import Ask
from onward.actors.eventlog import LogOptions, LogWriter, Recorder
from onward.actors.eventlog.recording._messages import codes_of
from onward.actors.routing._given import as_route
from onward.protocol import Address, Message
from onward.protocol.eventlog import HOP, Kind, LogMark, Outcome, sampled, threshold_of
from onward.protocol.rsocket import FrameType

MESSAGE, DELIVER = int(Kind.MESSAGE), int(Outcome.DELIVER)
NAME, NAME_COPY, RECEIVED = int(Kind.NAME), int(Kind.NAME_COPY), int(Outcome.RECEIVED)
RESPONSE = int(FrameType.REQUEST_RESPONSE)
TAGS = 32
FAR = 1 << 29
"""A count that is not reached, and is as fast to add to as one that is."""
PARTS = 20
"""How often messages are sent with a log and without, in turn: the difference is small."""
NOT_SAMPLED = 0xFEDCBA9876543210
SAMPLED = next(each for each in range(1 << 16) if sampled(each, threshold_of(0.01)))


class Held:
    """An object with a number, like requests and their counters."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = FAR


class Relayed(Exchange):
    """A request as of a connection, without the connection."""

    __module__ = "onward.benchmark"  # only the package itself may extend it
    __slots__ = ()

    def __init__(self, size: int) -> None:
        self.size = size
        self.ended = False
        self.began = 0.0
        self.route = None
        self.withdraw = None
        self.handed = None
        self.log = None


class Sleeper(Worker):
    """A destination without requests."""

    def handle_message(self, message: Message) -> None:
        """Ignore the message."""


async def destination() -> tuple[Ask, BrokerRoute]:
    """Return a request's query and a destination for it, as a broker has them."""
    async with Node("bench") as node:
        broker = await Broker.attach(node)
        await node.start(Sleeper, address="sleeper")
        broker.register("sleeper", service="orders")
        ask = broker.index.asked(Address(TAGS, b"service=orders"))
        return ask, own_route(broker.index.candidates(ask)[0])


def timed(work: Callable[[int], None], count: int) -> float:
    """Return the nanoseconds of CPU time for each of `count` repetitions."""
    began = time.thread_time_ns()
    work(count)
    return (time.thread_time_ns() - began) / count


def loop(count: int) -> None:
    """Run an empty loop: the overhead of the other loops."""
    for _ in range(count):
        pass


def pack(count: int) -> None:
    """Pack `count` records."""
    block = bytearray(64 * 1024)
    into = HOP.pack_into
    for number in range(count):
        into(block, 64 * (number & 1023), number, 1, 2, 3, 1, 3, 0, 0, 1, 2, 3, 4, 5, 6, 100)


def add(count: int) -> None:
    """Add to an attribute `count` times."""
    held = Held()
    for _ in range(count):
        held.left -= 1


def requests(recorder: Recorder, count: int) -> dict[str, float]:
    """Record `count` requests; return nanoseconds for each, less the bare `Exchange.end`."""
    ask, route = asyncio.run(destination())
    request = Relayed(64)
    came = recorder.requests.origin("front").received

    def ended(count: int) -> None:
        for _ in range(count):
            request.route = route
            request.end(0.0, RELAYED)

    def counted(count: int) -> None:
        for _ in range(count):
            came(request, RESPONSE, ask, None)
            request.route = route
            request.end(0.0, RELAYED)

    def traced(count: int, trace: int = NOT_SAMPLED) -> None:
        for _ in range(count):
            came(request, RESPONSE, ask, trace)
            request.route = route
            request.end(0.0, RELAYED)

    bare = timed(ended, count)
    return {
        "request not sampled, ns": timed(counted, count) - bare,
        "request with a trace, ns": timed(traced, count) - bare,
        "request sampled, ns": timed(lambda count: traced(count, SAMPLED), count) - bare,
    }


async def decision(recorder: Recorder, count: int) -> float:
    """Send messages with a log and without, in turn; return the difference in nanoseconds."""
    more: list[float] = []
    part = count // PARTS
    async with Node("bench") as node:
        await node.start(Sleeper, address="sleeper", mailbox=MailboxOptions(limit=part))
        route, payload = as_route("sleeper"), b"x" * 64

        def sent(count: int) -> None:
            send = node.send
            for _ in range(count):
                send(route, payload)

        async def handled() -> None:
            while any(each.waiting for each in node.statistics().workers):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)

        for _ in range(PARTS):
            node.remove_instrument(recorder)
            bare = timed(sent, part)
            await handled()
            node.add_instrument(recorder)
            if node.instruments is not None:
                node.instruments.left = FAR
            more.append(timed(sent, part) - bare)
            await handled()
    return median(more)


def recorded(count: int) -> dict[str, float]:
    """Record `count` hops of each kind on a real disk; return nanoseconds for each."""
    with tempfile.TemporaryDirectory() as folder:
        options = LogOptions(
            Path(folder), "bench", max_pending=1 << 30, max_foreign_per_second=1 << 30
        )
        writer = LogWriter(options)
        writer.open()
        recorder = Recorder(writer, options, "bench")
        recorder.begin()
        hop, known, learn = recorder.hop, recorder.naming.known, recorder.naming.learn
        codes = codes_of(MESSAGE, DELIVER)
        origin, dest = "(unregistered)", "orders"
        ends = learn((origin, dest), origin, dest)
        record, mark = recorder.messages.record, LogMark(NOT_SAMPLED, weight=100)
        here, there = Address(0, b"here"), Address(0, b"there")
        message = Message((there,), (), b"x" * 64, here, None)

        def hops(count: int) -> None:
            for number in range(count):
                hop(number, 0, codes, ends, 250, 64, 100)

        def named(count: int) -> None:
            for number in range(count):
                ends = known.get((origin, dest)) or learn((origin, dest), origin, dest)
                hop(number, 0, codes, ends, 250, 64, 100)

        def messages(count: int) -> None:
            for _ in range(count):
                record(mark, message, there, DELIVER, 250)

        name = recorder.names.count

        def to_a_name(count: int) -> None:
            for _ in range(count):
                name(NAME, RECEIVED, "34#orders", "", 64)
                name(NAME, DELIVER, "34#orders", "", 64)
                name(NAME_COPY, DELIVER, "34#orders", "bench/0#shop", 0)

        around = timed(loop, count)
        found = {
            "recorded hop, ns": timed(hops, count) - around,
            "recorded hop with its ends, ns": timed(named, count) - around,
            "message's hop, ns": timed(messages, count) - around,
            "message to a name, ns": timed(to_a_name, count) - around,
            "sampling decision, ns": asyncio.run(decision(recorder, count)),
            **requests(recorder, count),
            "bare pack, ns": timed(pack, count) - around,
            "bare addition, ns": timed(add, count) - around,
        }
        recorder.close()
        dropped = recorder.statistics().dropped
        writer.close(60.0)
        if dropped:
            raise RuntimeError(f"events were dropped: {dropped}")
    return found


def broker_cost(pairs: int, windows: int, requests: int) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of a request, with an event log and without, by window.

    Two equal brokers differ by a few percent as long as they run. So several pairs of them are
    measured, one after the other.
    """
    with_log: list[float] = []
    without: list[float] = []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as folder:
            log = [*ONWARD, "--event-log", folder]
            with (
                broker(log) as (log_pid, log_port),
                broker(ONWARD) as (pid, port),
                open_load(log_port, requesters=1, in_flight=IN_FLIGHT) as log_load,
                open_load(port, requesters=1, in_flight=IN_FLIGHT) as load,
            ):
                log_load.run(requests // 5)
                load.run(requests // 5)
                for number in range(windows):
                    lanes = [(with_log, log_load, log_pid), (without, load, pid)]
                    # The order alternates, as the first may have an advantage or a disadvantage.
                    for figures, each, process in lanes if number % 2 else reversed(lanes):
                        before = cpu_seconds(process)
                        each.run(requests)
                        figures.append((cpu_seconds(process) - before) / requests)
    return with_log, without


def main() -> None:
    """Run the benchmark."""
    arguments = parse_arguments(__doc__, runs=9)
    count = 20_000 if arguments.quick else 1_000_000
    measured = repeat(arguments.runs, lambda: recorded(count))
    pairs, windows = (1, 1) if arguments.quick else (9, 9)
    with_log, without = broker_cost(pairs, windows, 20_000)
    report = Report("eventlog", arguments)
    report.add(measured)
    report.ratio("hop / bare pack", measured["recorded hop, ns"], measured["bare pack, ns"])
    counters = measured["request not sampled, ns"]
    report.ratio("request / bare addition", counters, measured["bare addition, ns"])
    report.add({"broker CPU for a request, µs": [1e6 * each for each in without]})
    report.add({"the same with an event log, µs": [1e6 * each for each in with_log]})
    report.ratio("broker with / without", with_log, without)
    report.at_most("recorded hop, ns", 400.0)
    report.at_most("sampling decision, ns", 50.0)
    report.at_most("broker with / without", 1.03)
    report.print()


if __name__ == "__main__":
    main()
