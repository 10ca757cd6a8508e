"""Clients of the Java reference client `BrokerRSocketConnector` through the broker, both roles.

Each interaction runs for pairs of requester and destination: Java and Java, and Java with the
`rsocket` package of Python and with Onward's own client both ways; and over TCP and over
WebSocket. What only Java can say
(error codes of its own, tags, multicast) runs for Java and Java. Two JVMs, one for each role,
serve all tests of the module.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, AsyncExitStack

import pytest
import pytest_asyncio

from tests.peers.access import secured
from tests.peers.clients import (
    CANCELED,
    INVALID,
    REJECTED,
    Ask,
    Destination,
    Java,
    JavaDestination,
    JavaRequester,
    start_asking,
    start_destination,
)
from tests.peers.interactions import Interactions, MetadataPush
from tests.peers.programs import TRANSPORTS, running_broker
from tests.peers.rsocket_client import Outcome, Received
from tests.support.certificates import Certificates

pytestmark = [pytest.mark.peer, pytest.mark.asyncio(loop_scope="module")]

PAIRS = [
    ("java", "java"),
    ("java", "python"),
    ("python", "java"),
    ("java", "onward"),
    ("onward", "java"),
]

on_the_loop = pytest_asyncio.fixture(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncGenerator[dict[str, str]]:
    """The URIs of a broker. The tests share it, each with a service of its own."""
    with running_broker(transports=TRANSPORTS) as uris:
        yield uris


def rejecting_broker(transport: str) -> AbstractContextManager[dict[str, str]]:
    """A broker where no request waits."""
    return running_broker("--no-route-timeout", "0", transports=[transport])


@pytest.fixture
def uri(broker: dict[str, str], transport: str) -> str:
    return broker[transport]


@pytest.fixture(params=PAIRS, ids="-".join)
def languages(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The languages of the requester and of the destination."""
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture
def answerer(languages: tuple[str, str]) -> str:
    """The language of the destination, which its answers name."""
    return languages[1]


@on_the_loop
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@on_the_loop
async def destination(
    destinations: Java, uri: str, service: str, answerer: str, stack: AsyncExitStack
) -> Destination:
    return await start_destination(answerer, destinations, uri, service, stack)


@pytest.fixture
def lost() -> set[int | None]:
    """What the code of the error can be when a destination is lost."""
    return {CANCELED}


async def java_destination(
    java: Java, uri: str, service: str, stack: AsyncExitStack, tags: dict[str, str] | None = None
) -> JavaDestination:
    """Connect a destination; the stack closes it."""
    destination = await JavaDestination.start(java, uri, service, tags)
    stack.push_async_callback(destination.kill)
    return destination


@on_the_loop
async def java(requesters: Java, uri: str, stack: AsyncExitStack) -> JavaRequester:
    requester = await JavaRequester.start(requesters, uri)
    stack.push_async_callback(requester.close)
    return requester


@on_the_loop
async def ask(
    requesters: Java, uri: str, service: str, languages: tuple[str, str], stack: AsyncExitStack
) -> Ask:
    return await start_asking(languages[0], requesters, uri, service, stack)


