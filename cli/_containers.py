"""The containers of AMQP of `onward dispatch`: their file, and their connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..actors import Node
from ..actors.dispatch import Dispatcher
from ..protocol import Address
from ..protocol.security import UserPassword
from ..protocol.toml import FileTable, Problems, read_toml
from ..protocol.topology._containers import read_container
from ..transports import TlsOptions
from ..transports.amqp import AmqpContainer, AutoLink, LinkRoute
from ..transports.amqp._container_links import plan_of
from ._access import read_secret
from ._status import CommandError, Status

__all__ = ["ContainerPlan", "Containers", "read_containers"]

MAX_CONTAINERS_FILE: Final = 1024 * 1024
"""Bytes of the file of containers."""

MAX_PROBLEMS: Final = 20
"""Problems of the file that are told at once."""

_DEPTH: Final = 8
_FILE_KEY: Final = "password_file"


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """A container of the file.

    Attributes:
        uri: Its URI.
        links: The links, and the names with links that go through to it.
        tls: The files of certificates; `None`: those of the system.
        credentials: The name and the password, if one is shown.
        certificates: The content of the files, so that others make it another plan.
        name: Its name for an operator; by default its URI.
    """

    uri: str
    links: tuple[AutoLink | LinkRoute, ...]
    tls: TlsOptions | None = None
    credentials: UserPassword | None = None
    certificates: tuple[bytes, ...] = ()
    name: str = ""


def read_containers(path: Path) -> tuple[ContainerPlan, ...]:
    """Read the file of containers.

    Raises:
        FileError: It has problems, or names files that cannot be read; the error lists all of them.
        CommandError: It cannot be read.
    """
    problems = Problems(str(path), MAX_PROBLEMS)
    document = read_toml(_content(path), problems, size=MAX_CONTAINERS_FILE, depth=_DEPTH)
    problems.check()
    top = FileTable(problems, (), document)
    made = [_container(each, path.parent) for each in top.tables("container")]
    top.finish()
    problems.check()
    return tuple(each for each in made if each is not None)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", Status.USAGE) from None


def _container(table: FileTable, folder: Path) -> ContainerPlan | None:
    found = read_container(table)
    if table.has_problem:
        return None
    files = {key: str(folder / name) for key, name in found.files.items()}
    contents: list[bytes] = []
    for key, file in files.items():
        try:
            contents.append(_content(Path(file)))
        except CommandError as error:
            table.add(key, str(error))
    options: dict[str, Any] = dict(files)
    if found.server_name:
        options["server_name"] = found.server_name
    credentials = None
    if found.user:
        try:
            password = read_secret(_FILE_KEY, folder / found.password_file)
            credentials = UserPassword(found.user, password)
        except CommandError as error:
            table.add(_FILE_KEY, str(error).removeprefix(f"{_FILE_KEY}: "))
    if table.has_problem:
        return None
    return ContainerPlan(
        found.uri,
        tuple(plan_of(each.kind, each.address, each.name) for each in found.links),
        TlsOptions(**options) if options else None,
        credentials,
        tuple(contents),
        found.name,
    )


class Containers:
    """The connections to the containers of a file, which is read anew at a reload.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._node: Node | None = None
        self._dispatcher: Dispatcher | None = None
        self._running: dict[ContainerPlan, AmqpContainer] = {}
        self._addresses: dict[ContainerPlan, Address] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> tuple[AmqpContainer, ...]:
        """The containers that there are connections to."""
        return tuple(self._running.values())

    def start(self, node: Node, dispatcher: Dispatcher) -> None:
        """Connect to the containers of the file.

        Raises:
            FileError: The file has problems.
            CommandError: A file cannot be read, or a container cannot be connected to so.
        """
        self._node, self._dispatcher = node, dispatcher
        self._apply(self._made(read_containers(self._path)))

    async def prepare(self) -> Callable[[], object]:
        """Read the file anew; return the function that applies it.

        Raises:
            FileError: The file has problems.
            ValueError: A file cannot be read, or a container cannot be connected to so.
        """
        try:
            plans = await asyncio.to_thread(read_containers, self._path)
            made = self._made(plans)
        except CommandError as error:
            raise ValueError(str(error)) from error
        return lambda: self._apply(made)

    def _made(self, plans: tuple[ContainerPlan, ...]) -> dict[ContainerPlan, AmqpContainer]:
        """Return the container of each plan: those of before stay."""
        dispatcher = self._dispatcher
        if dispatcher is None:
            raise AssertionError("read before the start")
        return {plan: self._running.get(plan) or _made(plan, dispatcher) for plan in plans}

    def _apply(self, wanted: dict[ContainerPlan, AmqpContainer]) -> None:
        node = self._node
        if node is None:
            raise AssertionError("applied before the start")
        for plan in [each for each in self._running if each not in wanted]:
            del self._running[plan]
            task = node.loop.create_task(node.stop_worker(self._addresses.pop(plan)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for plan, container in wanted.items():
            if plan not in self._running:
                self._running[plan] = container
                self._addresses[plan] = _spawned(node, container)

    async def close(self) -> None:
        """Wait for the ends of connections that a reload has ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _spawned(node: Node, container: AmqpContainer) -> Address:
    return node.spawn(lambda: container)


def _made(plan: ContainerPlan, dispatcher: Dispatcher) -> AmqpContainer:
    try:
        return AmqpContainer(
            plan.uri,
            dispatcher,
            plan.links,
            tls=plan.tls,
            credentials=plan.credentials,
            name=plan.name,
        )
    except ModuleNotFoundError as error:
        raise CommandError(f"--containers: {error.msg}", Status.USAGE) from error
    except (ValueError, ssl.SSLError, OSError) as error:
        raise CommandError(f"--containers: {plan.uri}: {error}", Status.USAGE) from error
