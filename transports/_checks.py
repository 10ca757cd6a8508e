"""What options may be, for those of several transports."""

from __future__ import annotations

from math import isfinite

__all__ = ["check_counts", "check_kind", "check_times"]


def check_counts(options: object, least: int, *names: str) -> None:
    """Check attributes that are whole numbers.

    Args:
        options: What has them.
        least: The smallest that they may be.
        *names: Those to check.

    Raises:
        ValueError: One is something else, or less.
    """
    for name in names:
        value = getattr(options, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} must be a whole number, not {value!r}")  # noqa: TRY004
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def check_times(
    options: object, *names: str, may_be_zero: bool = False, may_be_none: bool = False
) -> None:
    """Check attributes that are times in seconds.

    Args:
        options: What has them.
        *names: Those to check.
        may_be_zero: Whether 0 is a time; less is none.
        may_be_none: Whether `None` is one.

    Raises:
        ValueError: One is something else.
    """
    for name in names:
        value = getattr(options, name)
        if value is None and may_be_none:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
            raise ValueError(f"{name} must be a number of seconds, not {value!r}")
        if value < 0 or not (value or may_be_zero):
            bound = "at least 0" if may_be_zero else "more than 0"
            raise ValueError(f"{name} must be {bound}, not {value}")


def check_kind(options: object, name: str, *kinds: type) -> None:
    """Check an attribute that is of one of some classes.

    Raises:
        ValueError: It is not.
    """
    value = getattr(options, name)
    if not isinstance(value, kinds):
        wanted = " or ".join("None" if each is type(None) else each.__name__ for each in kinds)
        raise ValueError(f"{name} must be {wanted}, not {value!r}")  # noqa: TRY004
