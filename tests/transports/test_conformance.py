"""Stream transports with TLS against the suite that every transport is held to.

Those without are run in the suite's own tests.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from onward.transports import TlsOptions
from onward.transports.testing import CASES, Case, known_claims, run_case
from tests.support.certificates import Certificates
from tests.support.counts import exhaustive

PLACES = {"tls": "tls://127.0.0.1:0", "wss": "wss://127.0.0.1:0/a/path", "uds": "uds://{tmp}/{n}"}
SCHEMES = ["tls", *exhaustive("uds", "wss")]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_with_tls(case: Case, scheme: str, certificates: Certificates) -> None:
    named: TlsOptions = replace(certificates.named, server_name="localhost")
    claims = replace(
        known_claims(PLACES[scheme]),
        address_type=None,  # the certificates are options, which addresses have none of
        listen_options={"tls": certificates.strict},
        connect_options={"tls": named},
    )
    if case.unclaimed(claims):
        pytest.skip("not claimed")
    run_case(case, PLACES[scheme], claims)
