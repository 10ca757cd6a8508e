"""The way that a router has found for a traced message, as `onward trace` says it."""

from __future__ import annotations

import json
from dataclasses import replace

from onward.actors import Node
from onward.actors.identity import ROUTER
from onward.actors.identity._carriage import Carriage
from onward.actors.tracing import HopTracer, Trace, trace
from onward.cli._payload import TEXT
from onward.cli._trace import show
from onward.cli._trace_picture import picture_of
from onward.cli._trace_sight import sights_of
from onward.cli._trace_svg import draw
from onward.cli._trace_way import KnownWay, WayWatch
from onward.protocol import Address
from onward.protocol.identity import DestinationKind, RelayPolicy, identity_text, short_text
from onward.transports.identity import Identities
from onward.transports.simulated import SimulatedNetwork
from tests.support.identities import engine_text, key_of, node_text
from tests.support.virtual import virtual_time
from tests.support.workers import Echo, Forwarder, start_worker

RELAY, FAR, OTHER = (key_of(name).identity for name in ("relay", "far", "other"))


class Three:
    """A node that traces, and one that it reaches over a relay, which both have joined.

    Attributes:
        own: The first.
        far: The one with the engine.
        engine: The address of the engine, as text.
        echo: The same in short, without its kind.
    """

    own: Identities
    far: Identities
    engine: str
    echo: str

    @classmethod
    async def on(cls, network: SimulatedNetwork, *, expose: str = "") -> Three:
        made = cls()
        relay, far, own = [await network.node(name) for name in ("relay", "far", "own")]
        clock = relay.loop.time
        await Identities.attach(
            relay, key_of("relay"), relay=RelayPolicy(to_reserved=True), clock=clock
        )
        made.far = await Identities.attach(far, key_of("far"), expose=["echo"], clock=clock)
        made.own = await Identities.attach(own, key_of("own"), clock=clock)
        await relay.listen("sim://relay", expose=[ROUTER])
        await start_worker(far, Echo(), "echo")
        engine = made.far.engine("echo")
        made.engine, made.echo = engine_text(engine), short_text(engine)
        for each in (made.far, made.own):
            each.node.add_instrument(HopTracer(each.node))
            await each.join("sim://relay", identity=RELAY)
        await made.far.reserve(RELAY)
        return made

    async def traced(self, route: str) -> tuple[Trace, KnownWay]:
        watch = WayWatch()
        watch.begin(self.own)
        found = await trace(self.own.node, route, b"hi")
        return found, watch.found(found)


@virtual_time
async def test_a_relay_that_the_router_has_chosen_is_shown_as_one_that_the_route_names() -> None:
    r = short_text(RELAY)
    async with SimulatedNetwork() as network:
        three = await Three.on(network)
        first, asked = await three.traced(three.engine)
        again, known = await three.traced(f"{three.engine}?hops=1")
        spelled, named = await three.traced(f"36#relay:{identity_text(RELAY)} => {three.engine}")
    assert asked.lines() == [f"looked up engine {three.echo}: asked {r}; answered by {r}"]
    assert (
        known.lines()
        == named.lines()
        == [f"engine {three.echo} was known: its advert was in the directory"]
    )
    assert asked.relays == known.relays == named.relays == (RELAY,)
    relay, last, rest = sights_of(again.route, known)
    assert (relay, last, rest) == sights_of(spelled.route, named)
    assert (relay.hop, last.hop) == (f"relay {r}", f"the node of engine {three.echo}")
    assert relay.hidden == "the payload, its end, and nodes further away"
    assert last.hidden == f"the nodes before relay {r}"
    # A relay that was asked knows its end as well.
    relay, *others = sights_of(first.route, asked)
    assert relay.sees.endswith(f"; it was asked for engine {three.echo}")
    assert relay.hidden == "the payload, and nodes further away"
    assert others == [last, rest]
    # All forms say the same.
    text = show(first, TEXT, asked)
    assert f"    ● sent\n    ● {asked.lines()[0]}\n    ● 1 0#" in text
    assert "\nRelays, and what is behind them, can report no hops of a sealed message.\n" in text
    assert f"\nrelay {r} " in text
    assert f">{asked.lines()[0]}</text>" in draw(picture_of(first, "trace", asked.lines()))
    assert json.loads(json.dumps(asked.row())) == {
        "relays": [identity_text(RELAY)],
        "lookups": [
            {
                "identity": three.engine.removeprefix("36#engine:"),
                "asked": [identity_text(RELAY)],
                "answered": identity_text(RELAY),
            }
        ],
        "known": "",
    }
    assert known.row()["known"] == known.lines()[0]
    # What another node says that it has written does not count.
    report = first.hops[0].report
    made_up = Carriage(DestinationKind.ENGINE, (OTHER,)).address
    forged = replace(report, node_id="1" * 16, onward_route=(report.worker, made_up))
    lying = replace(first, hops=(replace(first.hops[0], report=forged), *first.hops))
    watch = WayWatch()
    watch.begin(three.own)
    assert watch.found(lying).relays == (RELAY,)


