"""The files of the console: what is served, what is vendored, and how large it is."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onward.protocol.security import BearerToken, Principal
from onward.transports.admin import AdminPaths, json_response
from onward.transports.admin._console_paths import add_console, console_files
from tests.support.http_peer import Answer, Served, serving
from tests.support.security import gated
from tests.transports.admin.test_interface import world

FOLDER = Path(__file__).resolve().parents[3] / "transports" / "admin" / "console"
VENDOR = FOLDER / "vendor"
MOST = 150_000
"""The most bytes that a browser loads for the console."""


async def get(served: Served, path: str, *fields: str) -> Answer:
    return await (await served.connect()).get(path, *fields)


async def test_the_page_and_its_files_are_served_with_their_types() -> None:
    paths = AdminPaths()
    add_console(paths)
    async with serving(paths) as served:
        page = await get(served, "/")
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert page.headers["cache-control"] == "no-store"
        digest = console_files().digest
        names = re.findall(r'"/console/([0-9a-f]+)/([^"]+)"', page.body.decode())
        assert names == [(digest, "icon.svg"), (digest, "console.css"), (digest, "app.js")]
        for name, content in console_files().files.items():
            answer = await get(served, f"/console/{digest}/{name}")
            assert (answer.status, answer.body) == (200, content)
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert (
                answer.headers["content-type"].split(";")[0]
                == {
                    "css": "text/css",
                    "html": "text/html",
                    "js": "text/javascript",
                    "svg": "image/svg+xml",
                }[name.rpartition(".")[2]]
            )


@pytest.mark.parametrize(
    "path",
    [
        "/console/",
        "/console/x",
        "/console/{digest}",
        "/console/{digest}/",
        "/console/{digest}/none.js",
        "/console/{digest}/__init__.py",
        "/console/{digest}/../../_guard.py",
        "/console/{digest}/%2e%2e/_guard.py",
        "/console/{digest}//etc/passwd",
        "/console/0000000000000000/app.js",
    ],
)
async def test_nothing_else_is_served(path: str) -> None:
    paths = AdminPaths()
    add_console(paths)
    async with serving(paths) as served:
        answer = await get(served, path.format(digest=console_files().digest))
        assert (answer.status, answer.body) == (404, b"there is no such file\n")


async def test_no_page_may_run_or_load_anything_of_elsewhere() -> None:
    async with world() as w:
        for path in ("/", "/api/v1/self", "/nowhere"):
            headers = (await w.get(path)).headers
            assert headers["content-security-policy"] == (
                "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            )
            assert "set-cookie" not in headers
    for name, content in console_files().files.items():
        text = content.decode()
        assert "eval(" not in text, name
        assert "new Function" not in text, name
        assert "innerHTML" not in text or name.startswith("vendor/"), name
        hosts = set(re.findall(r"https?://[\w.]+", text)) - {"http://www.w3.org"}
        assert hosts == set(), name
    page = console_files().files["index.html"].decode()
    assert not re.search(r"<style|style=|<script(?![^>]*\ssrc=)|\son\w+=", page)


async def test_the_page_needs_no_credentials_and_asks_for_them_in_its_own_way() -> None:
    paths = AdminPaths()
    add_console(paths)

    async def answer(_: Any) -> Any:
        return json_response({})

    paths.add("/api/v1/self", answer)
    _, authentication = gated({BearerToken(b"good"): Principal("ann", "test")})
    async with serving(paths, authentication=authentication) as served:
        assert (await get(served, "/")).status == 200
        by_script = await get(served, "/api/v1/self", "Sec-Fetch-Dest: empty")
        # A browser answers a challenge for Basic itself, and not the page.
        assert (by_script.status, by_script.headers["www-authenticate"]) == (
            401,
            'Bearer realm="onward"',
        )
        prompt = await get(served, "/sign-in", "Sec-Fetch-Dest: document")
        assert prompt.status == 401
        assert prompt.headers["www-authenticate"].startswith("Basic ")
        signed = await get(served, "/sign-in", "Authorization: Bearer good")
        assert (signed.status, signed.headers["location"]) == (303, "/")


def test_the_console_is_small() -> None:
    files = console_files().files
    assert sum(map(len, files.values())) < MOST
    assert {"index.html", "console.css", "app.js", "vendor/htm-preact.js"} <= set(files)


def test_what_is_vendored_is_as_it_was_shipped() -> None:
    manifest: list[dict[str, Any]] = json.loads((VENDOR / "vendored.json").read_text())
    listed = {"vendored.json"}
    for each in manifest:
        content = (VENDOR / each["file"]).read_bytes()
        assert len(content) == each["bytes"]
        assert hashlib.sha256(content).hexdigest() == each["sha256"]
        assert each["license"] in ("MIT", "Apache-2.0")
        assert (VENDOR / each["licenseFile"]).stat().st_size > 500
        listed |= {each["file"], each["licenseFile"]}
    assert {file.name for file in VENDOR.iterdir()} == listed


def test_each_file_that_is_imported_is_there() -> None:
    files = console_files().files
    for name, content in files.items():
        if name.endswith(".js") and not name.startswith("vendor/"):
            for imported in re.findall(r'from "\./([^"]+)"', content.decode()):
                assert imported in files, (name, imported)


def test_the_files_are_not_read_before_they_are_asked_for() -> None:
    program = (
        "from onward.actors import Node; from onward.actors.monitoring import Monitor\n"
        "from onward.transports.admin import admin_paths\n"
        "from onward.transports.admin._console_paths import console_files\n"
        "import asyncio\n"
        "async def main():\n"
        "    async with Node('n') as node:\n"
        "        admin_paths(Monitor(node))\n"
        "asyncio.run(main()); print(console_files.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"0"
