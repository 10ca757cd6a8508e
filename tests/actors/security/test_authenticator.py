"""Methods of authentication that are plug-ins."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from onward.actors.security import (
    AnonymousAuthenticator,
    Authenticator,
    _authenticator,
    load_authenticator,
)


def test_authenticators_are_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(group: str) -> list[EntryPoint]:
        assert group == "onward.authenticators"
        made = {"guests": "onward.actors.security:AnonymousAuthenticator", "text": "builtins:str"}
        return [EntryPoint(name, value, group) for name, value in made.items()]

    monkeypatch.setattr(_authenticator, "entry_points", installed)
    made: Authenticator = load_authenticator("guests", roles=frozenset({"guest"}))
    assert isinstance(made, AnonymousAuthenticator)
    with pytest.raises(TypeError, match="the plug-in 'text' makes str, which is no Authenticator"):
        load_authenticator("text")
    with pytest.raises(TypeError):
        load_authenticator("guests", colour="blue")
    with pytest.raises(ValueError, match="'ldap'; there are: guests, text"):
        load_authenticator("ldap")