# --- interactions -------------------------------------------------------------------------------
class TestInteractions(Interactions, MetadataPush):
    """Each interaction."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("transport", ["tls", "wss"])
async def test_tls(
    requesters: Java,
    destinations: Java,
    certificates: Certificates,
    transport: str,
    languages: tuple[str, str],
    service: str,
) -> None:
    options = ("--certificate", str(certificates.server))
    with running_broker(*options, transports=[transport]) as uris:
        uri = secured(uris[transport], authority=certificates.authority)
        async with AsyncExitStack() as stack:
            await start_destination(languages[1], destinations, uri, service, stack)
            ask = await start_asking(languages[0], requesters, uri, service, stack)
            for interaction, argument, elements in (
                ("request_response", "a" * 20_000, ["a" * 20_000]),
                ("request_stream", "12", [str(number) for number in range(1, 13)]),
                ("request_channel", "a,b,c", ["a", "b", "c"]),
            ):
                outcome = await ask(interaction, argument)
                assert outcome == Outcome([f"{each} from {languages[1]}" for each in elements])


@pytest.mark.peer(destination="nobody", transport="none")
@pytest.mark.parametrize("command", ["close", "request", "dance"])
async def test_a_command_that_fails_is_answered(requesters: Java, command: str) -> None:
    answer = await requesters.do(do=command, connection=0)
    assert answer["outcome"] == "failed"
    assert f'"do":"{command}"' in answer["message"]


# --- what only Java says ------------------------------------------------------------------------
@pytest.mark.parametrize("code", [0x201, 0x202, 0x203, 0x204, 0x301, 0x7FFFFFFF])
async def test_each_error_code_arrives_unchanged(
    java: JavaRequester,
    destinations: Java,
    uri: str,
    service: str,
    stack: AsyncExitStack,
    code: int,
) -> None:
    await java_destination(destinations, uri, service, stack)
    outcome = await java.ask(service, "request_response", f"fail {code}")
    assert outcome == Outcome([], code, "refused by java")


async def test_an_answer_of_nothing_is_completion(
    java: JavaRequester, destinations: Java, uri: str, service: str, stack: AsyncExitStack
) -> None:
    await java_destination(destinations, uri, service, stack)
    assert await java.ask(service, "request_response", "nothing") == Outcome([])


async def test_a_requester_that_leaves_cancels_what_it_asked(
    java: JavaRequester, destinations: Java, uri: str, service: str, stack: AsyncExitStack
) -> None:
    destination = await java_destination(destinations, uri, service, stack)
    pending = asyncio.ensure_future(java.ask(service, "request_response", "hold"))
    await destination.received()
    await java.close()
    assert await destination.canceled() == 0
    # Its own end of the connection is closed, which is no error that the broker sent.
    assert (await pending).code is None


async def test_a_request_to_a_killed_process_is_canceled(
    java: JavaRequester, uri: str, service: str, stack: AsyncExitStack
) -> None:
    jvm = await stack.enter_async_context(Java.running())
    destination = await java_destination(jvm, uri, service, AsyncExitStack())
    pending = asyncio.ensure_future(java.ask(service, "request_response", "hold"))
    await destination.received()
    await jvm.kill()
    assert (await pending).code == CANCELED


@pytest.mark.peer(destination="nobody")
async def test_an_unroutable_request_is_rejected(
    requesters: Java, transport: str, service: str
) -> None:
    with rejecting_broker(transport) as uris:
        requester = await JavaRequester.start(requesters, uris[transport])
        outcome = await requester.ask(service, "request_stream", "12")
        await requester.close()
    assert (outcome.elements, outcome.code) == ([], REJECTED)
    assert outcome.message
    assert service in outcome.message


async def test_a_request_waits_for_its_destination(
    java: JavaRequester, destinations: Java, uri: str, service: str, stack: AsyncExitStack
) -> None:
    pending = asyncio.ensure_future(java.ask(service, "request_response", "hello"))
    await java_destination(destinations, uri, service, stack)
    assert await pending == Outcome(["hello from java"])


async def test_a_shard_request_is_invalid_without_a_key_to_shard_by(
    java: JavaRequester, destinations: Java, uri: str, service: str, stack: AsyncExitStack
) -> None:
    await java_destination(destinations, uri, service, stack)
    outcome = await java.ask(service, "request_response", "hello", routing="SHARD")
    assert (outcome.elements, outcome.code) == ([], INVALID)


async def test_a_reserved_service_is_refused(destinations: Java, uri: str) -> None:
    destination = await JavaDestination.start(destinations, uri, "onward.management")
    await destination.closed()


@pytest.mark.parametrize("across", [("tcp", "ws"), ("ws", "tcp")], ids="-".join)
async def test_requester_and_destination_need_not_share_a_transport(
    requesters: Java,
    destinations: Java,
    broker: dict[str, str],
    service: str,
    stack: AsyncExitStack,
    across: tuple[str, str],
) -> None:
    asked_by, answered_by = across
    await java_destination(destinations, broker[answered_by], service, stack)
    requester = await JavaRequester.start(requesters, broker[asked_by])
    outcome = await requester.ask(service, "request_channel", "a,b,c,d,e,f,g,h")
    await requester.close()
    assert outcome == Outcome([f"{letter} from java" for letter in "abcdefgh"])


@pytest.mark.peer(transport="ws")
async def test_a_requester_dials_the_name_of_the_brokers_machine(
    requesters: Java, destinations: Java, broker: dict[str, str], service: str
) -> None:
    # Its handshake names that as origin.
    name = socket.gethostname()
    try:
        found = socket.gethostbyname(name)
    except OSError:
        found = "nothing"
    if not found.startswith("127."):
        pytest.skip(f"the name of this machine stands for {found}, and brokers listen on 127.0.0.1")
    uri = broker["ws"]
    destination = await JavaDestination.start(destinations, uri, service)
    requester = await JavaRequester.start(requesters, uri.replace("127.0.0.1", name))
    assert await requester.ask(service, "request_response", "hello") == Outcome(["hello from java"])
    await requester.close()
    await destination.kill()


# --- fragments and leases of the library itself -------------------------------------------------
LONG = "x" * 500


@pytest.mark.parametrize(
    ("asks", "answers"), [(64, 0), (0, 64), (64, 64)], ids=["requests", "answers", "both"]
)
async def test_payloads_in_fragments(
    requesters: Java,
    destinations: Java,
    uri: str,
    service: str,
    stack: AsyncExitStack,
    asks: int,
    answers: int,
) -> None:
    requester = await JavaRequester.start(requesters, uri, fragment=asks)
    stack.push_async_callback(requester.close)
    destination = await JavaDestination.start(destinations, uri, service, fragment=answers)
    stack.push_async_callback(destination.kill)
    for text in (LONG, "short", LONG):
        answer = Outcome([f"{text} from java"])
        assert await requester.ask(service, "request_response", text) == answer
        assert await destination.received() == Received("request_response", text, "echo")
    await requester.ask(service, "fire_and_forget", LONG)
    assert await destination.received() == Received("fire_and_forget", LONG, "echo")
    many = Outcome([f"{n} from java" for n in range(1, 301)])
    assert await requester.ask(service, "request_stream", "300") == many
    elements = [LONG, "short", LONG]
    outcome = await requester.ask(service, "request_channel", ",".join(elements))
    assert outcome == Outcome([f"{each} from java" for each in elements])


async def test_a_destination_gets_as_many_requests_as_it_leases(
    requesters: Java, destinations: Java, uri: str, service: str, stack: AsyncExitStack
) -> None:
    # The requester asks for leases too, and is granted those of the broker.
    requester = await JavaRequester.start(requesters, uri, lease=1)
    stack.push_async_callback(requester.close)
    found: dict[str, JavaDestination] = {}
    for name, options in (("leases", {"lease": 3}), ("takes all", {})):
        tags = {"INSTANCE_NAME": name}
        found[name] = await JavaDestination.start(destinations, uri, service, tags, **options)
        stack.push_async_callback(found[name].kill)
        asked = {"SERVICE_NAME": service, "INSTANCE_NAME": name}
        # Until the broker has its lease, which takes nothing of it.
        while (await requester.ask(asked, "request_response", "up?")).code == REJECTED:
            pass
        assert (await found[name].received()).data == "up?"
    for _ in range(8):
        outcome = await requester.ask(service, "request_response", "hello")
        assert outcome == Outcome(["hello from java"])
    for name, count in (("leases", 2), ("takes all", 6)):
        for _ in range(count):
            assert (await found[name].received()).data == "hello"
    alone = {"SERVICE_NAME": service, "INSTANCE_NAME": "leases"}
    assert (await requester.ask(alone, "request_response", "one more")).code == REJECTED


# --- which destination --------------------------------------------------------------------------
class Several:
    """Three destinations of one service, whose instances are called 1, 2 and 3.

    Attributes:
        tags: The tag that all of them carry, and no others do.
        destinations: They, by the name of the instance.
    """

    def __init__(self, service: str, destinations: dict[str, JavaDestination]) -> None:
        self.tags = {"SERVICE_NAME": service}
        self.destinations = destinations

    async def receive(self, expected: Received) -> None:
        """Wait until each of them got this, and nothing else before."""
        for destination in self.destinations.values():
            assert await destination.received() == expected


@on_the_loop
async def several(
    java: JavaRequester, destinations: Java, uri: str, service: str, stack: AsyncExitStack
) -> Several:
    found: dict[str, JavaDestination] = {}
    for name in ("1", "2", "3"):
        tags = {"INSTANCE_NAME": name, "REGION": "eu", "colour": "grey", "LB_METHOD": "weighted"}
        found[name] = await java_destination(destinations, uri, service, stack, tags)
        # Nothing tells a destination when the broker has registered it; an answer does.
        await java.ask({"SERVICE_NAME": service, "INSTANCE_NAME": name}, "request_response", "up?")
        await found[name].received()
    return Several(service, found)


async def test_all_tags_of_a_request_have_to_match(java: JavaRequester, several: Several) -> None:
    asked = {**several.tags, "REGION": "eu", "colour": "grey", "INSTANCE_NAME": "2"}
    assert await java.ask(asked, "request_response", "hello") == Outcome(["hello from java"])
    second = several.destinations["2"]
    assert await second.received() == Received("request_response", "hello", "echo")
    # As the Java client reads the ADDRESS that it was sent.
    assert second.tags == asked


async def test_destinations_of_a_service_take_turns(java: JavaRequester, several: Several) -> None:
    for _ in range(6):
        await java.ask(several.tags, "fire_and_forget", "note")
    # Two for each, so that none is left.
    for _ in range(2):
        await several.receive(Received("fire_and_forget", "note", "echo"))


async def test_a_method_hint_is_taken_from_the_tags(java: JavaRequester, several: Several) -> None:
    asked = {**several.tags, "LB_METHOD": "weighted"}
    outcomes = [await java.ask(asked, "request_response", "hello") for _ in range(3)]
    assert outcomes == [Outcome(["hello from java"])] * 3


@pytest.mark.parametrize("routing", ["SHARD", "UNICAST"])
async def test_a_sticky_user(java: JavaRequester, several: Several, routing: str) -> None:
    named = "SHARD_KEY" if routing == "SHARD" else "STICKY_ROUTE_KEY"
    asked = {**several.tags, "USER_NAME": "7", named: "user"}
    for number in range(6):
        await java.ask(asked, "fire_and_forget", f"note {number}", routing=routing)
    # An answer from each shows that nothing else is under way to it.
    got: list[str] = []
    for name, destination in several.destinations.items():
        await java.ask({**several.tags, "INSTANCE_NAME": name}, "request_response", "last")
        while (data := (await destination.received()).data) != "last":
            got.append(f"{name} {data}")
    assert len(got) == 6
    assert len({each.partition(" ")[0] for each in got}) == 1


@pytest.mark.peer(destination="nobody")
async def test_a_tag_says_that_a_request_does_not_wait(java: JavaRequester, service: str) -> None:
    asked = {"SERVICE_NAME": service, "BROKER_EXTENSION": "@no-route=reject"}
    assert (await java.ask(asked, "request_response", "hello")).code == REJECTED


async def test_a_route_id_is_a_tag(
    java: JavaRequester, destinations: Java, uri: str, service: str, stack: AsyncExitStack
) -> None:
    first, second = [
        await java_destination(destinations, uri, service, stack, None) for _ in range(2)
    ]
    for destination in (first, second, second, first):
        # Java's own text for an id is `Id{...}`, and its users ask by that.
        asked = {"SERVICE_NAME": service, "ROUTE_ID": f"Id{{{destination.route_id}}}"}
        assert await java.ask(asked, "request_response", "hello") == Outcome(["hello from java"])
        assert (await destination.received()).data == "hello"


# --- multicast ----------------------------------------------------------------------------------
@on_the_loop
async def multicast(java: JavaRequester, several: Several) -> Several:
    """Three destinations, where the broker can send to all of them."""
    outcome = await java.ask(several.tags, "fire_and_forget", "to all", routing="MULTICAST")
    assert outcome == Outcome([])
    await several.receive(Received("fire_and_forget", "to all", "echo"))
    return several


async def test_a_multicast_push_reaches_all(java: JavaRequester, multicast: Several) -> None:
    await java.ask(multicast.tags, "metadata_push", "news", routing="MULTICAST")
    await multicast.receive(Received("metadata_push", "", "news"))


async def test_the_first_multicast_answer_cancels_others(
    java: JavaRequester, multicast: Several
) -> None:
    for name in multicast.destinations:
        text = f"only {name}"
        outcome = await java.ask(multicast.tags, "request_response", text, routing="MULTICAST")
        assert outcome == Outcome([f"{text} from java"])
        await multicast.receive(Received("request_response", text, "echo"))
        for other, destination in multicast.destinations.items():
            if other != name:
                assert await destination.canceled() == 0


async def test_a_multicast_stream_is_that_of_all(java: JavaRequester, multicast: Several) -> None:
    outcome = await java.ask(multicast.tags, "request_stream", "20", routing="MULTICAST")
    assert outcome.code is None
    assert Counter(outcome.elements) == {f"{n} from java": 3 for n in range(1, 21)}


async def test_a_canceled_multicast_cancels_all_legs(
    java: JavaRequester, multicast: Several
) -> None:
    outcome = await java.ask(multicast.tags, "first_of_stream", "3", routing="MULTICAST")
    assert len(outcome.elements) == 3
    for destination in multicast.destinations.values():
        await destination.received()
        await destination.canceled()


async def test_a_multicast_channel_reaches_all(java: JavaRequester, multicast: Several) -> None:
    outcome = await java.ask(multicast.tags, "request_channel", "a,b,c", routing="MULTICAST")
    assert outcome.code is None
    assert Counter(outcome.elements) == {f"{letter} from java": 3 for letter in "abc"}


async def test_an_error_ends_a_multicast(java: JavaRequester, multicast: Several) -> None:
    outcome = await java.ask(multicast.tags, "request_response", "fail 769", routing="MULTICAST")
    assert outcome == Outcome([], 769, "refused by java")


@pytest.mark.peer(destination="nobody")
async def test_an_unroutable_multicast_fails(
    requesters: Java, transport: str, service: str
) -> None:
    with rejecting_broker(transport) as uris:
        requester = await JavaRequester.start(requesters, uris[transport])
        outcome = await requester.ask(service, "request_response", "hello", routing="MULTICAST")
        await requester.close()
    assert (outcome.elements, outcome.code) == ([], REJECTED)
