"""The connections of a dispatcher to containers of AMQP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...protocol.security import UserPassword
from ...protocol.topology import ContainerPlan
from ..dispatch import Dispatcher
from ..security._own_files import read_own_secret
from ._errors import TopologyFailed

__all__ = ["connect_container"]


async def connect_container(dispatcher: Dispatcher, plan: ContainerPlan, directory: str) -> None:
    """Connect to a container, again and again until it is there.

    Args:
        dispatcher: The dispatcher.
        plan: The container.
        directory: The value of `{dir}` in the paths of its files.

    Raises:
        TopologyFailed: It cannot be connected to so: a file cannot be read, or has the wrong
            contents.
    """

    def path(file: str) -> str:
        return file.replace("{dir}", directory)

    options: dict[str, Any] = {"dispatcher": dispatcher, "name": plan.name}
    options["links"] = [(each.kind, each.address, each.name) for each in plan.links]
    try:
        tls = {key: path(file) for key, file in plan.files.items()}
        if plan.server_name:
            tls["server_name"] = plan.server_name
        if tls:
            options["tls"] = tls
        if plan.user:
            password = read_own_secret(Path(path(plan.password_file)))
            options["credentials"] = UserPassword(plan.user, password)
        await dispatcher.node.connect(plan.uri, **options)
    except Exception as error:
        # A transport may be a third party's, which may raise any exception.
        told = str(error) or type(error).__name__
        raise TopologyFailed(plan.place, f"cannot connect to {plan.uri}: {told}") from error
