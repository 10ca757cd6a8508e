"""The error of a topology file."""

from __future__ import annotations

from ..toml import FileError, Problem

__all__ = ["Problem", "TopologyError"]


class TopologyError(FileError):
    """A topology file cannot be used; it says everything that is wrong with it.

    Further problems than `TopologyLimits.problems` are counted only.
    """
