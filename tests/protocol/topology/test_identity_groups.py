"""Topics and domains in a topology file: what is read, and what is wrong with it."""

from __future__ import annotations

import pytest

from onward.protocol import Address
from onward.protocol.topology import DomainPlan, KeyPlan, ServicePlan, SubscriptionPlan, TopicPlan
from tests.protocol.topology.kinds import plan_of, problems_of

TWO = """\
[nodes.a]
workers.till = "echo"
workers.shop = "echo"
listeners.main = "tcp://h:0"
[nodes.a.identity]
seed = "one"
engines = ["till"]
topics.prices = { engine = "till", scope = "any", publishers = ["b", "a.till"], seed = "p" }
topics.own = "till"
topics.inner = { engine = "till", scope = "shops", key_file = "i.key" }
subscribe.shop = ["prices", "own"]
domains.shops = { members = ["a"], admit = ["b"], seed = "s" }
domains.open = { admit = true, seed = "o" }
serve.shop = "shops"
[nodes.b]
workers.shop = "echo"
[nodes.b.identity]
seed = "two"
subscribe.shop = { topic = "inner", scope = "shops" }
serve.shop = { domain = ["shops", "open"], expose = ["shop"] }
join = ["shops", "open"]
[[links]]
from = "b"
to = "a"
join = true
[[requests]]
from = "b"
route = "36#topic:{prices}"
[[requests]]
from = "b"
route = "36#domain:{shops}"
"""
TILL, SHOP = Address(0, b"till"), Address(0, b"shop")


def test_topics_and_domains_are_read() -> None:
    plan = plan_of(TWO)
    a, b = (plan.node(name).identity for name in "ab")
    assert a is not None
    assert b is not None
    prices, own, inner = a.topics
    assert prices == TopicPlan(
        prices.place, "prices", TILL, "any", ("b", "a.till"), KeyPlan(seed="p")
    )
    assert own == TopicPlan(own.place, "own", TILL)
    assert (inner.scope, inner.key) == ("shops", KeyPlan("i.key"))
    (subscription,) = a.subscriptions
    assert subscription == SubscriptionPlan(subscription.place, SHOP, ("prices", "own"))
    shops, everybody = a.domains
    assert shops == DomainPlan(shops.place, "shops", ("a",), ("b",), key=KeyPlan(seed="s"))
    assert everybody == DomainPlan(everybody.place, "open", admits_all=True, key=KeyPlan(seed="o"))
    assert a.groups == (*a.topics, *a.domains)
    assert a.makes_keys  # that of `own`
    assert not b.makes_keys
    assert [each.scope for each in b.subscriptions] == ["shops"]
    (service,) = b.services
    assert service == ServicePlan(service.place, SHOP, ("shops", "open"), (SHOP,))
    assert b.join == ("shops", "open")
    assert service.place.line == 20


