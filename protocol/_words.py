"""Numbers in texts for people."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str, form: str = "") -> str:
    """Return a number with its noun: `1 byte`, `2 bytes`, `1 address`, `2 addresses`.

    Args:
        number: The number.
        noun: What, in the singular; its plural is regular.
        form: How the number is written, as a format has it: `,` is 2,000 bytes.
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:{form}} {noun}{'es' if noun.endswith('s') else 's'}"
