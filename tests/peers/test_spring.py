"""Programs of Spring Boot with `rsocket-broker-client-spring` through the broker, both roles.

A destination is a controller with `@MessageMapping`, a requester a `BrokerRSocketRequester` whose
addresses are properties.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.peers import onward_client
from tests.peers.clients import APPLICATION_ERROR, ProgramDestination, ProgramRequester
from tests.peers.foreign import PeerMissing
from tests.peers.makes import spring_command, spring_words
from tests.peers.onward_client import OnwardDestination
from tests.peers.programs import Program, running_broker
from tests.peers.rsocket_client import CREDIT, Outcome, Received

pytestmark = [
    pytest.mark.peer(requester="spring", destination="spring"),
    pytest.mark.asyncio(loop_scope="module"),
]

ASKED, OTHER = "orders", "returns"

on_the_module = pytest_asyncio.fixture(scope="module", loop_scope="module")
Command = list[str]


@pytest.fixture(scope="session")
def command() -> Command:
    """The command of the program of `spring/`."""
    try:
        return spring_command()
    except PeerMissing as error:
        pytest.skip(f"Spring peer: {error}")


@on_the_module
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@on_the_module
async def broker(command: Command) -> AsyncGenerator[str]:
    assert command
    with running_broker() as uris:
        yield uris["tcp"]


@on_the_module
async def destination(command: Command, broker: str, stack: AsyncExitStack) -> ProgramDestination:
    """What answers as `ASKED`. A JVM with Spring takes seconds to start, so the tests share it."""
    return await ProgramDestination.run(spring_words(command, broker, ASKED, asked=ASKED), stack)


@on_the_module
async def requester(command: Command, broker: str, stack: AsyncExitStack) -> ProgramRequester:
    """What asks."""
    words = spring_words(command, broker, "spring-requester", asked=ASKED)
    program = await stack.enter_async_context(Program.running(*words))
    assert await program.report() == {"event": "ready"}
    return ProgramRequester(program)


async def test_request_response(
    requester: ProgramRequester, destination: ProgramDestination
) -> None:
    assert await requester.ask("request_response", "hello") == Outcome(["hello from spring"])
    assert await destination.received() == Received("request_response", "hello", "echo")


async def test_fire_and_forget(
    requester: ProgramRequester, destination: ProgramDestination
) -> None:
    assert await requester.ask("fire_and_forget", "hello") == Outcome([])
    assert await destination.received() == Received("fire_and_forget", "hello", "note")


async def test_metadata_push(requester: ProgramRequester, destination: ProgramDestination) -> None:
    assert await requester.ask("metadata_push", "news") == Outcome([])
    assert await destination.received() == Received("metadata_push", "", "news")


async def test_request_stream(requester: ProgramRequester, destination: ProgramDestination) -> None:
    outcome = await requester.ask("request_stream", "200")
    assert outcome == Outcome([f"{n} from spring" for n in range(1, 201)])
    assert await destination.received() == Received("request_stream", "200", "echo")


async def test_a_canceled_stream_stops_within_its_credit(
    requester: ProgramRequester, destination: ProgramDestination
) -> None:
    outcome = await requester.ask("first_of_stream", "3")
    assert outcome == Outcome([f"{n} from spring" for n in range(1, 4)])
    await destination.received()
    assert 3 <= await destination.canceled() <= 3 + CREDIT


async def test_request_channel(
    requester: ProgramRequester, destination: ProgramDestination
) -> None:
    outcome = await requester.ask("request_channel", "a,b,c,d,e,f,g,h")
    assert outcome == Outcome([f"{letter} from spring" for letter in "abcdefgh"])
    assert await destination.received() == Received("request_channel", "a", "echo")


async def test_an_error_of_the_destination(
    requester: ProgramRequester, destination: ProgramDestination
) -> None:
    outcome = await requester.ask("request_response", "fail")
    assert outcome.code == APPLICATION_ERROR
    assert outcome.message == "refused by spring"
    await destination.received()


@pytest.mark.peer(requester="onward")
@pytest.mark.parametrize(
    ("interaction", "argument", "expected"),
    [
        ("request_response", "hello", ["hello from spring"]),
        ("request_stream", "12", [f"{n} from spring" for n in range(1, 13)]),
        ("request_channel", "a,b,c", ["a from spring", "b from spring", "c from spring"]),
    ],
)
async def test_a_client_of_onward_asks_it(
    broker: str,
    destination: ProgramDestination,
    interaction: str,
    argument: str,
    expected: list[str],
) -> None:
    async with onward_client.connect(broker, "onward-requester") as client:
        assert await onward_client.ask(client, ASKED, interaction, argument) == Outcome(expected)
    assert (await destination.received()).interaction == interaction


@pytest.mark.peer(destination="onward")
async def test_of_two_addresses_the_last_counts(
    requester: ProgramRequester, destination: ProgramDestination, broker: str
) -> None:
    # Its route has an address by configuration, and the program gives another.
    other = OnwardDestination()
    await other.start(broker, OTHER)
    assert await requester.ask(f"request_response@{OTHER}", "hello") == Outcome(
        ["hello from onward"]
    )
    await other.kill()
    assert await requester.ask("request_response", "own") == Outcome(["own from spring"])
    assert (await destination.received()).data == "own"


@pytest.mark.peer(destination="spring, onward")
async def test_a_sticky_user(
    requester: ProgramRequester, destination: ProgramDestination, broker: str
) -> None:
    second = OnwardDestination()
    await second.start(broker, ASKED)
    for user in ("7", "8", "9"):
        answers = [await requester.ask("for_user", user) for _ in range(4)]
        assert {outcome.code for outcome in answers} == {None}
        assert len({each for outcome in answers for each in outcome.elements}) == 1
        if answers[0].elements == [f"{user} from spring"]:
            for _ in answers:
                assert (await destination.received()).data == user
    await second.kill()