A = '[nodes.a]\nworkers.echo = "echo"\nlisteners.main = "tcp://h:1"\n'
B = A + '[nodes.b]\nworkers.echo = "echo"\n'
LINK = '[[links]]\nfrom = "b"\nto = "a"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (A + "identity.topics.x = 5\n", "4: nodes.a.identity.topics.x: "),
        (A + "identity.topics.x = {}\n", "4: nodes.a.identity.topics.x: engine is missing"),
        (
            A + 'identity.topics.x = { engine = "echo", foo = 1 }\n',
            "4: nodes.a.identity.topics.x.foo: unknown key; there are: engine, key_file, ",
        ),
        (
            A + 'identity.topics."x y" = "echo"\n',
            "4: nodes.a.identity.topics.\"x y\": the name 'x y' has other characters than",
        ),
        (
            A + 'identity.topics.x = "ecoh"\n',
            "4: nodes.a.identity.topics.x.engine: node 'a' has no worker or link 'ecoh'; ",
        ),
        (
            A + 'identity.topics.x = { engine = "echo", seed = "y", key_file = "z" }\n',
            "4: nodes.a.identity.topics.x: it has both a key_file and a seed",
        ),
        (
            A + 'identity.topics.x = { engine = "echo", publishers = ["a"] }\n',
            "4: nodes.a.identity.topics.x.publishers: it goes with a scope beyond the node",
        ),
        (
            A + 'identity.topics.x = { engine = "echo", scope = "any", publishers = ["b"] }\n',
            (
                "4: nodes.a.identity.topics.x.publishers[0]: no node or engine 'b' has an "
                "identity; there are: a"
            ),
        ),
        (
            A + 'identity.topics.x = { engine = "echo", scope = "locl" }\n',
            (
                "4: nodes.a.identity.topics.x.scope: no scope 'locl'; there are: any, local; "
                "did you mean 'local'?"
            ),
        ),
        (
            A + 'identity.topics.a = "echo"\n',
            "4: nodes.a.identity.topics.a: the name 'a' is that of nodes.a (line 1)",
        ),
        (
            A + 'identity = { topics.x = "echo", domains.x = {} }\n',
            (
                "4: nodes.a.identity.domains.x: the name 'x' is that of "
                "nodes.a.identity.topics.x (line 4)"
            ),
        ),
        (
            A + "identity.domains.any = {}\n",
            "4: nodes.a.identity.domains.any: a domain cannot be called 'any', as a scope is",
        ),
        (
            A + "identity.domains.x.admit = false\n",
            "4: nodes.a.identity.domains.x.admit: false is neither true nor a list of names",
        ),
        (
            A + 'identity.domains.x.members = ["b"]\n',
            "4: nodes.a.identity.domains.x.members[0]: no node 'b' has an identity; there are: a",
        ),
        (
            A + 'identity.domains.x.admit = ["b"]\n',
            "4: nodes.a.identity.domains.x.admit[0]: no node 'b' has an identity; there are: a",
        ),
        (
            A + 'identity.subscribe.echo = "x"\n',
            "4: nodes.a.identity.subscribe.echo.topic: no topic 'x'; there are: none",
        ),
        (
            A + 'identity = { topics.x = "echo", subscribe.echo = ["x", "x"] }\n',
            "4: nodes.a.identity.subscribe.echo.topic: it names 'x' twice",
        ),
        (
            A + 'identity = { topics.x = "echo", subscribe.ecoh = "x" }\n',
            "4: nodes.a.identity.subscribe.ecoh: node 'a' has no worker or link 'ecoh'; ",
        ),
        (
            A + 'identity = { topics.x = "echo", subscribe."34#x" = "x" }\n',
            '4: nodes.a.identity.subscribe."34#x": 34#x is not a local address',
        ),
        (
            A + 'identity.serve.echo = "x"\n',
            "4: nodes.a.identity.serve.echo.domain: no domain 'x'; there are: none",
        ),
        (
            A + 'identity = { domains.x = {}, serve."34#x" = "x" }\n',
            '4: nodes.a.identity.serve."34#x": 34#x is not a local address',
        ),
        (
            A + 'workers.other = "echo"\n'
            'identity = { domains.x = {}, serve.echo = "x", serve.other = "x" }\n',
            "5: nodes.a.identity.serve.other.domain: the domain 'x' is served by 'echo'",
        ),
        (
            A + 'identity = { domains.x = {}, serve.echo = { domain = "x", expose = ["y"] } }\n',
            "4: nodes.a.identity.serve.echo.expose[0]: node 'a' has no worker or link 'y'; ",
        ),
        (
            A + 'identity.join = ["x"]\n',
            "4: nodes.a.identity.join[0]: no domain 'x'; there are: none",
        ),
        (
            A + 'identity = { domains.x = {}, join = ["x"] }\n',
            ("4: nodes.a.identity.join[0]: 'x' is a domain of this node; it goes in its members"),
        ),
        (
            B.replace("[nodes.b]", "identity.domains.x = {}\n[nodes.b]")
            + 'identity.join = ["x"]\n'
            + LINK,
            (
                "7: nodes.b.identity.join[0]: no link with join is between 'b' and 'a', "
                "which has 'x'"
            ),
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, problem: str) -> None:
    told = problems_of(text)
    assert any(each.startswith(problem) for each in told), told
