"""From a topology file to a plan, and from what is wrong with one to its line."""

from __future__ import annotations

import pytest

from onward.protocol import address, route
from onward.protocol.topology import (
    FaultsPlan,
    KindOptions,
    MailboxPlan,
    SupervisionPlan,
    TopologyError,
    TopologyLimits,
    read_topology,
)
from tests.protocol.topology.kinds import KINDS, plan_of, problems_of

NODE = '[nodes.a]\nworkers.echo = "echo"\n'

FULL = """\
title = "Two"

[nodes.far.workers]
echo = "echo"
relay = { kind = "forward", also = ["hop"], makes = ["made"], mailbox = 5, supervision = "stop" }

[nodes.far.workers.own]
class = "shop.workers:Orders.Fast"
options = { size = 3, names = ["x"] }
mailbox = { limit = 7, overflow = "drop-oldest" }
supervision = { on_failure = "restart", max_restarts = 2, within = 10 }

[nodes.far.listeners]
main = { uri = "tcp://h:0", expose = ["relay", "made"], allow=["*"], options = { max_frame = 100 } }
side = "uds://{dir}/side"

[nodes.near]
error_replies = true
[[links]]
from = "near"
to = "far.main"

[[links]]
from = "near"
to = "tcp://example.org:1"
as = "world"
expose = ["far"]
options = { reconnect = false }
simulation = { latency = 0.5, loss = 0.1, duplicate = 0, reorder = 1, reorder_by = 2 }

[[requests]]
from = "near"
route = "far => relay => echo"
payload = "é"
expect = ""

[[requests]]
from = "near"
route = "far"
error = "no answer in time"
timeout = 1
within = 2.5

[simulation]
seed = -3
latency = [0.1, 1]
"""


def test_everything_a_file_can_say() -> None:
    plan = plan_of(FULL)
    assert (plan.title, plan.file) == ("Two", "t.toml")
    far, near = plan.nodes
    assert (far.name, near.name, near.workers, near.listeners) == ("far", "near", (), ())
    assert (far.error_replies, near.error_replies) == (False, True)
    echo, relay, own = far.workers
    assert (echo.address, echo.kind, echo.class_path) == (address("echo"), "echo", "")
    assert (echo.mailbox, echo.supervision) == (MailboxPlan(), SupervisionPlan())
    assert relay.addresses == (address("relay"), address("hop"))
    assert relay.makes == (address("made"),)
    assert (relay.mailbox, relay.supervision) == (MailboxPlan(5), SupervisionPlan("stop"))
    assert (own.kind, own.class_path) == ("", "shop.workers:Orders.Fast")
    assert own.options == {"size": 3, "names": ["x"]}
    assert own.mailbox == MailboxPlan(7, "drop-oldest")
    assert own.supervision == SupervisionPlan("restart", 2, 10.0)
    main, side = far.listeners
    assert plan.listeners == (main, side)
    assert (main.id, main.uri, main.is_fixed) == ("far.main", "tcp://h:0", False)
    assert main.allow == (address("*"),)
    assert (main.expose, main.options) == ((address("relay"), address("made")), {"max_frame": 100})
    assert (side.uri, side.expose, side.is_fixed) == ("uds://{dir}/side", (), False)
    to_far, world = plan.links
    assert plan.links_from("near") == (to_far, world)
    assert (to_far.node, to_far.address) == ("near", address("far"))
    assert (to_far.to_node, to_far.to_listener, to_far.uri) == ("far", "far.main", "")
    assert to_far.faults.given() == {}
    assert (world.to_node, world.to_listener, world.uri) == ("", "", "tcp://example.org:1")
    assert (world.expose, world.options) == ((address("far"),), {"reconnect": False})
    assert world.faults == FaultsPlan((0.5, 0.5), 0.1, 0.0, 1.0, 2.0)
    one, two = plan.requests
    assert (one.node, one.route) == ("near", route("far => relay => echo"))
    assert (one.payload, one.expect, one.error) == ("é".encode(), b"", "")
    assert (one.timeout, one.within) == (5.0, 0.0)
    assert (two.payload, two.expect, two.error) == (b"", None, "no answer in time")
    assert (two.timeout, two.within) == (1.0, 2.5)
    assert plan.simulation.seed == -3
    assert plan.simulation.faults.given() == {"latency": (0.1, 1.0)}


