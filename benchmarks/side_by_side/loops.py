"""A file system of a given kind on a loop device, made for a benchmark and gone after it. Needs root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

UNMOUNT_TRIES = 20
UNMOUNT_PAUSE_S = 0.1  # umount right after an io_uring process with registered files has ended is EBUSY for 14 to 33 ms


class NoLoopError(Exception):
    """Why there is no loop device here, as a sentence."""


@contextlib.contextmanager
def mounted(kind: str, base: Path, size_bytes: int) -> Iterator[Path]:
    """A mounted, empty file system of `kind` (ext4, xfs) in a directory of its own below `base`.

    The loop device reads and writes its image with direct I/O, so that the page cache of this machine is not measured.
    Raises NoLoopError when it cannot be had.
    """
    if os.geteuid() != 0:
        raise NoLoopError("loop devices need root")
    if shutil.which(f"mkfs.{kind}") is None:
        raise NoLoopError(f"mkfs.{kind} is not installed")
    directory = Path(tempfile.mkdtemp(prefix=f"calyx-bench-{kind}-", dir=base))
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, directory, ignore_errors=True)
        image, mount = directory / "image", directory / "mounted"
        mount.mkdir()
        _run("fallocate", "-l", str(size_bytes), str(image))
        device = _run("losetup", "--find", "--show", "--direct-io=on", str(image)).strip()
        undo.callback(_run, "losetup", "--detach", device)
        _run(f"mkfs.{kind}", "-q", device)
        _run("mount", device, str(mount))
        undo.callback(_unmount, mount)
        yield mount


def _unmount(mount: Path) -> None:
    for _ in range(UNMOUNT_TRIES):
        with contextlib.suppress(NoLoopError):
            _run("umount", str(mount))
            return
        time.sleep(UNMOUNT_PAUSE_S)
    _run("umount", "--lazy", str(mount))


def _run(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise NoLoopError(f"{argv[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        raise NoLoopError(f"{' '.join(argv)}: {error.stderr.strip() or error.returncode}") from None
    return done.stdout
