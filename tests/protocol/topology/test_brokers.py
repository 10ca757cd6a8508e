"""Brokers in a topology file, their clusters and their destinations."""

from __future__ import annotations

import pytest

from tests.protocol.topology.kinds import plan_of, problems_of

THREE = """\
[nodes.a.broker]
cluster = "shop"
zone = "eu"
locality = "even"
seeds = ["rsocket+tcp://far:8001"]
destinations.echo = "greeter"
destinations.hop = { service = "other", tags = { region = "eu", "k 1" = "v" } }
[nodes.a]
workers.echo = "echo"
workers.hop = "forward"
listeners.plain = "tcp://h:0"
listeners.first = "rsocket+tcp://h:0"
listeners.second = "rsocket+ws://h:0/x"
[nodes.b.broker]
[nodes.c]
broker.cluster = "shop"
listeners.main = "rsocket+unix://{dir}/c"
[nodes.d]
broker.cluster = "other"
listeners.main = "rsocket+unix://{dir}/d"
"""


def test_brokers_are_read() -> None:
    plan = plan_of(THREE)
    broker = plan.node("a").broker
    assert broker is not None
    assert (broker.cluster, broker.zone, broker.locality) == ("shop", "eu", "even")
    assert broker.seeds == ("rsocket+tcp://far:8001",)
    assert [(str(each.worker), each.service, each.tags) for each in broker.destinations] == [
        ("0#echo", "greeter", {}),
        ("0#hop", "other", {"region": "eu", "k 1": "v"}),
    ]
    listener = plan.node("a").broker_listener
    assert listener is not None
    assert listener.name == "first"
    alone = plan.node("b").broker
    assert alone is not None
    assert (alone.cluster, alone.locality, alone.destinations) == ("", "prefer", ())


def test_brokers_of_one_cluster_are_peers() -> None:
    plan = plan_of(THREE)
    peers = {node.name: [peer.name for peer in plan.peers_of(node.name)] for node in plan.nodes}
    assert peers == {"a": ["c"], "b": [], "c": ["a"], "d": []}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[nodes.a]\nlisteners.main = "rsocket+tcp://h:1"\n',
            (
                "2: nodes.a.listeners.main.uri: rsocket+tcp://h:1 needs a broker: "
                "write [nodes.a.broker]"
            ),
        ),
        (
            '[nodes.a]\nbroker.cluster = "x"\nlisteners.main = "tcp://h:1"\n',
            "2: nodes.a.broker.cluster: node 'a' has no listener for RSocket, as others need it",
        ),
        ('[nodes.a.broker]\nzone = "x"\n', "2: nodes.a.broker.zone: it goes with cluster"),
        (
            '[nodes.a.broker]\nseeds = ["rsocket+tcp://h:1"]\n',
            "2: nodes.a.broker.seeds: it goes with cluster",
        ),
        (
            '[nodes.a.broker]\nlocality = "near"\n',
            "2: nodes.a.broker.locality: 'near' is not one of prefer, even",
        ),
        (
            '[nodes.a]\nworkers.echo = "echo"\nbroker.destinations.ecoh = "x"\n',
            (
                "3: nodes.a.broker.destinations.ecoh: node 'a' has no worker or link 'ecoh'; "
                "there are: echo; did you mean 'echo'?"
            ),
        ),
        (
            '[nodes.a]\nworkers.echo = "echo"\nbroker.destinations.echo = { tags = { a = "b" } }\n',
            "3: nodes.a.broker.destinations.echo: service is missing",
        ),
        (
            (
                '[nodes.a]\nworkers.echo = "echo"\n'
                'broker.destinations.echo = { service = "x", tags = { a = 1 } }\n'
            ),
            "3: nodes.a.broker.destinations.echo.tags.a: ",
        ),
        (
            '[nodes.a.broker]\nclutser = "x"\n',
            "2: nodes.a.broker.clutser: unknown key; ",
        ),
        (
            "[nodes.a.broker.destinations]\n'' = 'x'\n",
            "1: nodes.a.broker.destinations: bad address '0#'",
        ),
    ],
)
def test_what_is_wrong_with_a_broker(text: str, problem: str) -> None:
    (found,) = problems_of(text)
    assert found.startswith(problem)
