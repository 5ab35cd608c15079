"""A PostgreSQL server of one's own on a Unix socket, for as long as a block lasts: tests and benchmarks of the store."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path


def tools() -> Path | None:
    """Where initdb and pg_ctl lie: Debian keeps them out of PATH. None: there are none."""
    found = shutil.which("initdb")
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return Path(found).parent if found else next((one for one in candidates if (one / "initdb").is_file()), None)


@contextlib.contextmanager
def running(at: Path, parent: str = "/tmp", *settings: str) -> Iterator[str]:
    """The address of a fresh server, made by the tools `at` in a folder below `parent`; as root it runs as postgres or nobody."""
    with tempfile.TemporaryDirectory(prefix="pg-", dir=parent) as made:
        folder = Path(made)
        as_user: dict[str, int] = {}
        if os.geteuid() == 0:
            known = {one.pw_name: one for one in pwd.getpwall()}
            owner = known.get("postgres") or known["nobody"]
            os.chown(folder, owner.pw_uid, owner.pw_gid)
            as_user = {"user": owner.pw_uid, "group": owner.pw_gid}

        def call(*argv: str) -> None:
            subprocess.run(
                argv,
                check=True,
                capture_output=True,
                timeout=60,
                cwd=folder,
                extra_groups=[] if as_user else None,
                **as_user,
            )

        data = folder / "data"
        call(str(at / "initdb"), "-D", str(data), "-U", "calyx", "--auth=trust", "--no-sync")
        told = ("listen_addresses=''", f"unix_socket_directories={folder}", *settings)
        options = " ".join(f"-c {setting}" for setting in told)
        call(str(at / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://calyx@/postgres?host={folder}"
        finally:
            call(str(at / "pg_ctl"), "-D", str(data), "-w", "-m", "immediate", "stop")