def test_each_part_knows_where_it_stands() -> None:
    plan = plan_of(FULL)
    assert str(plan.node("far").workers[2].place) == "t.toml:7: nodes.far.workers.own"
    assert str(plan.links[1].place) == "t.toml:23: links[1]"


def test_the_title_is_the_name_of_the_file_if_it_has_none() -> None:
    assert read_topology(NODE.encode(), "x/t.toml", kinds=KINDS).title == "x/t.toml"


def test_a_node_is_found_by_its_name() -> None:
    plan = plan_of(FULL)
    assert plan.node("near") is plan.nodes[1]
    with pytest.raises(LookupError, match="no node 'nera'; there are: far, near; did you mean"):
        plan.node("nera")


@pytest.mark.parametrize(
    ("to", "listener"), [("b", "b.x"), ("b.x", "b.x"), ("tcp://127.0.0.1:7", "b.x")]
)
def test_what_a_link_can_name(to: str, listener: str) -> None:
    text = (
        f'[nodes.a]\n[nodes.b.listeners]\nx = "tcp://127.0.0.1:7"\n[[links]]\nfrom="a"\nto="{to}"'
    )
    (link,) = plan_of(text).links
    assert (link.to_listener, link.uri, str(link.address)) == (listener, "", "0#b")


def test_the_options_of_a_kind_are_read_as_what_they_are() -> None:
    options = """
text = "x"
count = 3
seconds = 1
flag = false
address = "1#far"
addresses = ["y", "2#z"]
route = "w => 9#v"
routes = ["w", "1#u => t"]
listeners = []
"""
    plan = plan_of(f'[nodes.a.workers]\nw.kind = "all"\n[nodes.a.workers.w.options]{options}')
    assert plan.nodes[0].workers[0].options == {
        "text": "x",
        "count": 3,
        "seconds": 1.0,
        "flag": False,
        "address": address("1#far"),
        "addresses": (address("y"), address("2#z")),
        "route": route("w => 9#v"),
        "routes": (route("w"), route("1#u => t")),
        "listeners": (),
    }


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["1: there are no nodes; write [nodes.NAME]"]),
        ("nodes = 1", ["1: nodes: 1 is not a table", "1: there are no nodes; write [nodes.NAME]"]),
        ("\n[nodes]\na = 1", ["3: nodes.a: 1 is not a table"]),
        (
            "\n[nodse.a]",
            [
                "1: there are no nodes; write [nodes.NAME]",
                ("2: nodse: unknown key; there are: links, nodes, requests, simulation, title; "
                "did you mean 'nodes'?"),
            ],
        ),
        ("[nodes.a]\nerror_replies = 1", ["2: nodes.a.error_replies: 1 is not true or false"]),
        ("[nodes.a]\nworker = 1", [
            ("2: nodes.a.worker: unknown key; there are: error_replies, listeners, workers; "
             "did you mean 'workers'?")]),
        ('[nodes."a b"]', [("1: nodes.\"a b\": the name 'a b' has other characters than "
                           "A-Z a-z 0-9 _ -")]),
        (f"[nodes.{'a' * 65}]", [(f"1: nodes.{'a' * 65}: the name has 65 characters; "
                                 "the limit is 64")]),
        (
            '[nodes.a.workers]\n"1#x" = "echo"\n"%" = "echo"',
            [
                '2: nodes.a.workers."1#x": 1#x is not a local address',
                "3: nodes.a.workers.\"%\": bad address '%': a '%' without two hexadecimal digits",
            ],
        ),
        (
            ('[nodes.a.workers]\nx = {}\ny = { kind = "echo", class = "m:C" }\nz = 3\n'
            'u = { class = "m.C" }\nv = "ecoh"'),
            [
                "2: nodes.a.workers.x: kind or class is missing",
                "3: nodes.a.workers.y: it has both a kind and a class",
                "4: nodes.a.workers.z: 3 is not text",
                "5: nodes.a.workers.u.class: 'm.C' is not package.module:Class",
                ("6: nodes.a.workers.v: no kind 'ecoh'; there are: all, choice, echo, forward, "
                "tap; did you mean 'echo'?"),
            ],
        ),
        (
            ('[nodes.a.workers.x]\nkind = "tap"\n[nodes.a.workers.y]\nkind = "tap"\n'
            'options = { to = "", too = 1 }'),
            [
                "1: nodes.a.workers.x.options: to is missing",
                "5: nodes.a.workers.y.options.to: the route is empty",
                ("5: nodes.a.workers.y.options.too: unknown key; there are: to; "
                "did you mean 'to'?"),
            ],
        ),
        (
            ('[nodes.a.workers.x]\nkind = "echo"\nmailbox = 0\nsupervision = "restrat"\n'
            'also = ["1#b"]\nmakes = "x"\noptions = 1'),
            [
                "3: nodes.a.workers.x.mailbox: 0 is not a whole number of at least 1",
                ("4: nodes.a.workers.x.supervision: 'restrat' is not one of resume, restart, stop, "
                "escalate; did you mean 'restart'?"),
                "5: nodes.a.workers.x.also: 1#b is not a local address",
                "6: nodes.a.workers.x.makes: 'x' is not a list of texts",
                "7: nodes.a.workers.x.options: 1 is not a table",
            ],
        ),
        (
            ('[nodes.a.workers.x]\nkind = "echo"\n[nodes.a.workers.x.mailbox]\nlimit = true\n'
            "overflow = 1\nsize = 3\n[nodes.a.workers.x.supervision]\nwithin = -1"),
            [
                "4: nodes.a.workers.x.mailbox.limit: true is not a whole number of at least 1",
                ("5: nodes.a.workers.x.mailbox.overflow: 1 is not one of fail, wait, drop-oldest, "
                "drop-newest"),
                "6: nodes.a.workers.x.mailbox.size: unknown key; there are: limit, overflow",
                "8: nodes.a.workers.x.supervision.within: -1 is not a number of seconds, 0 or more",
            ],
        ),
        (
            ('[nodes.a.listeners]\nx = "tcp:y"\ny = {}\n"z z" = "tcp://a:1"\n'
            'w = { uri = "tcp://b:1", expose = [1] }'),
            [
                "2: nodes.a.listeners.x: 'tcp:y' is not scheme://...",
                "3: nodes.a.listeners.y: uri is missing",
                ("4: nodes.a.listeners.\"z z\": the name 'z z' has other characters than "
                "A-Z a-z 0-9 _ -"),
                "5: nodes.a.listeners.w.expose: 1 is not text",
            ],
        ),
        (
            '[nodes.a.workers.w]\nkind = "choice"\noptions.how = "tow"',
            ["3: nodes.a.workers.w.options.how: 'tow' is not one of one, other"],
        ),
        (
            NODE + "[links]",
            ["3: links: a table is not a list of tables; write [[links]]"],
        ),
        (NODE + "links = [1]\n", []),
        (
            "links = [\n1,\n{}]\n" + NODE,
            [
                "2: links[0]: 1 is not a table",
                "3: links[1]: from is missing",
                "3: links[1]: to is missing",
            ],
        ),
        (
            NODE + '[[links]]\nfrom = "b"\nto = "a"\n[[links]]\nfrom = "a"\nto = "c"\nas = "1#x"',
            [
                "4: links[0].from: no node 'b'; there are: a; did you mean 'a'?",
                "5: links[0].to: the node 'a' has no listener",
                "8: links[1].to: no listener 'c'; there are: none; did you mean 'a'?",
                "9: links[1].as: 1#x is not a local address",
            ],
        ),
        (
            NODE + 'listeners = { x = "tcp://a:1", y = "tcp://a:2" }\n'
            '[[links]]\nfrom = "a"\nto = "a"\n'
            '[[links]]\nfrom = "a"\nto = "tcp://b:1"',
            [
                "6: links[0].to: the node 'a' has several listeners; write one of a.x, a.y",
                "7: links[1]: as is missing: a link to outside has to be given a name",
            ],
        ),
        (
            NODE + "[[requests]]\n[[requests]]\nfrom = 'b'\nroute = 'echo'\n"
            "expect = ''\nerror = 'x'\ntimeout = nan\nwithin = 1" + "0" * 20,
            [
                "3: requests[0]: from is missing",
                "3: requests[0]: route is missing",
                "4: requests[1]: it has both expect and error",
                "5: requests[1].from: no node 'b'; there are: a; did you mean 'a'?",
                "9: requests[1].timeout: nan is not a number of seconds, 0 or more",
                "10: requests[1].within: 1" + "0" * 20 + " is not a number of seconds, 0 or more",
            ],
        ),
        (
            NODE + "[simulation]\nseed = 1.5\nlatency = [1, 0]\nloss = 2\nduplicate = '1'\n"
            "reorder = [1]\nreorder_by = 1979-05-27",
            [
                "4: simulation.seed: 1.5 is not a whole number",
                "5: simulation.latency: a list is not seconds, or [least, most] of seconds",
                "6: simulation.loss: 2 is not a number from 0 to 1",
                "7: simulation.duplicate: '1' is not a number from 0 to 1",
                "8: simulation.reorder: a list is not a number from 0 to 1",
                "9: simulation.reorder_by: 1979-05-27 is not a number of seconds, 0 or more",
            ],
        ),
        (NODE + "[simulation]\nlatency = [1, 2, 3]", [
            "4: simulation.latency: a list is not seconds, or [least, most] of seconds"]),
        (NODE + "[simulation]\nlatency = 'x'", [
            "4: simulation.latency: 'x' is not seconds, or [least, most] of seconds"]),
        (
            ("[nodes.a.workers.w]\nkind = 'all'\n[nodes.a.workers.w.options]\nflag = 1\n"
            f"text = {{}}\ncount = '{'x' * 70}'\nroutes = []\nroute = '{' => '.join('x' * 65)}'"),
            [
                "4: nodes.a.workers.w.options.flag: 1 is not true or false",
                "5: nodes.a.workers.w.options.text: a table is not text",
                (f"6: nodes.a.workers.w.options.count: '{'x' * 59}… is not a whole number "
                "of at least 1"),
                "7: nodes.a.workers.w.options.routes: the list is empty",
                ("8: nodes.a.workers.w.options.route: a route of 65 addresses is over the limit "
                "of 64"),
            ],
        ),
    ],
)  # fmt: skip
def test_what_can_be_wrong(text: str, problems: list[str]) -> None:
    if problems:
        assert problems_of(text) == problems


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = 1\nb = = 2", "2: not TOML: invalid value (at line 2, column 5)"),
        ("a = 1\n\na = 2", "3: not TOML: cannot overwrite a value (at end of document)"),
        (b"a = 1\n# \xff", "2: not UTF-8"),
        ("a = 1\n# \ud800", "2: not UTF-8"),
        ("x = " + "[" * 5000, "1: not TOML"),
    ],
)
def test_what_is_no_toml(text: str | bytes, problem: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read_topology(text, "t.toml", kinds=KINDS)
    (only,) = caught.value.problems
    assert str(only).startswith(f"t.toml:{problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n[nodes.a]\nx" + ".x" * 16 + " = 1", "3: a key of more than 16 parts"),
        ("a" + ".a" * 400_000 + " = 1", "1: a key of more than 16 parts"),
        (
            "[nodes.a]\nb = " + "{x=" * 15 + "1" + "}" * 15,
            f"2: nodes.a.b{'.x' * 14}: nested more than 16 deep",
        ),
    ],
)
def test_what_is_too_deep(text: str, problem: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read_topology(text, "t.toml", kinds=KINDS)
    assert str(caught.value) == f"t.toml:{problem}"


def test_an_error_at_the_end_has_the_last_line() -> None:
    with pytest.raises(TopologyError) as caught:
        read_topology("a = 1\nb = [", "t.toml", kinds=KINDS)
    assert caught.value.problems[0].line == 2


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (TopologyLimits(size=10), "1: {size} bytes are over the limit of 10"),
        (TopologyLimits(nodes=1), "3: nodes: 2 nodes are over the limit of 1"),
        (TopologyLimits(workers=2), "3: nodes: 3 workers are over the limit of 2"),
        (TopologyLimits(listeners=1), "3: nodes: 2 listeners are over the limit of 1"),
        (TopologyLimits(links=1), "19: links: 2 links are over the limit of 1"),
        (TopologyLimits(requests=1), "31: requests: 2 requests are over the limit of 1"),
    ],
)
def test_what_is_too_much(limits: TopologyLimits, problem: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read_topology(FULL, "t.toml", kinds=KINDS, limits=limits)
    told = problem.format(size=len(FULL.encode()))
    assert str(caught.value) == f"t.toml:{told}"


def test_problems_are_counted_when_there_are_too_many() -> None:
    text = "".join(f"k{number} = 1\n" for number in range(5)) + NODE
    with pytest.raises(TopologyError) as caught:
        read_topology(
            text, "t.toml", kinds={"echo": KindOptions()}, limits=TopologyLimits(problems=2)
        )
    error = caught.value
    assert (len(error.problems), error.left_out) == (2, 3)
    assert str(error).splitlines()[-1] == "and 3 more"
