"""Public classes that are compiled have no subclasses elsewhere, in both builds alike."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.actors import Node
from onward.protocol._closed import close_class
from tests.support.compiled import COMPILED

ROOT = Path(__file__).parents[2]
PACKAGES = ("onward.protocol", "onward.actors", "onward.transports")
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPILED_MODULES = frozenset(CONFIG["tool"]["onward"]["compile"]["modules"])


def public_modules() -> Iterator[str]:
    for package in PACKAGES:
        yield package
        for found in pkgutil.walk_packages(
            importlib.import_module(package).__path__, package + "."
        ):
            if "._" not in found.name:
                yield found.name


def public_classes() -> dict[str, type]:
    """Return the public classes that `make compiled` compiles."""
    found: dict[str, type] = {}
    for name in public_modules():
        module = importlib.import_module(name)
        for exported in getattr(module, "__all__", ()):
            thing = getattr(module, exported)
            if inspect.isclass(thing) and thing.__module__ in COMPILED_MODULES:
                found[thing.__qualname__] = thing
    return found


def is_native(cls: type) -> bool:
    """Whether mypyc makes a class of its own of it: no metaclass, no built-in base, no protocol."""
    plain = type(cls) is type and not {tuple, BaseException} & {*cls.__mro__}
    return plain and cls.__mro__[-1] is object and not getattr(cls, "_is_protocol", False)


NATIVE = {name: cls for name, cls in public_classes().items() if is_native(cls)}


def test_there_are_such_classes() -> None:
    assert {"Node", "Frame", "Connection", "Stream", "Exchange", "Ask"} <= NATIVE.keys()


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_a_public_class_that_is_compiled_is_closed(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} cannot have subclasses$"):
        type("Sub", (NATIVE[name],), {})


@pytest.mark.parametrize(
    "name", sorted(name for name, cls in public_classes().items() if not is_native(cls))
)
def test_any_other_public_class_has_subclasses(name: str) -> None:
    assert type(public_classes()[name])("Sub", (public_classes()[name],), {})


@pytest.mark.skipif(COMPILED, reason="closes a class of this test, which is not compiled")
def test_the_package_itself_may_have_subclasses() -> None:
    class Closed:
        pass

    close_class(Closed)
    inside = type("Inside", (Closed,), {"__module__": "onward.inside"})
    assert issubclass(inside, Closed)
    with pytest.raises(TypeError, match="Closed cannot have subclasses"):
        type("Outside", (inside,), {})


def test_a_node_is_not_subclassed() -> None:
    with pytest.raises(TypeError, match="Node cannot have subclasses"):
        type("Mine", (Node,), {})