@virtual_time
async def test_the_last_relay_may_be_the_node_of_the_engine() -> None:
    async with SimulatedNetwork() as network:
        three = await Three.on(network)
        relays = " => ".join(f"36#relay:{identity_text(each)}" for each in (RELAY, FAR))
        found, known = await three.traced(f"{relays} => {three.engine}")
    relay, last, _ = sights_of(found.route, known)
    assert last.hop == f"relay {short_text(FAR)}, the node of engine {three.echo}"
    assert last.sees.startswith("the payload")
    assert f"goes on to {last.hop};" in relay.sees


@virtual_time
async def test_what_was_asked_besides_is_shown() -> None:
    async with SimulatedNetwork() as network:
        three = await Three.on(network)
        other = await network.node("other")
        await Identities.attach(other, key_of("other"), clock=other.loop.time)
        await other.listen("sim://other", expose=[ROUTER])
        await three.own.join("sim://other", identity=OTHER)
        found, known = await three.traced(f"{node_text(FAR)} => echo")
        missing, nothing = await three.traced(engine_text(key_of("nobody").identity))
    o, r, f = map(short_text, (OTHER, RELAY, FAR))
    assert known.lines() == [f"looked up node {f}: asked {r}, {o}; answered by {r}"]
    assert [(each.hop, each.sees) for each in sights_of(found.route, known)][2] == (
        f"node {o}",
        f"it was asked for node {f}",
    )
    identity = f"identity {short_text(key_of('nobody').identity)}"
    assert nothing.lines()[0].startswith(f"looked up {identity}: asked ")
    assert nothing.lines()[0].endswith("; answered by none")
    assert nothing.row()["lookups"][0]["answered"] is None
    # It has gone nowhere, so no hop has seen it.
    assert "CAN SEE" not in show(missing, TEXT, nothing)


@virtual_time
async def test_a_node_that_is_joined_has_told_of_itself() -> None:
    async with SimulatedNetwork() as network:
        three = await Three.on(network)
        await three.far.node.listen("sim://far", expose=[ROUTER])
        await three.own.join("sim://far", identity=FAR)
        found, known = await three.traced(three.engine)
        _, node = await three.traced(f"{node_text(FAR)} => echo")
    told = f"engine {three.echo} was known: its node, which is joined, has told of it"
    assert (known.lines(), known.relays) == ([told], ())
    assert node.lines() == [f"node {short_text(FAR)} was known: it is joined"]
    assert [each.hop for each in sights_of(found.route, known)] == [
        f"the node of engine {three.echo}",
        "others on the way",
    ]
    assert "Relays, and" not in show(found, TEXT, known)


@virtual_time
async def test_an_identity_of_another_kind_is_said_to_be_so() -> None:
    async with SimulatedNetwork() as network:
        three = await Three.on(network)
        found, known = await three.traced(engine_text(FAR))
    f = short_text(FAR)
    assert known.lines()[1:] == [f"node {f} is no engine: write 36#node:…"]
    assert found.lost == "unresolved"


@virtual_time
async def test_what_another_node_has_sealed_is_shown_by_its_report() -> None:
    async with SimulatedNetwork() as network:
        three = await Three.on(network)
        await start_worker(three.own.node, Forwarder(), "fwd")
        await three.own.node.listen("sim://own", expose=["fwd"], allow=["36#*"])
        asks: Node = await network.node("asks")
        asks.add_instrument(HopTracer(asks))
        link = await asks.connect("sim://own")
        route = f"{link} => fwd => {three.engine}"
        found = await trace(asks, route, b"hi")
    known = WayWatch().found(found)
    assert known == KnownWay((RELAY,))
    relay, last, _ = sights_of(found.route, known)
    assert relay.sees.startswith("it comes from the node that has sealed it and goes on to the ")
    assert last.hop == f"the node of engine {three.echo}"


def test_a_route_without_identities_has_no_such_way() -> None:
    nothing = Trace("0" * 32, (Address(0, b"echo"),), (), (), (), None, None, 1.0, None)
    assert WayWatch().found(nothing) == KnownWay()
    assert KnownWay().lines() == []
