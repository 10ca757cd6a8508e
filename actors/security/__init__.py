"""Authentication of peers, and authorization of what they do.

An [`Authenticator`][onward.actors.security.Authenticator] knows one method: certificates, tokens.
An [`Authentication`][onward.actors.security.Authentication] tries several in order; a listener has
one, and reads no further frame of a connection until it has decided.

An [`Authorization`][onward.actors.security.Authorization] decides by rules what a principal may
register and request; a broker has one.
"""

from ._authentication import Authentication, AuthenticationOptions, AuthenticationStatistics
from ._authenticator import AnonymousAuthenticator, Authenticator, load_authenticator
from ._authorization import (
    Authorization,
    AuthorizationOptions,
    AuthorizationStatistics,
    Authorizer,
    load_authorizer,
)
from ._callout import CalloutAuthenticator
from ._certificate import CertificateAuthenticator
from ._jwt import JwtAuthenticator, JwtOptions
from ._password import PasswordAuthenticator, PasswordOptions
from ._principals_file import PrincipalsFile, installed_hashes, load_principals
from ._token import TokenAuthenticator
from ._unix import UnixAuthenticator

__all__ = [
    "AnonymousAuthenticator",
    "Authentication",
    "AuthenticationOptions",
    "AuthenticationStatistics",
    "Authenticator",
    "Authorization",
    "AuthorizationOptions",
    "AuthorizationStatistics",
    "Authorizer",
    "CalloutAuthenticator",
    "CertificateAuthenticator",
    "JwtAuthenticator",
    "JwtOptions",
    "PasswordAuthenticator",
    "PasswordOptions",
    "PrincipalsFile",
    "TokenAuthenticator",
    "UnixAuthenticator",
    "installed_hashes",
    "load_authenticator",
    "load_authorizer",
    "load_principals",
]
