"""Dispatchers in a topology file: names, consumers, producers, and neighbours with costs."""

from __future__ import annotations

import pytest

from onward.protocol.dispatch import DeliveryLimits, Last, Redirect, RoutingPattern, Second
from tests.protocol.topology.kinds import plan_of, problems_of

TWO = """\
[nodes.a.dispatcher]
default = "closest"
hold_file = "{dir}/hold.db"
consume_key = "consume"
name_slice = 7
settle_time = 60
[[nodes.a.dispatcher.name]]
pattern = "orders"
routing = "direct"
second = "standby"
undeliverable = [{ redirect = "34#late" }]
[nodes.b.dispatcher.consumers]
echo = "orders"
hop = { name = ["late", "prices/eu"], window = 5, accept = "handed" }
[nodes.a.broker]
[nodes.b]
dispatcher.neighbour_roles = ["staff", "ops"]
workers.echo = "echo"
workers.hop = "forward"
listeners.main = { uri = "tcp://h:0", principals = "peers.toml" }
listeners.clients = "amqp://h:0"
[[links]]
from = "a"
to = "b.main"
cost = 10
[[requests]]
from = "a"
name = "orders"
messages = 3
every = 0.5
outcome = "any"
"""


def test_dispatchers_are_read() -> None:
    plan = plan_of(TWO)
    a, b = plan.node("a").dispatcher, plan.node("b").dispatcher
    assert a is not None
    assert b is not None
    ((provision,), default) = a.provisions, a.default
    assert (provision.pattern.written, provision.source, provision.line) == ("orders", "t.toml", 7)
    assert provision.semantics.second is Second.STANDBY
    assert provision.semantics.undeliverable == (Redirect("34#late"), Last.RELEASE)
    assert default is not None
    assert (default.pattern, a.hold_file) == (RoutingPattern.CLOSEST, "{dir}/hold.db")
    assert [(str(each.worker), each.names, each.window, each.accept) for each in b.consumers] == [
        ("0#echo", ("orders",), 250, "reply"),
        ("0#hop", ("late", "prices/eu"), 5, "handed"),
    ]
    assert (a.consume_key, a.name_slice, a.neighbour_roles) == ("consume", 7, ())
    assert (a.settle_time, b.settle_time) == (60.0, DeliveryLimits().settle_time)
    assert (b.default, b.provisions) == (None, ())
    assert (b.consume_key, b.name_slice, b.neighbour_roles) == ("", 200, ("staff", "ops"))
    assert [each.principals for each in plan.node("b").listeners] == ["peers.toml", ""]
    (link,) = plan.links_to("b.main")
    assert link.cost == 10
    assert [each.is_for_clients for each in plan.listeners] == [False, True]
    (request,) = plan.requests
    assert (request.route, request.name, request.messages) == ((), "orders", 3)
    assert (request.every, request.outcome) == (0.5, "any")


NODE = '[nodes.a]\nworkers.echo = "echo"\n'
LINK = '[[links]]\nfrom = "a"\nto = "tcp://far:1"\nas = "far"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "[nodes.all.dispatcher]\n",
            "1: nodes.all.dispatcher: a node with a dispatcher cannot be called 'all': ",
        ),
        ('[nodes.a.dispatcher]\nfoo = "x"\n', "2: nodes.a.dispatcher.foo: unknown key; there are"),
        (
            '[nodes.a.dispatcher]\n[[nodes.a.dispatcher.name]]\npattern = "x"\nrouting = "near"\n',
            "4: nodes.a.dispatcher.name[0].routing: 'near' is not one of ",
        ),
        (
            NODE + 'dispatcher.consumers.ecoh = "orders"\n',
            "3: nodes.a.dispatcher.consumers.ecoh: node 'a' has no worker or link 'ecoh'; ",
        ),
        (
            NODE + "dispatcher.consumers.echo = { window = 3 }\n",
            "3: nodes.a.dispatcher.consumers.echo: name is missing",
        ),
        (
            NODE + 'dispatcher.consumers.echo = { name = "_topo/x" }\n',
            "3: nodes.a.dispatcher.consumers.echo.name: ",
        ),
        (NODE + "dispatcher.consumers.'' = 'x'\n", "3: nodes.a.dispatcher.consumers: bad address"),
        (
            NODE + 'listeners.main = "amqp://h:1"\n',
            (
                "3: nodes.a.listeners.main.uri: amqp://h:1 needs a dispatcher: "
                "write [nodes.a.dispatcher]"
            ),
        ),
        (
            NODE + '[[requests]]\nfrom = "a"\nname = "x"\n',
            "5: requests[0].name: a producer needs a dispatcher: write [nodes.a.dispatcher]",
        ),
        (
            "[nodes.a.dispatcher]\n" + LINK + "cost = 1\n",
            "6: links[0].cost: it goes with a link to a node of the file",
        ),
        ("[nodes.a.dispatcher]\n" + LINK + "cost = 0\n", "6: links[0].cost: 0 is not "),
        (
            "[nodes.a.dispatcher]\n" + LINK + "cost = 3000000000\n",
            "6: links[0].cost: 3000000000 is over the highest cost, ",
        ),
        (
            (
                '[nodes.a.dispatcher]\n[nodes.b]\nlisteners.x = "tcp://h:1"\n[[links]]\n'
                'from = "a"\nto = "b"\ncost = 2\n'
            ),
            "7: links[0].cost: a link with a cost needs a dispatcher: write [nodes.b.dispatcher]",
        ),
        (
            NODE + 'dispatcher = {}\n[[requests]]\nfrom = "a"\nname = "x"\nroute = "echo"\n',
            "4: requests[0]: a producer of a name has an outcome, and no route, expect or error",
        ),
        (
            NODE + '[[requests]]\nfrom = "a"\nroute = "echo"\nmessages = 2\n',
            "3: requests[0]: messages, every and outcome go with name",
        ),
        ('[nodes.a]\n[[requests]]\nfrom = "a"\n', "2: requests[0]: route is missing"),
        (
            NODE + 'dispatcher.consume_key = "consume"\n',
            "3: nodes.a.dispatcher.consume_key: it goes with a broker: write [nodes.a.broker]",
        ),
        (
            NODE + 'broker = {}\ndispatcher.consume_key = "%"\n',
            "4: nodes.a.dispatcher.consume_key: ",
        ),
        (
            NODE + 'listeners.x = "tcp://h:1"\ndispatcher.neighbour_roles = ["staff"]\n',
            (
                "4: nodes.a.dispatcher.neighbour_roles: "
                "it goes with a listener of 'a' that has principals"
            ),
        ),
        (
            NODE + "dispatcher.settle_time = 0\n",
            "3: nodes.a.dispatcher.settle_time: 0 is not a number of seconds, more than 0",
        ),
        (
            NODE + "dispatcher.name_slice = 0\n",
            "3: nodes.a.dispatcher.name_slice: 0 is not ",
        ),
    ],
)
def test_what_is_wrong_with_a_dispatcher(text: str, problem: str) -> None:
    (found,) = problems_of(text)
    assert found.startswith(problem)
