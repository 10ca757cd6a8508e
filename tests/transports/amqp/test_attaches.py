"""The attach of a link as the properties of a circuit: what is read, checked and written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from cbor2 import dumps

from onward.transports.amqp import LinkRoute
from onward.transports.amqp._attaches import (
    MAX_ATTACH,
    check_attach,
    read_attach,
    read_window,
    write_attach,
)
from onward.transports.amqp._port import Refused
from tests.support.amqp import OPTIONS, described, frame_of, needs_proton, nested, refusal
from tests.support.amqp_chain import Chain, state

pytestmark = pytest.mark.peer
proton = needs_proton()

LARGE = replace(OPTIONS, max_frame=4 * MAX_ATTACH)
TOO_LARGE = "amqp:resource-limit-exceeded", "the attach is too large"

SOURCE = [1, "jobs", 0, 1, 0, 0, False, b"", b"", b"", b""]
ATTACH = [1, 1000, 2, 0, 5, SOURCE, [2, *SOURCE[1:]], b""]


def link() -> Any:
    return proton.Connection().session().sender("jobs")


def test_what_is_read_of_a_link_is_written_to_another() -> None:
    items = check_attach(proton, dumps(ATTACH), 4096)
    made = link()
    write_attach(made, items)
    assert (made.snd_settle_mode, made.rcv_settle_mode, made.max_message_size) == (2, 0, 5)
    assert (made.source.type, made.source.address, made.target.type) == (1, "jobs", 2)
    assert read_window(read_attach(proton, made, 77)) == 77


@pytest.mark.parametrize("told", [b"", b"p", dumps([1, 2]), dumps([2, *ATTACH[1:]])])
def test_what_a_program_has_told_is_no_attach(told: bytes) -> None:
    assert read_window(told) == 0
    assert check_attach(proton, told, 4096) is None
    made = link()
    write_attach(made, None)
    assert made.source.address is None


def test_the_names_count_for_the_frame() -> None:
    told = dumps(ATTACH)
    room = len(told) + 256
    assert check_attach(proton, told, room) is not None
    assert check_attach(proton, told, room + 4, "jobs", None) is not None
    with pytest.raises(Refused) as caught:
        check_attach(proton, told, room + 3, "jobs")
    assert caught.value.condition == "amqp:frame-size-too-small"


async def test_properties_of_each_kind_pass(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.session.receiver("r")
    link.source.address = "jobs"
    link.properties = {
        proton.symbol("bytes"): b"\xff\x00",
        proton.symbol("list"): [1, "a", b"b"],
        proton.symbol("map"): {"a": 2.5},
        proton.symbol("id"): UUID(int=5),
        proton.symbol("none"): None,
    }
    link.open()
    chain.pump()
    found = container.links[0].remote_properties
    one, of_list = found["bytes"], found["list"]
    assert (bytes(one), [*of_list[:2], bytes(of_list[2])]) == (b"\xff\x00", [1, "a", b"b"])
    assert (found["map"], found["id"], found["none"]) == ({"a": 2.5}, UUID(int=5), None)


async def test_an_attach_of_a_client_that_is_too_large_is_refused(chain: Chain) -> None:
    edge, container = chain.edges(options=LARGE), chain.container()
    link = edge.client.session.sender("s")
    link.target.address = "jobs"
    link.properties = {proton.symbol("x"): "y" * MAX_ATTACH}
    link.open()
    good = edge.client.sender("jobs")
    chain.pump()
    assert (refusal(link), state(good)) == (TOO_LARGE, "active")
    assert (len(container.links), edge.engine.closed) == (1, "")


async def test_an_answer_of_a_container_that_is_too_large_ends_the_link(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container(LinkRoute("jobs"), options=LARGE)
    container.answers = False
    link = edge.client.sender("jobs")
    chain.pump()
    (at_container,) = container.links
    at_container.source.copy(at_container.remote_source)
    at_container.target.copy(at_container.remote_target)
    at_container.properties = {proton.symbol("x"): "y" * MAX_ATTACH}
    at_container.open()
    chain.pump()
    assert refusal(link) == refusal(at_container) == TOO_LARGE
    assert (container.edge.circuits, container.engine.closed) == (0, "")


@pytest.mark.parametrize("where", ["properties", "filter"])
async def test_an_attach_that_is_nested_too_deep_ends_its_link_alone(
    chain: Chain, where: str
) -> None:
    chain.container()
    edge = chain.edges(options=LARGE, max_frame=LARGE.max_frame)
    good = edge.client.sender("jobs")
    chain.pump()
    null, deep = b"\x40", nested(3000)
    source = described(0x28, [b"\xa1\x04jobs", *[null] * 6, deep if where == "filter" else null])
    properties = deep if where == "properties" else null
    head = [b"\xa1\x04deep", b"\x52\x05", b"\x41", null, null, source, null, null, null]
    edge.engine.receive(frame_of(0x12, [*head, null, null, null, null, properties]))
    chain.pump()
    refused = edge.client.connection.link_head(proton.Endpoint.REMOTE_CLOSED)
    assert refused.name == "deep"
    # What is too large for a circuit is not looked at further.
    condition = "amqp:decode-error" if where == "properties" else TOO_LARGE[0]
    assert refusal(refused)[0] == condition
    assert (state(good), edge.engine.closed) == ("active", "")
