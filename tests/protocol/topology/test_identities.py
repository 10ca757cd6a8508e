"""Identities in a topology file: keys, engines, links by which nodes join, and references."""

from __future__ import annotations

import pytest

from onward.protocol import parse_route
from onward.protocol.topology import IdentityPlan, KeyPlan, Position, put_identities
from tests.protocol.topology.kinds import plan_of, problems_of

TWO = """\
[nodes.a]
workers.echo = "echo"
workers.shop = "echo"
listeners.main = "tcp://h:0"
[nodes.a.identity]
seed = "one"
engines = ["echo"]
expose = ["shop"]
directory = "{dir}/a.directory"
relay = ["from:{a}", "reserved"]
reserve = ["b"]
[nodes.b]
identity = "b.key"
[nodes.c]
identity = { key_file = "c.key", passphrase_file = "c.words" }
[nodes.d]
identity = {}
[[links]]
from = "b"
to = "a"
join = true
[[links]]
from = "c"
to = "tcp://h:1"
as = "far"
join = "aera"
[[links]]
from = "d"
to = "a"
[[requests]]
from = "b"
route = "36#relay:{d} => 36#engine:{a.echo}?hops=1 => {a}"
"""


def test_identities_are_read() -> None:
    plan = plan_of(TWO.replace(" => {a}", ""))
    a, b, c, d = (plan.node(name).identity for name in "abcd")
    assert isinstance(a, IdentityPlan)
    assert (a.key.seed, a.directory, a.makes_keys) == ("one", "{dir}/a.directory", False)
    assert a.reserve == ("b",)
    assert a.relay == ("from:{a}", "reserved")
    assert [list(map(str, each)) for each in (a.engines, a.expose)] == [["0#echo"], ["0#shop"]]
    place = Position("t.toml", 13, ("nodes", "b", "identity"))
    assert b == IdentityPlan(place, KeyPlan("b.key"))
    assert c is not None
    assert c.key == KeyPlan("c.key", "c.words")
    assert d is not None
    assert d.makes_keys
    assert [link.join for link in plan.links] == ["", "aera", None]


def test_references_are_replaced_in_addresses_of_identities_alone() -> None:
    route = parse_route("36#relay:{d} => 36#engine:{a.echo}?hops=1 => {a}")
    put = put_identities(route, {"d": "aerd", "a.echo": "aere"})
    assert put == parse_route("36#relay:aerd => 36#engine:aere?hops=1 => {a}")
    with pytest.raises(KeyError, match=r"a\.echo"):
        put_identities(route, {"d": "aerd"})


A = '[nodes.a]\nworkers.echo = "echo"\nlisteners.main = "tcp://h:1"\n'
REQUEST = '[[requests]]\nfrom = "a"\nroute = '


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (A + "identity = 5\n", "4: nodes.a.identity: "),
        (A + 'identity = { foo = "x" }\n', "4: nodes.a.identity.foo: unknown key; there are"),
        (
            A + 'identity = { seed = "x", key_file = "y" }\n',
            "4: nodes.a.identity: it has both a key_file and a seed",
        ),
        (
            A + 'identity.passphrase_file = "x"\n',
            "4: nodes.a.identity.passphrase_file: it goes with key_file",
        ),
        (
            A + 'identity.engines = ["ecoh"]\n',
            "4: nodes.a.identity.engines[0]: node 'a' has no worker or link 'ecoh'; ",
        ),
        (A + 'identity.engines = ["34#x"]\n', "4: nodes.a.identity.engines: 34#x is not a local"),
        (
            A + 'identity.expose = ["echo", "ecoh"]\n',
            "4: nodes.a.identity.expose[1]: node 'a' has no worker or link 'ecoh'; ",
        ),
        (
            A + 'identity.reserve = ["b"]\n',
            "4: nodes.a.identity.reserve[0]: no node 'b' has an identity; there are: a",
        ),
        (
            A + 'identity.relay = ["from:{b}"]\n',
            (
                "4: nodes.a.identity.relay[0]: no node 'b' has an identity with a seed, "
                "which is known before; there are: none"
            ),
        ),
        (
            A + '[nodes.b]\n[[links]]\nfrom = "b"\nto = "a"\njoin = false\n',
            "8: links[0].join: false is neither true nor the text of an identity",
        ),
        (
            A + 'identity = {}\n[nodes.b]\n[[links]]\nfrom = "b"\nto = "a"\njoin = true\n',
            "9: links[0].join: to join needs identities: write [nodes.b.identity]",
        ),
        (
            A + REQUEST + '"36#node:{a}"\n',
            (
                "6: requests[0].route: no node, engine, topic or domain 'a' has an identity; "
                "there are: none"
            ),
        ),
        (
            A + "identity = { engines = ['echo'] }\n" + REQUEST + '"36#engine:{a.ecoh}"\n',
            (
                "7: requests[0].route: no node, engine, topic or domain 'a.ecoh' has an identity; "
                "there are: a, a.echo; did you mean"
            ),
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, problem: str) -> None:
    told = problems_of(text)
    assert any(each.startswith(problem) for each in told), told
