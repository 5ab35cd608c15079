"""Files that outlive a crash: written whole or not at all, appended to line by line, for the owner alone.

A controller may be killed at any write, and its machine may lose its power. What is written is there for other processes at once, and on
the disk when it was synced. A file of lines may end in one that is torn, or hold zeros where the file system grew it and no data came.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from calyx_orch.errors import FolderError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the disk says into a FolderError of one sentence that names `path`."""
    try:
        yield
    except OSError as error:
        raise FolderError(f"cannot write {path}: {error.strerror or error}") from error


def open_private(path: Path, flags: int) -> int:
    """A descriptor for writing a file of mode 0600, made when it is not there; `flags` are those of os.open besides. OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)


def encoded(text: str) -> bytes:
    """Text as it lies in a file: UTF-8, and what is no text in it escaped."""
    return text.encode(errors="backslashreplace")


def append(descriptor: int, text: str, *, sync: bool) -> None:
    """Write all of a text; with `sync` it is on the disk afterwards. OSError."""
    data = encoded(text)
    while data:
        data = data[os.write(descriptor, data) :]
    if sync:
        os.fsync(descriptor)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all: beside it, synced, then renamed. Raises FolderError."""
    temporary = path.with_name(path.name + ".tmp")
    with writing(path):
        try:
            descriptor = open_private(temporary, os.O_TRUNC)
            try:
                append(descriptor, text, sync=True)
            finally:
                os.close(descriptor)
            temporary.replace(path)
            sync(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def sync(path: Path) -> None:
    """Make what a file holds last, or a new name in a folder. OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int) -> bool:
    """Hold a file for this process; the kernel lets go of it however the process ends. False: another one holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def cut_torn_lines(path: Path, is_whole: Callable[[bytes], bool]) -> None:
    """Cut off the end of a file of lines from where on nothing is whole: after a crash it may be torn, or hold zeros. OSError."""
    lines = path.read_bytes().splitlines(keepends=True)
    while lines and not (lines[-1].endswith(b"\n") and is_whole(lines[-1])):
        lines.pop()
    os.truncate(path, sum(map(len, lines)))
