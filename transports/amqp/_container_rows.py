"""The figures of a container, and the rows about all of a node for its operator."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ...actors.dispatch._inspection import CONTAINER_LINKS, CONTAINERS

if TYPE_CHECKING:
    from ...actors import Node
    from ._container import AmqpContainer

__all__ = [
    "AmqpContainerState",
    "AmqpContainerStatistics",
    "forget_container",
    "report_container",
]


class AmqpContainerState(Enum):
    """The state of a connection to a container."""

    WAITING = "waiting for the next attempt"
    CONNECTING = "connecting"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class AmqpContainerStatistics:
    """The figures of a connection to a container at one moment.

    Attributes:
        uri: Its URI.
        state: Its state.
        attached: Links of the node itself that the container has attached.
        circuits: Links of clients in the network that go through to the container.
        refused: Links of clients that were refused since the start, as there were
            `AmqpOptions.max_links`.
        connected: Connections that were opened since the start.
        ended: Connections and attempts that have ended since the start, by reason.
        dropped: Messages since the start that were dropped at the edge, by reason.
        name: Its name.
        since: The time of the last change of its state, in seconds since the Unix epoch.
        attempts: Attempts since the connection was open last, the one under way included.
        reason: Why the connection has ended last, or could not be made; empty: it has not.
        links: Links of the node itself, attached or not.
        routes: Names with links that go through to the container, while it serves them.
        unanswered: Attempts since the start to attach a link of the node itself that were given up
            after `AmqpOptions.attach_timeout`.
    """

    uri: str
    state: AmqpContainerState
    attached: int
    circuits: int
    refused: int
    connected: int
    ended: dict[str, int]
    dropped: dict[str, int]
    name: str
    since: float
    attempts: int
    reason: str
    links: int
    routes: int
    unanswered: int


class ContainerRows:
    """The containers that a node has connections to, as rows of a report."""

    def __init__(self) -> None:
        self.containers: Final[dict[AmqpContainer, None]] = {}

    def __call__(self) -> list[dict[str, Any]]:
        """Return a row for each container, by name."""
        found = sorted((each.statistics() for each in self.containers), key=lambda row: row.name)
        return [asdict(each) | {"open": each.state is AmqpContainerState.OPEN} for each in found]

    def of_links(self) -> list[dict[str, Any]]:
        """Return a row for each link of the node itself, and each name with links through."""
        rows = [row for each in self.containers for row in each.link_statistics()]
        rows.sort(key=lambda row: (row.container, row.kind, row.name))
        return [asdict(each) for each in rows]


def report_container(node: Node, container: AmqpContainer) -> None:
    """Show a container to the operator of a node."""
    reports = node.parts.reports
    rows = reports.get(CONTAINERS)
    if not isinstance(rows, ContainerRows):
        # Those of the dispatcher have no rows.
        reports[CONTAINERS] = rows = ContainerRows()
        reports[CONTAINER_LINKS] = rows.of_links
    rows.containers[container] = None


def forget_container(node: Node, container: AmqpContainer) -> None:
    """Show a container no more."""
    rows = node.parts.reports.get(CONTAINERS)
    if isinstance(rows, ContainerRows):
        rows.containers.pop(container, None)
