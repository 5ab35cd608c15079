"""The scripted agent of a simulated guest: every line down is answered at once, as docs/protocol.md says or as its script bends it."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import math
import os
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from calyx_orch.errors import AgentError
from calyx_orch.transport.simulated_figures import LATENCY_NS, Job, calyx_result, draw, fio_log, fio_output
from calyx_orch.transport.simulated_scripts import Script

MARKER = "calyx-agent/1 "
CHUNK_CHARACTERS = 16_000
CLOCK_OFFSET_MAX_NS = 3_600_000_000_000
FIO_VERSION = "fio-3.33"
SKEW_NS = 20_000
CPUS = 4


class SimulatedChannel:
    """The scripted agent: every line down is answered at once."""

    def __init__(self, path: str, program: bytes, address: str, script: Script, rng: random.Random) -> None:
        self._path, self._address, self._script, self._rng = path, address, script, rng
        self._offset_ns = rng.randrange(CLOCK_OFFSET_MAX_NS)
        self._lines: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._ended = False
        self._silent = False
        self._status: int | None = None
        self._armings = 0
        self._lease_s, self._heard_s = math.inf, time.monotonic()
        self._held: tuple[str, dict[str, list[str]]] | None = None
        self._made: list[str] = []
        hello = {
            "type": "hello",
            "protocol": 1,
            "version": "simulated",
            "sha256": hashlib.sha256(program).hexdigest(),
            "arch": script.arch,
            "pid": 4242,
            "path": path,
            "work": "/tmp/calyx-agent-simulated",
        }
        if script.bend_hello is not None:
            hello = script.bend_hello(hello)
        self._put(MARKER.encode() + json.dumps(hello).encode())

    # --- the seam ---

    async def send(self, data: bytes) -> None:
        """Take lines down and act on them."""
        if self._ended:
            raise AgentError("the connection to the agent has ended")
        self._heard_s = time.monotonic()
        for line in data.decode("ascii").splitlines():
            verb, *words = line.split()
            options: dict[str, list[str]] = {}
            for word in words:
                key, _, value = word.partition("=")
                options.setdefault(key, []).append(os.fsdecode(unquote_to_bytes(value)))
            self._silent = self._silent or verb == self._script.silent_at
            if not self._silent:
                self._act(verb, options)

    async def receive(self) -> bytes | None:
        """The next line up."""
        while not self._lines:
            if self._ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._lines.popleft()

    async def close(self) -> None:
        """End of stdin: a good agent ends."""
        self._end(0)

    def stderr_tail(self) -> bytes:
        """Nothing was said."""
        return b""

    @property
    def exit_status(self) -> int | None:
        """0 after the end, None after a broken connection."""
        return self._status

    # --- the agent ---

    def _put(self, line: bytes) -> None:
        self._lines.append(line)
        self._arrived.set()

    def _say(self, kind: str, **values: Any) -> None:
        message = {"type": kind, **values}
        for line in [json.dumps(message).encode()] if self._script.bend is None else self._script.bend(message):
            self._put(line)

    def _end(self, status: int | None) -> None:
        if not self._ended:
            self._ended, self._status = True, status
            self._arrived.set()

    def _now_ns(self) -> int:
        return time.monotonic_ns() + self._offset_ns

    def _act(self, verb: str, options: dict[str, list[str]]) -> None:
        answers: dict[str, Callable[[dict[str, list[str]]], None]] = {
            "lease": self._lease,
            "alive": lambda _: None,
            "clock": lambda o: self._say("clock", n=int(o["n"][0]), now_ns=self._now_ns()),
            "facts": self._facts,
            "prepare": self._prepare,
            "settle": self._settle,
            "lost": self._lost,
            "floor": lambda _: self._say("floor", iodepth=1, ios=1_000_000, ns_per_io=180, p50_ns=150, p99_ns=420),
            "truth": self._truth,
            "run": lambda o: self._hold("run", o),
            "exec": self._exec,
            "arm": self._arm,
            "stop": self._stop,
            "clean": self._clean,
            "bye": lambda _: self._end(0),
        }
        if verb in ("run", "exec", "prepare", "settle", "lost") and self._held is not None:
            self._say("refused", verb=verb, why=f"busy with {self._held[0]!r}", errno=16)
        elif verb in answers:
            answers[verb](options)
        else:
            self._say("refused", verb=verb, why=f"unknown verb {verb}", errno=0)

    def _lease(self, options: dict[str, list[str]]) -> None:
        self._lease_s = int(options["ms"][0]) / 1000 or math.inf

    def _facts(self, options: dict[str, list[str]]) -> None:
        programs = [
            {"name": name, "path": f"/usr/bin/{name}"} for name in options.get("program", []) if self._script.fio
        ]
        self._say(
            "facts", hostname=self._address, kernel="6.1.0-simulated", machine_id=self._id("machine"),
            boot_id=self._id("boot"), arch=self._script.arch, cpus=CPUS, memory_bytes=8 << 30, clocksource="tsc",
            hypervisor="kvm", product="simulated", io_uring_disabled=0,
            io_uring={"ok": True, "why": "", "errno": 0, "features": 0xFFFF, "setups": ["sqpoll", "defer", "coop", "plain"]},
            memlock_bytes=8 << 20, uid=0, path_env="/usr/bin:/bin", virtual=None, programs=programs,
            paths=[_path_facts(path) for path in options.get("path", [])],
        )  # fmt: skip

    def _id(self, what: str) -> str:
        return hashlib.sha256(f"{what}/{self._address}".encode()).hexdigest()[:32]

    def _prepare(self, options: dict[str, list[str]]) -> None:
        size, count = int(options["size"][0]), int(options.get("files", ["1"])[0])
        directory = f"{options['path'][0]}/.calyx-orch-simula"
        self._made.append(directory)
        self._say("beat", phase="prepare", done_bytes=size * count, total_bytes=size * count)
        files = [
            {"path": f"{directory}/job.{number}", "size": size, "extents": 1, "unwritten": 0, "holes": 0}
            for number in range(count)
        ]
        written = size * count
        answer = {
            "directory": directory, "layout": "new", "anew": None, "laid_s": int(time.time()), "uses": 0,
            "written_bytes": written, "took_ns": 2 * written, "free_bytes": 1 << 40, "free_inodes": 1 << 20,
        }  # fmt: skip
        later = asyncio.get_running_loop().call_later
        later(self._script.prepare_s, lambda: self._say("prepared", files=files, **answer))

    def _settle(self, _: dict[str, list[str]]) -> None:
        if self._script.settle_s:
            settled = functools.partial(self._say, "settled", idle=True, waited_ns=int(self._script.settle_s * 1e9))
            asyncio.get_running_loop().call_later(self._script.settle_s, settled)
        else:
            self._say("settled", idle=True, waited_ns=0)

    def _lost(self, options: dict[str, list[str]]) -> None:
        spin_ns = int(options["spin_ms"][0]) * 1_000_000
        self._say("lost", spin_ns=spin_ns, lost_ns=spin_ns // 1000, gaps=3, gap_max_ns=spin_ns // 2000)

    def _truth(self, _: dict[str, list[str]]) -> None:
        cold_ns = LATENCY_NS + self._rng.randrange(LATENCY_NS // 10)
        self._say(
            "truth", direct=True, reads=64, cold_read_ns=cold_ns, hot_read_ns=cold_ns - 1000, writes=16, write_ns=cold_ns,
            flush_write_ns=900_000,
        )  # fmt: skip

    def _exec(self, options: dict[str, list[str]]) -> None:
        if "hold" in options:
            self._hold("exec", options)
            return
        output = {
            "--version": FIO_VERSION + "\n",
            "--enghelp": "Available IO engines:\n\tio_uring\n\tlibaio\n\tpsync\n",
        }.get(options["arg"][-1], "")
        self._document("stdout", output)
        self._document("stderr", "")
        self._say("exited", status=0, signal=0, timed_out=False)

    def _hold(self, verb: str, options: dict[str, list[str]]) -> None:
        self._held = (verb, options)
        if verb == "run":
            job = _calyx_job(options)
            flat = {key: values[0] for key, values in options.items()}
            setup = calyx_result(job, draw(job, random.Random(0)), flat, 0, 0)["setup"]
            self._say("ready", engine="calyx", setup=setup)
        else:
            self._say("ready", engine="exec", waiting=int(options["hold"][0]))

    def _stop(self, _: dict[str, list[str]]) -> None:
        if self._held is None:
            self._say("stopped")
        elif self._held[0] == "run":
            self._say("result", status="stopped", why="stopped before the start line")
        else:
            self._say("exited", status="stopped", signal=15, timed_out=False, released_ns=None)
        self._held = None

    def _arm(self, options: dict[str, list[str]]) -> None:
        start_ns = int(options["start_ns"][0])
        if self._held is None:
            self._say("refused", verb="arm", why="nothing is ready", errno=0)
            return
        self._armings += 1
        if start_ns < self._now_ns() or self._armings <= self._script.lines_missed:
            self._say("refused", verb="arm", why="the start line has passed", errno=0)  # and it holds on to its job
            return
        (verb, held), self._held = self._held, None
        first_ns = start_ns + self._script.late_ns + self._rng.randrange(SKEW_NS)
        how = "published" if verb == "run" else "first-io"
        self._say("armed", start_ns=start_ns)
        self._say("started", now_ns=first_ns, bound_ns=1_000 if verb == "run" else 1_000_000, how=how)
        self._say("beat", phase="run", now_ns=first_ns, cpus=CPUS, steal_ns=0, ios=100, bytes=100 * 4096, oldest_ns=0)
        if self._script.dies_at == "arm":
            self._end(None)
            return
        job = _calyx_job(held) if verb == "run" else _fio_job(held)
        ramp_ns = sum(int(held.get(key, ["0"])[0]) for key in ("ramp_ns", "ramp_extra_ns"))
        self._usage(start_ns + ramp_ns, job)
        if verb == "run":
            self._calyx(job, {key: values[0] for key, values in held.items()}, first_ns, start_ns, ramp_ns)
        else:
            self._fio(job, held, start_ns)

    def _calyx(self, job: Job, options: dict[str, str], first_ns: int, start_ns: int, ramp_ns: int) -> None:
        result = calyx_result(job, draw(job, self._rng), options, start_ns, ramp_ns)
        result["started_ns"] = first_ns
        text = json.dumps(result)
        self._document("result", text[: len(text) // 2] + "}]" if self._script.lies else text)
        self._say("result", status="ok", why="")

    def _fio(self, job: Job, held: dict[str, list[str]], start_ns: int) -> None:
        drawn = draw(job, self._rng)
        output = fio_output(job, drawn, FIO_VERSION)
        self._document("stdout", output[: len(output) // 2] if self._script.lies else output)
        self._document("stderr", "")
        for name in held.get("collect", []):
            first = ".1." in name  # the output tells of one job, and so do the logs
            self._document(name, fio_log(job, drawn, name) if first else "")
        self._say("exited", status=0, signal=0, timed_out=False, released_ns=start_ns)

    def _usage(self, window_ns: int, job: Job) -> None:
        engine_ns = int(job.runtime_ns * self._rng.uniform(0.2, 0.4))
        busy_ns = int(engine_ns * 1.3)
        self._say(
            "usage", window_start_ns=window_ns, window_end_ns=window_ns + job.runtime_ns, cpus=CPUS, busy_ns=busy_ns,
            delay_ns=busy_ns // 100, engine_ns=engine_ns, engine_user_ns=engine_ns // 4, engine_system_ns=engine_ns * 3 // 4,
            threads=[{"name": "calyx-agent", "ns": engine_ns}],
            stat={
                "user_ns": engine_ns // 4, "nice_ns": 0, "system_ns": engine_ns, "idle_ns": job.runtime_ns * CPUS - busy_ns,
                "iowait_ns": 0, "irq_ns": 0, "softirq_ns": busy_ns // 20, "steal_ns": 0,
            },
            steal_known=False,
        )  # fmt: skip

    def _document(self, name: str, text: str) -> None:
        if self._script.bend_document is not None:
            text = self._script.bend_document(name, text)
        chunks = [text[at : at + CHUNK_CHARACTERS] for at in range(0, len(text), CHUNK_CHARACTERS)] or [""]
        digest = hashlib.sha256(text.encode()).hexdigest()
        for number, chunk in enumerate(chunks):
            self._say("output", name=name, n=number, of=len(chunks), sha256=digest, text=chunk)

    def _clean(self, options: dict[str, list[str]]) -> None:
        if self._script.clean_s:
            asyncio.get_running_loop().call_later(self._script.clean_s, self._cleaned, options)
        else:
            self._cleaned(options)

    def _cleaned(self, options: dict[str, list[str]]) -> None:
        if time.monotonic() - self._heard_s > self._lease_s:
            self._end(0)  # it took its controller for dead
            return
        stays = self._script.stays
        failed = [{"path": path, "why": "Operation not permitted"} for path in stays]
        left: dict[str, Any] = {"list": False, "found": [], "kept": [], "freed": [], "more": False}
        list_only = options.get("list") == ["1"]
        removed = [] if list_only else [path for path in self._made if path not in stays]
        self._say(
            "cleaned", removed=removed, failed=failed, **({**left, "list": list_only} if "path" in options else {})
        )
        self._made = self._made if list_only else []


def _calyx_job(options: Mapping[str, Sequence[str]]) -> Job:
    flat = {key: values[0] for key, values in options.items()}
    rw = flat["rw"].removeprefix("rand")
    return Job(
        reads=rw in ("read", "rw"),
        writes=rw in ("write", "rw"),
        block_bytes=int(flat["bs"]),
        depth=int(flat["iodepth"]),
        jobs=len(options["path"]),
        runtime_ns=int(flat["runtime_ns"]),
        interval_ns=int(flat.get("interval_ns", "100000000")),
        read_percent=int(flat.get("rwmixread", "50")),
        rate_iops=int(flat.get("rate_iops", "0")),
    )


def _fio_job(options: Mapping[str, Sequence[str]]) -> Job:
    said = dict(
        argument[2:].split("=", 1) for argument in options["arg"] if argument.startswith("--") and "=" in argument
    )
    rw = said["rw"].removeprefix("rand")
    return Job(
        reads=rw in ("read", "rw"),
        writes=rw in ("write", "rw"),
        block_bytes=int(said["bs"]),
        depth=int(said.get("iodepth", "1")),
        jobs=int(options["hold"][0]),
        runtime_ns=int(options["runtime_ns"][0]),
        interval_ns=int(said.get("log_avg_msec", "100")) * 1_000_000,
        read_percent=int(said.get("rwmixread", "50")),
        rate_iops=sum(int(part) for part in said.get("rate_iops", "0").split(",")),
    )


def _path_facts(path: str) -> dict[str, Any]:
    return {
        "path": path, "exists": True, "is_dir": True, "writable": True, "is_block": False, "is_fuse": False, "why": "",
        "fs_type": "ext4", "mount": "/", "mount_options": "rw,relatime", "source": "/dev/vda1", "device": "vda",
        "free_bytes": 1 << 40, "free_inodes": 1 << 20, "total_inodes": 1 << 21, "total_bytes": 2 << 40,
        "logical_block_size": 512, "physical_block_size": 4096, "rotational": False, "scheduler": "none",
        "write_cache": "write back", "queue_depth": 128, "model": None, "is_ram": False,
        "fs_uuid": "5" * 32,
        "disk": {
            "number": "254:0", "size_bytes": 3 << 40, "serial": None, "wwid": None, "uuid": None, "backing_file": None,
        },
    }  # fmt: skip
