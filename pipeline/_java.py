"""The search for Java: Spark needs 17 or newer, and its own error does not say so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["MIN_JAVA", "JavaMissing", "find_java"]

MIN_JAVA: Final = 17
"""The oldest Java that Spark 4 runs on."""

_WAIT: Final = 30.0
"""Seconds that `java -version` may take."""


class JavaMissing(Exception):
    """A missing or too old Java; the message says what to do."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"{found}: Spark needs Java {MIN_JAVA} or newer. Install one of your system's packages "
            "(Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME. The "
            "JDKs on PyPI will not do: they lack a module that Spark 4 asks for"
        )
        self.found = found


def find_java() -> Path:
    """Return the Java that Spark uses: JAVA_HOME's, or the first on the path.

    Raises:
        JavaMissing: No Java is found, it does not start, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise JavaMissing(f"JAVA_HOME is {home}, where there is no bin/java")
    else:
        found = shutil.which("java")
        if found is None:
            raise JavaMissing("no java was found on the path, and JAVA_HOME is not set")
        java = Path(found)
    version = _version(java)
    if version < MIN_JAVA:
        raise JavaMissing(f"{java} is Java {version}")
    return java


def _version(java: Path) -> int:
    try:
        said = subprocess.run(  # noqa: S603 - the program that Spark is about to run
            [java, "-version"], capture_output=True, text=True, timeout=_WAIT, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaMissing(f"{java} does not start ({error})") from None
    text = said.stderr + said.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    if match is None:
        raise JavaMissing(f"{java} does not say its version")
    return int(match[1])
