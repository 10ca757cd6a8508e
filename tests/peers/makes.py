"""Requesters and destinations of every make, each started by its name."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial

import pytest

from tests.peers.clients import (
    Ask,
    Destination,
    Java,
    JavascriptDestination,
    ProgramDestination,
    ProgramRequester,
    ask_from_javascript,
    start_asking,
    start_destination,
    to_others,
)
from tests.peers.foreign import PeerMissing, built, check_asked
from tests.peers.javascript import node
from tests.peers.jvm import FAST_START, JavaMissing, build
from tests.peers.libraries import LIBRARIES, program, rust_program, words
from tests.peers.programs import Program
from tests.peers.rsocket_client import Outcome

__all__ = ["Makes", "absent", "spring_command", "spring_words", "why_absent"]

SPRING_TIMEOUT = 300.0
"""Seconds. It fetches 30 MB."""


def spring_command() -> list[str]:
    """Return the command of the program of `spring/`, which is built if need be.

    Raises:
        PeerMissing: There is no Java, or the program cannot be built.
    """
    java = shutil.which("java")
    if java is None:
        raise PeerMissing("java is not installed")
    maven = ["mvn", "--quiet", "--batch-mode", "package"]
    target = built("spring", [maven], timeout=SPRING_TIMEOUT) / "target"
    class_path = f"{target}/spring-peer.jar:{target}/lib/*"
    return [java, *FAST_START, "-cp", class_path, "onward.peers.SpringPeer"]


def spring_words(command: Sequence[str], uri: str, service: str, *, asked: str) -> list[str]:
    """Return the command that starts the program as a service, and asks another one."""
    name = f"--io.rsocket.broker.client.service-name={service}"
    return [*command, f"--broker={uri}", name, f"--asked={asked}"]


def absent(makes: Iterable[str]) -> dict[str, str]:
    """Return those of the makes that this machine does not have, with the reasons.

    The others are built if need be, which may need a network: ask before a test enters one of
    namespaces, from which no registry can be reached.

    Raises:
        PeerMissing: Nobody asked for programs to be built.
    """
    check_asked()
    reasons = {make: why_absent(make) for make in makes}
    return {make: reason for make, reason in reasons.items() if reason}


@cache
def why_absent(make: str) -> str:
    """Return why a make is absent, or an empty text; a build that fails is not tried again."""
    try:
        match make:
            case "python" | "onward":
                pass
            case "java":
                build()
            case "spring":
                spring_command()
            case "javascript":
                node()
            case "rust":
                rust_program()
            case _:
                program(make)
    except (JavaMissing, PeerMissing) as error:
        return str(error)
    return ""


class Makes:
    """Clients of every make, at URIs as `access.Access` takes them.

    A test that needs a make which this machine does not have is skipped. The JVM of the Java client
    starts with the first that needs it.

    Args:
        stack: Stops the JVM.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._java: Java | None = None

    async def java(self) -> Java:
        """Return the JVM of the Java client."""
        if self._java is None:
            try:
                self._java = await self._stack.enter_async_context(Java.running())
            except JavaMissing as error:
                pytest.skip(f"Java peer: {error}")
        return self._java

    async def destination(
        self, make: str, uri: str, service: str, stack: AsyncExitStack
    ) -> Destination:
        """Start a destination; the stack stops it."""
        if make in LIBRARIES:
            return await ProgramDestination.run(words(make, "destination", uri, service), stack)
        match make:
            case "spring":
                command = spring_words(_spring(), uri, service, asked=service)
                return await ProgramDestination.run(command, stack)
            case "javascript":
                return await JavascriptDestination.start(_node(), uri, service, stack)
            case _:
                java = await self.java() if make == "java" else None
                return await start_destination(make, java, uri, service, stack)

    async def requester(self, make: str, uri: str, service: str, stack: AsyncExitStack) -> Ask:
        """Start a requester; the stack stops it. Its service is of its own name.

        Returns:
            What asks the service. `INTERACTION@OTHER` asks another one by the same connection, or,
            by a JavaScript one, by another.
        """
        if make in LIBRARIES:
            return (await ProgramRequester.run(words(make, "requester", uri, service), stack)).ask
        match make:
            case "spring":
                command = spring_words(_spring(), uri, "spring-requester", asked=service)
                program = await stack.enter_async_context(Program.running(*command))
                report = await program.report()
                if report != {"event": "ready"}:
                    return lambda _interaction, _argument: _failed(report["message"])
                return ProgramRequester(program).ask
            case "rust":
                command = [_rust(), "requester", uri.removeprefix("tcp://"), service]
                return (await ProgramRequester.run(command, stack)).ask
            case "javascript":
                return to_others(service, partial(ask_from_javascript, _node(), uri))
            case _:
                java = await self.java() if make == "java" else None
                return await start_asking(make, java, uri, service, stack)


def _spring() -> list[str]:
    try:
        return spring_command()
    except PeerMissing as error:
        pytest.skip(f"Spring peer: {error}")


def _rust() -> str:
    try:
        return str(rust_program())
    except PeerMissing as error:
        pytest.skip(f"rsocket_rust peer: {error}")


def _node() -> str:
    try:
        return node()
    except PeerMissing as error:
        pytest.skip(f"JavaScript peer: {error}")


async def _failed(message: str) -> Outcome:
    return Outcome([], None, message)
