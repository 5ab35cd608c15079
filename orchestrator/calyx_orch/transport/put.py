"""How a file is put with nothing but a shell: `cat` to a new name, size check, chmod, rename. Pure: text in, text out.

A second name and a rename, because overwriting a running program fails with ETXTBSY. A connection that breaks looks to
`cat` like the end of the file: so the size is checked.
"""

from __future__ import annotations

import posixpath

from calyx_orch.errors import AgentError
from calyx_orch.transport import Completed

_SCRIPT = """\
LC_ALL=C; PATH=${PATH:+$PATH:}/usr/bin:/bin; export LC_ALL PATH
umask 077
part="$1.part.$$"
trap 'rm -f "$part"' EXIT
trap 'exit 1' HUP INT TERM PIPE
cat > "$part" || { df -Pk "${1%/*}/" | tail -n 1 >&2; exit 1; }
size=$(wc -c < "$part")
[ "$size" -eq "$2" ] || { echo "only $size of $2 bytes arrived" >&2; exit 1; }
chmod "$3" "$part" && mv -f "$part" "$1"
"""


def put_command(path: str, size: int, mode: int) -> tuple[str, ...]:
    """The program that reads `size` bytes from stdin into `path` with permission bits `mode`."""
    return ("/bin/sh", "-c", _SCRIPT, "calyx-put", path, str(size), f"{mode:o}")


def check_put(done: Completed, path: str) -> None:
    """Raise AgentError in the guest's own words when the file did not arrive."""
    if done.status == 0:
        return
    if done.status is None:
        raise AgentError(f"the connection was lost while {path} was being written", step="deploy")
    said = done.stderr.decode("utf-8", "replace")
    if "No space left on device" in said:
        raise AgentError(f"No space left on device ({path}, {_free_bytes(said)} bytes free)", step="deploy")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    why = lines[-1] if lines else f"the shell ended with status {done.status}"
    if posixpath.dirname(path) in why:
        raise AgentError(f"cannot write {path}: {why.rsplit(': ', 1)[-1]}", step="deploy")
    raise AgentError(f"cannot write {path}: {why}", step="deploy")


def _free_bytes(said: str) -> str:
    """The fourth column of `df -Pk`, in bytes; `?` when there is no such line."""
    for line in reversed(said.splitlines()):
        columns = line.split()
        if len(columns) >= 6 and columns[3].isascii() and columns[3].isdigit() and columns[4].endswith("%"):
            return str(int(columns[3]) * 1024)
    return "?"
