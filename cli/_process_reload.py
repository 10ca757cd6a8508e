"""The reload of all processes of `onward broker --processes`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..actors import Reloads
from ._process import DECISION
from ._process_channel import ChannelClosed, Said
from ._process_slot import Child
from ._status import CommandError

__all__ = ["Together", "said_by"]


class Together(Reloads):
    """The reload of all processes, with the own parts of this one."""

    def __init__(self, serving: Callable[[], Sequence[Child]]) -> None:
        super().__init__()
        self._serving = serving

    async def reload(self) -> tuple[str, ...]:
        """Read all anew in all processes, and apply it if all can use it.

        Raises:
            ReloadFailed: Some cannot be used; nothing has changed.
        """
        async with self.prepared() as apply:
            children = self._serving()
            try:
                errors = await self._of_all(children, "prepare")
                if errors:
                    raise self.refused(errors)
            except BaseException:
                await self._of_all(children, "abort")
                raise
            own = apply()
            said = [await said_by(each, "apply") for each in children]
        parts: list[str] = [part for each in said for part in each.get("parts", ())]
        return tuple(dict.fromkeys((*own, *parts)))

    async def _of_all(self, children: Sequence[Child], what: str) -> dict[str, str]:
        """Ask all processes; return the errors, each part once."""
        errors: dict[str, str] = {}
        for child, said in zip(
            children, await asyncio.gather(*(said_by(each, what) for each in children)), strict=True
        ):
            if "failed" in said:
                errors[f"process {child.place.index}"] = said["failed"]
            for part, error in said.get("errors", {}).items():
                errors.setdefault(part, error)
        return errors


async def said_by(child: Child, what: str) -> Said:
    """Return the answer of a process; one that has ended says nothing, and reads all anew."""
    try:
        return await child.ask(what, DECISION)
    except ChannelClosed:
        return {}
    except CommandError as error:
        return {"failed": str(error)}
