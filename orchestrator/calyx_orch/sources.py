"""Where an inventory comes from: a file, standard input, or a program that prints it."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

from calyx_orch.errors import UsageError

PROGRAM_TIMEOUT_S = 60.0
TEXT_BYTES_MAX = 64 << 20
_STDERR_SHOWN = 2000
_DOCUMENTS = frozenset({".yaml", ".yml", ".json"})


def read(path: str, *, timeout_s: float = PROGRAM_TIMEOUT_S) -> tuple[str, str, str]:
    """The text of an inventory, its name for messages, and the directory that its relative paths start from.

    `-` is standard input; an executable file is run without arguments and what it prints is read (a .yaml, .yml or .json
    file only when it begins with `#!`). Raises
    UsageError with a way out when there is nothing to read, or the program fails or takes longer than `timeout_s`.
    """
    if path == "-":
        return _decoded(sys.stdin.buffer.read(TEXT_BYTES_MAX + 1), "standard input"), "stdin", str(Path.cwd())
    file = Path(path)
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UsageError(f"{path} is a directory: name the inventory file in it")
        content = _run(file, timeout_s) if _is_program(file, mode) else _read(file)
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


def _is_program(file: Path, mode: int) -> bool:
    """Executable, and not a document that only lies where every file is executable (a Windows share, say)."""
    if not stat.S_ISREG(mode) or not os.access(file, os.X_OK):
        return False
    if file.suffix.lower() not in _DOCUMENTS:
        return True
    with file.open("rb") as stream:
        return stream.read(2) == b"#!"


def _run(file: Path, timeout_s: float) -> bytes:
    try:
        program = subprocess.Popen(
            [str(file.absolute())],
            env={**os.environ, "PATH": _path()},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(
            f"{file} is executable, so it was run, but cannot be: {error.strerror}. If it is the inventory itself: chmod -x {file}"
        ) from error
    try:
        stdout, stderr = program.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"{file} was run to print an inventory but did not end within {timeout_s:g} s{_said(error.stderr)}"
        ) from None
    finally:
        _end(program)
    if program.returncode != 0:
        how = f"signal {-program.returncode}" if program.returncode < 0 else f"exit code {program.returncode}"
        raise UsageError(f"{file} was run to print an inventory and ended with {how}{_said(stderr)}")
    if not stdout.strip():
        raise UsageError(f"{file} was run to print an inventory and printed nothing{_said(stderr)}")
    sys.stderr.write(stderr.decode(errors="replace"))
    return stdout


def _path() -> str:
    """PATH with this Python first: a program in Python finds the same packages (PyYAML) as calyx-orch itself."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _end(program: subprocess.Popen[bytes]) -> None:
    """End what still runs of it: the program leads a process group of its own, which its children share."""
    if program.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    for stream in (program.stdout, program.stderr):
        if stream is not None:
            stream.close()


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
