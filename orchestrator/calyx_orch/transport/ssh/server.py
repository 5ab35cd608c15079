"""Keys, and a small SSH server inside this process, for loopback guests where no sshd is installed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import asyncssh

from calyx_orch.transport import CLOSE_TIMEOUT_S


def write_key(path: Path, comment: str) -> str:
    """Make an ed25519 key pair at `path` (0600) and `path`.pub. Returns the public line."""
    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key.export_private_key("openssh"))
    public = key.export_public_key("openssh").decode().strip()
    path.with_name(path.name + ".pub").write_text(public + "\n")
    return public


class LoopbackServer:
    """An SSH server that runs commands as the current user, as a guest's sshd would."""

    def __init__(self, environment: Mapping[str, str], directory: Path) -> None:
        self._environment = dict(environment)
        self._directory = directory
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._running: set[asyncio.subprocess.Process] = set()

    async def start(self, address: str, host_key: Path, authorized_keys: Path) -> int:
        """Listen on a free port of `address`. Returns the port."""
        self._acceptor = await asyncssh.listen(
            address,
            0,
            server_host_keys=[str(host_key)],
            authorized_client_keys=str(authorized_keys),
            process_factory=self._serve,
            encoding=None,
            keepalive_interval=15,
        )
        return int(self._acceptor.get_port())

    async def _serve(self, session: asyncssh.SSHServerProcess[bytes]) -> None:
        command = session.command
        if command is None:
            session.exit(1)
            return
        pipe = asyncio.subprocess.PIPE
        program = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._environment,
            cwd=self._directory, start_new_session=True,
        )  # fmt: skip
        self._running.add(program)
        try:
            await session.redirect(stdin=program.stdin, stdout=program.stdout, stderr=program.stderr)
            status = await program.wait()
            await session.stdout.drain()
            await session.stderr.drain()
            session.exit(status if status >= 0 else 128 - status)
        finally:
            self._running.discard(program)
            # What asyncssh set up to copy stdin is only taken down here.
            with contextlib.suppress(TimeoutError, asyncssh.Error, OSError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await session.wait_closed()

    async def close(self) -> None:
        """Stop listening, and end what still runs."""
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
        for program in list(self._running):
            os.killpg(program.pid, signal.SIGKILL)
            await program.wait()
