"""What a file refers to has to be there, and no name may be there twice."""

from __future__ import annotations

import pytest

from tests.protocol.topology.kinds import plan_of, problems_of

NODES = """\
[nodes.near]
workers.hop = "forward"
workers.echo = "echo"
[nodes.far]
workers.relay = "forward"
workers.echo = { kind = "echo", makes = ["made"] }
workers.own = { class = "m:C" }
listeners.main = { uri = "tcp://h:0", expose = ["relay", "own", "32#x=1"], allow = ["e*", "made"] }
[[links]]
from = "near"
to = "far"
[[links]]
from = "near"
to = "tcp://elsewhere:1"
as = "world"
"""


@pytest.mark.parametrize(
    "route",
    [
        "echo => whatever",
        "hop => hop => echo",
        "far => relay => echo",
        "far => relay => made",
        "far => own => whatever",
        "hop => far => relay => relay",
        "world => whatever",
        "1#127.0.0.1:4000 => whatever",
        "far => 32#x=1",
        "hop",
    ],
)
def test_routes_that_lead_somewhere(route: str) -> None:
    assert problems_of(f'{NODES}[[requests]]\nfrom = "near"\nroute = "{route}"') == []


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ("ecoh", ("node 'near' has no worker or link 'ecoh'; there are: hop, echo, far, world; "
                 "did you mean 'echo'?")),
        ("hop => relay", ("node 'near' has no worker or link 'relay'; there are: hop, echo, far, "
                         "world")),
        ("far => echo", "far.main does not expose 'echo'; it exposes: relay, own, 32#x=1"),
        ("far => relay => hop", ("far.main does not allow 'hop' next; it exposes and allows: "
                                "relay, own, 32#x=1, e*, made")),
        ("far => relay => else", ("node 'far' has no worker or link 'else'; there are: relay, "
                                 "echo, made, own")),
    ],
)  # fmt: skip
def test_routes_that_lead_nowhere(route: str, problem: str) -> None:
    text = f'{NODES}[[requests]]\nfrom = "near"\nroute = "{route}"\n'
    assert problems_of(text) == [f"18: requests[0].route: {problem}"]
    # What has to fail may lead nowhere.
    assert problems_of(f"{text}error = 'no answer in time'") == []


def test_a_listener_that_exposes_nothing() -> None:
    text = (
        '[nodes.a]\nlisteners.x = "tcp://h:1"\n[[links]]\nfrom = "a"\nto = "a.x"\n'
        '[[requests]]\nfrom = "a"\nroute = "a => b"'
    )
    assert problems_of(text) == [
        "8: requests[0].route: a.x does not expose 'b'; it exposes: nothing"
    ]


def test_what_is_exposed_has_to_be_there() -> None:
    text = """\
[nodes.far.listeners.main]
uri = "tcp://127.0.0.1:0"
expose = [
  "32#tags=1",
  "nobody",
]
[[links]]
from = "far"
to = "far"
expose = ["far", "mian"]
"""
    assert problems_of(text) == [
        (
            "5: nodes.far.listeners.main.expose[1]: node 'far' has no worker or link 'nobody'; "
            "there are: far"
        ),
        "10: links[0].expose[1]: node 'far' has no worker or link 'mian'; there are: far",
    ]


def test_an_address_is_somebody_s() -> None:
    text = """\
[nodes.a.workers]
one = { kind = "echo", also = ["two"] }
two = { kind = "echo", makes = ["one"] }
three = { kind = "echo", also = ["three"] }
[nodes.a.listeners]
x = "tcp://h:1"
[[links]]
from = "a"
to = "a"
as = "one"
"""
    assert problems_of(text) == [
        "3: nodes.a.workers.two: the address 'two' is that of nodes.a.workers.one (line 2)",
        (
            "3: nodes.a.workers.two.makes[0]: the address 'one' is that of nodes.a.workers.one "
            "(line 2)"
        ),
        (
            "4: nodes.a.workers.three.also[0]: the address 'three' is that of "
            "nodes.a.workers.three (line 4)"
        ),
        "10: links[0].as: the address 'one' is that of nodes.a.workers.one (line 2)",
    ]


def test_two_listeners_are_not_in_one_place() -> None:
    text = """\
[nodes.a.listeners]
x = "tcp://h:10"
y = "tcp://h:10"
z = "tcp://h:0"
[nodes.b.listeners]
x = "tcp://h:0"
z = "tcp://h:10"
w = "ws://h:0/path"
v = "uds://{dir}/a"
u = "uds://{dir}/a"
"""
    assert problems_of(text) == [
        "3: nodes.a.listeners.y.uri: the URI is that of a.x (line 2)",
        "7: nodes.b.listeners.z.uri: the URI is that of a.x (line 2)",
    ]


def test_routes_of_workers_begin_on_their_node() -> None:
    text = """\
[nodes.a.workers.tap]
kind = "tap"
options.to = "seen => more"
[nodes.a.workers.all]
kind = "all"
options.routes = [ "tap", "1#far", "gone" ]
options.route = "1#far => x"
options.address = "not-here"
"""
    assert problems_of(text) == [
        (
            "3: nodes.a.workers.tap.options.to: node 'a' has no worker or link 'seen'; "
            "there are: tap, all"
        ),
        (
            "6: nodes.a.workers.all.options.routes: node 'a' has no worker or link 'gone'; "
            "there are: tap, all"
        ),
    ]


@pytest.mark.parametrize(
    ("links", "order"),
    [
        ("", "abcd"),
        ("ab bc cd", "dcba"),
        ("db ca", "abcd"),
        ("ab ba", "bacd"),
        ("ab ac ad bd", "dbca"),
        ("aa bb ba", "abcd"),
    ],
)
def test_who_is_started_before_whom(links: str, order: str) -> None:
    text = "".join(f'[nodes.{name}]\nlisteners.x = "tcp://h:0"\n' for name in "abcd")
    text += "".join(
        f'[[links]]\nfrom = "{pair[0]}"\nto = "{pair[1]}"\nas = "link{pair}"\n'
        for pair in links.split()
    )
    assert "".join(plan_of(text).start_order()) == order


def test_listeners_of_workers_are_those_of_their_node() -> None:
    text = """\
[nodes.a.workers.x]
kind = "all"
options.listeners = ["main", "mian"]
[nodes.a.workers]
"listener:side" = "echo"
[nodes.a.listeners]
main = "tcp://h:1"
side = "tcp://h:2"
[nodes.b.workers.x]
kind = "all"
options.listeners = ["main"]
"""
    assert problems_of(text) == [
        (
            "3: nodes.a.workers.x.options.listeners: node 'a' has no listener 'mian'; "
            "there are: main, side; did you mean 'main'?"
        ),
        (
            "5: nodes.a.workers.\"listener:side\": the address 'listener:side' is that of "
            "nodes.a.listeners.side (line 8)"
        ),
        (
            "11: nodes.b.workers.x.options.listeners: node 'b' has no listener 'main'; "
            "there are: none"
        ),
    ]


def test_a_link_from_nowhere_is_told_of_once() -> None:
    text = (
        '[nodes.a]\n[[links]]\nfrom = "gone"\nto = "tcp://h:1"\nas = "x"\nexpose = ["y"]\n'
        '[[requests]]\nfrom = "gone"\nroute = "x"'
    )
    assert problems_of(text) == [
        "3: links[0].from: no node 'gone'; there are: a",
        "8: requests[0].from: no node 'gone'; there are: a",
    ]
