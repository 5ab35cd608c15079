"""Where an inventory comes from: a file, standard input, or a program that prints it."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

from calyx_orch.errors import UsageError

PROGRAM_TIMEOUT_S = 60.0
TEXT_BYTES_MAX = 64 << 20
_STDERR_SHOWN = 2000


def read(path: str, *, timeout_s: float = PROGRAM_TIMEOUT_S) -> tuple[str, str, str]:
    """The text of an inventory, its name for messages, and the directory that its relative paths start from.

    `-` is standard input; a regular file that is executable is run without arguments and what it prints is read. Raises
    UsageError with a way out when there is nothing to read, or the program fails or takes longer than `timeout_s`.
    """
    if path == "-":
        return _decoded(sys.stdin.buffer.read(TEXT_BYTES_MAX + 1), "standard input"), "stdin", str(Path.cwd())
    file = Path(path)
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UsageError(f"{path} is a directory: name the inventory file in it")
        is_program = stat.S_ISREG(mode) and os.access(file, os.X_OK)
        content = _run(file, timeout_s) if is_program else _read(file)
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path}: `calyx-orch init {shlex.quote(path)}` writes one to begin with"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    return _decoded(content, path), path, str(file.absolute().parent)


def _read(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(TEXT_BYTES_MAX + 1)


def _run(file: Path, timeout_s: float) -> bytes:
    program = str(file.absolute())
    try:
        done = subprocess.run([program], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"{file} is executable, so it was run, but did not end within {timeout_s:g} s{_said(error.stderr)}"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{file} is executable, so it was run, but cannot be: {error.strerror}. If it is the inventory itself: chmod -x {file}"
        ) from error
    if done.returncode != 0:
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        raise UsageError(f"{file} was run to print an inventory and ended with {how}{_said(done.stderr)}")
    if not done.stdout.strip():
        raise UsageError(f"{file} was run to print an inventory and printed nothing{_said(done.stderr)}")
    if done.stderr:
        sys.stderr.write(done.stderr.decode(errors="replace"))
    return done.stdout


def _said(stderr: bytes | None) -> str:
    said = (stderr or b"").decode(errors="replace").strip()
    return f". It said:\n{said[-_STDERR_SHOWN:]}" if said else "."


def _decoded(content: bytes, name: str) -> str:
    if len(content) > TEXT_BYTES_MAX:
        raise UsageError(f"{name} is larger than 64 MiB: is it an inventory?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line}: not UTF-8 text: save the inventory as UTF-8") from None
