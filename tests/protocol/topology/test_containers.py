"""Containers of AMQP in a topology file, with their links to names."""

from __future__ import annotations

import pytest

from onward.protocol.topology import ContainerLinkPlan, TopologyError, TopologyLimits, read_topology
from tests.protocol.topology.kinds import plan_of, problems_of

FILE = """\
[nodes.a.dispatcher.containers.shop]
uri = "amqps://broker:5671"
user = "ann"
password_file = "broker.password"
certificate = "own.pem"
key = "own.key"
authority = "authority.pem"
server_name = "broker.example"
[[nodes.a.dispatcher.containers.shop.in]]
address = "new-orders"
name = "orders"
[[nodes.a.dispatcher.containers.shop.out]]
address = "sent-bills"
name = "bills"
[[nodes.a.dispatcher.containers.shop.route]]
name = "jobs"
address = "queue"
[[nodes.a.dispatcher.containers.shop.route]]
name = "more"
[nodes.a.dispatcher.containers.plain]
uri = "amqp://h:5672"
"""


def test_containers_are_read() -> None:
    dispatcher = plan_of(FILE).node("a").dispatcher
    assert dispatcher is not None
    shop, plain = dispatcher.containers
    assert (shop.name, shop.uri, shop.place.line) == ("shop", "amqps://broker:5671", 1)
    assert (shop.user, shop.password_file) == ("ann", "broker.password")
    assert shop.files == {
        "certificate": "own.pem",
        "key": "own.key",
        "authority": "authority.pem",
    }
    assert shop.server_name == "broker.example"
    assert shop.links == (
        ContainerLinkPlan("in", "new-orders", "orders"),
        ContainerLinkPlan("out", "sent-bills", "bills"),
        ContainerLinkPlan("route", "queue", "jobs"),
        ContainerLinkPlan("route", "", "more"),
    )
    assert (plain.name, plain.links, plain.files) == ("plain", (), {})


HEAD = '[nodes.a.dispatcher.containers.shop]\nuri = "amqps://h:1"\n'
LINK = "[[nodes.a.dispatcher.containers.shop"
PLACE = "nodes.a.dispatcher.containers.shop"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"[{PLACE}]\n", f"1: {PLACE}: uri is missing"),
        (f'[{PLACE}]\nuri = "tcp://h:1"\n', f"2: {PLACE}.uri: it is not amqp://HOST:PORT or"),
        (f'[{PLACE}]\nuri = "amqp://h:1"\nauthority = "a"\n', f"1: {PLACE}: certificates go with"),
        (HEAD + 'user = "ann"\n', f"1: {PLACE}: user and password_file go together"),
        (HEAD + 'password_file = "x"\n', f"1: {PLACE}: user and password_file go together"),
        (HEAD + 'user = ""\npassword_file = "x"\n', f"3: {PLACE}.user: it is empty"),
        (HEAD + 'key = "k"\n', f"3: {PLACE}.key: it goes with the certificate"),
        (HEAD + 'name = "x"\n', f"3: {PLACE}.name: unknown key; there are: "),
        (HEAD + f'{LINK}.in]]\nname = "x"\n', f"3: {PLACE}.in[0]: address is missing"),
        (HEAD + f'{LINK}.out]]\naddress = "x"\nname = ""\n', f"5: {PLACE}.out[0].name: it is"),
        (HEAD + f"{LINK}.route]]\n", f"3: {PLACE}.route[0]: name is missing"),
        (
            HEAD + f'{LINK}.route]]\nname = "x"\nto = "y"\n',
            f"5: {PLACE}.route[0].to: unknown key; there are: address, name",
        ),
        (
            HEAD + 2 * f'{LINK}.route]]\nname = "x"\n',
            f"1: {PLACE}: two of its links are the same",
        ),
        (
            '[nodes.a.dispatcher.containers."a b"]\nuri = "amqp://h:1"\n',
            "nodes.a.dispatcher.containers.\"a b\": the name 'a b' has other characters",
        ),
    ],
)
def test_what_is_wrong_with_a_container_is_said(text: str, problem: str) -> None:
    assert any(problem in each for each in problems_of(text)), problems_of(text)


def test_there_are_so_many_containers() -> None:
    with pytest.raises(TopologyError, match="nodes: 2 containers are over the limit of 1"):
        read_topology(FILE, "t.toml", kinds={}, limits=TopologyLimits(containers=1))
