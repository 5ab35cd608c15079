"""A way between two TCP ends that is slow in one direction only: what a clock probe cannot see.

    forwarder.py PORT ADDRESS ADDRESS_PORT DELAY_MS      listens on 127.0.0.1:PORT; answers come DELAY_MS late

It is a program since the controller's own event loop must not be the one that delays. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable

CHUNK_BYTES = 64 << 10


async def copy(reader: asyncio.StreamReader, write: Callable[[bytes], None], close: Callable[[], None]) -> None:
    """Hand on what comes until the end."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            write(data)
    close()


async def serve(port: int, address: str, address_port: int, delay_s: float) -> None:
    """Forward every connection until standard input ends."""
    loop = asyncio.get_running_loop()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(address, address_port)

        def late(data: bytes) -> None:
            loop.call_later(delay_s, writer.write, data)

        def close_late() -> None:
            loop.call_later(delay_s, writer.close)

        back = copy(there_reader, late, close_late)
        await asyncio.gather(copy(reader, there_writer.write, there_writer.close), back)

    ended = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(ended), sys.stdin)
    await asyncio.start_server(connected, "127.0.0.1", port)
    print("ready", flush=True)
    await ended.read()
    os._exit(0)  # whatever is still on its way shall not be waited for


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]) / 1000))
