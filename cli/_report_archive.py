"""The archive of a report: files of JSON and text in a compressed tar file of bounded size."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ._status import CommandError

__all__ = ["MAX_REPORT", "read_archive", "write_archive"]

MAX_REPORT: Final = 64 * 1024 * 1024
"""The maximum number of bytes of all parts of a report, before they are compressed."""

MAX_ARCHIVE: Final = MAX_REPORT + 1024 * 1024
"""The maximum number of bytes of an archive that is read, after it is decompressed."""

MAX_MEMBERS: Final = 100
"""The maximum number of files in an archive that is read."""

FILE_MODE: Final = 0o600
"""The mode of an archive: it says how a broker is set up."""

_FOLDER: Final = "onward-report"


def write_archive(path: Path, parts: Mapping[str, Any], made: float) -> None:
    """Write an archive, which appears as a whole, in place of no other file.

    Args:
        path: Its path.
        parts: The parts by name: text, or a value of JSON.
        made: The time at which they were made, in seconds since 1970.

    Raises:
        CommandError: It cannot be written, or the file exists.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:gz") as archive:
                for name, part in parts.items():
                    _add(archive, name, part, made)
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)  # fails if there is a file
    except FileExistsError:
        raise CommandError(f"{path} exists") from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def _add(archive: tarfile.TarFile, name: str, part: Any, made: float) -> None:
    text = part if isinstance(part, str) else json.dumps(part, indent=1)
    content = text.encode(errors="backslashreplace")
    suffix = "txt" if isinstance(part, str) else "json"
    member = tarfile.TarInfo(f"{_FOLDER}/{name}.{suffix}")
    member.size, member.mtime, member.mode = len(content), int(made), FILE_MODE
    archive.addfile(member, io.BytesIO(content))


def read_archive(path: Path) -> dict[str, Any]:
    """Return the parts of an archive; nothing is written to the disk.

    Raises:
        CommandError: It cannot be read, or is no report, or too large.
    """
    parts: dict[str, Any] = {}
    try:
        with gzip.open(path) as file:
            # All at once, and no more: what tarfile reads by itself has no bound.
            content = file.read(MAX_ARCHIVE + 1)
        if len(content) > MAX_ARCHIVE:
            raise CommandError(f"{path}: it has over {MAX_ARCHIVE} bytes")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for number, member in enumerate(archive):
                folder, _, name = member.name.partition("/")
                # A sparse file may have any size in a few bytes.
                is_plain = member.isfile() and not member.issparse()
                found = archive.extractfile(member) if is_plain else None
                if number >= MAX_MEMBERS or found is None or folder != _FOLDER:
                    raise CommandError(f"{path} is no report")
                stem, _, suffix = name.rpartition(".")
                text = found.read()
                parts[stem] = json.loads(text) if suffix == "json" else text.decode()
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, ValueError, RecursionError, zlib.error):
        raise CommandError(f"{path} is no report") from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from None
    if not isinstance(parts.get("report"), dict):
        raise CommandError(f"{path} is no report")
    return parts
