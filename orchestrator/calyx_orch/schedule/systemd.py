"""The systemd units of the daemon: a hardened service, and a timer that starts it whenever it has ended. Pure.

The timer does not say when a schedule is due: the daemon does, from the store. It starts the service after boot, and again five minutes
after it ended for whatever reason, so that no night is lost to a daemon that stays away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NAME = "calyx-orch-schedule"
SYSTEM = """\
ProtectClock=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
CapabilityBoundingSet=
AmbientCapabilities=
"""


@dataclass(frozen=True)
class Units:
    """What the units say. `command` is the daemon's argv; `writes` are the directories it may write to.

    `environment_file` holds secrets and the store's address (empty: none), so that without it nothing is started; `user` is whose unit
    it is in the system's manager, empty in the user's own.
    """

    command: Sequence[str]
    writes: Sequence[str]
    environment_file: str = ""
    user: str = ""


def service(units: Units) -> str:
    """The text of the service. What is mounted read-only needs the system's manager, or user namespaces in the user's own."""
    paths = "\n".join(f"ReadWritePaths={_path(path)}" for path in units.writes)
    environment = f"EnvironmentFile={_path(units.environment_file)}\n" if units.environment_file else ""
    # A user's own manager has no capabilities to drop and starts no unit that asks it to.
    system = SYSTEM if units.user else ""
    user = f"User={units.user}\n" if units.user else ""
    return f"""[Unit]
Description=calyx-orch: scheduled benchmarks of fleets
After=network-online.target time-sync.target
Wants=network-online.target

[Service]
Type=exec
ExecStart={" ".join(_word(word) for word in units.command)}
{user}{environment}Restart=on-failure
RestartSec=30
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=180
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
{paths}
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
{system}
[Install]
WantedBy={"multi-user.target" if units.user else "default.target"}
"""


def timer() -> str:
    """The text of the timer."""
    return f"""[Unit]
Description=calyx-orch: the daemon of schedules is started again when it has ended

[Timer]
OnBootSec=1min
OnUnitInactiveSec=5min
Unit={NAME}.service

[Install]
WantedBy=timers.target
"""


def _word(word: str) -> str:
    """One word of a command line: systemd reads quotes, backslashes, % and $."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if not escaped or any(character in escaped for character in " \t'\";\\") else escaped


def _path(path: str) -> str:
    return path.replace("%", "%%").replace(" ", "\\x20")
