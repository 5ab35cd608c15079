"""One guest's open agent: ask it something, wait a bounded time for the answer, keep what it says on the way.

A reader task takes messages off the channel as they come and stamps each with the controller's clock, so that a clock probe is
as good as the event loop is quick. Only one question is open at a time; beats in between go to `on_beat`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import posixpath
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calyx_orch.clock import Probe
from calyx_orch.deploy import Agent
from calyx_orch.errors import AgentError, CalyxError
from calyx_orch.model import Guest, Pin

Message = Mapping[str, Any]
Pairs = Sequence[tuple[str, str | int]]

MESSAGES_HELD_MAX = 1_000
ANSWER_BYTES_MAX = 128 << 20  # what one question may bring: a guest that sends more is closed
PROBES_FEWEST = 5
QUICK_TRIP_NS = (
    250_000  # bounds an offset to an eighth of a millisecond: what more probes would gain, no start line has
)
BUSY_EVERY_S = 0.1  # asked again whether it is still busy
AT_REST = frozenset({"result", "exited", "stopped"})  # how `stop` is answered
END_KNOWN_WITHIN_S = 2.0  # after a write that found the channel closed: its reader has read to the end, and why
MESSAGE_BYTES = 1_024  # what a message without a document is counted as, at least


@dataclass(frozen=True)
class Arrival:
    """A message and when it came."""

    at_ns: int
    message: Message


@dataclass
class Session:
    """A guest whose agent is running.

    `files` are the laid-out paths by target; `taken` is what calyx's set-up became by (workload, target), `pins` what was
    chosen for `auto`. `owner` names this run to the agent, which lets one run at a time have a directory.
    """

    guest: Guest
    agent: Agent
    owner: Pairs = ()
    facts: Message = field(default_factory=dict)
    fio: Message = field(default_factory=dict)
    files: dict[str, tuple[str, ...]] = field(default_factory=dict)
    laid_out: dict[str, Message] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)  # directories of laid-out files that stay for the next run
    taken: dict[tuple[str, str], Message] = field(default_factory=dict)
    pins: dict[tuple[str, str], Pin] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    clock_bound_ns: int = 0  # half the quickest round trip of the latest probe, about
    on_beat: Callable[[Message], None] | None = None
    _arrivals: asyncio.Queue[Arrival | None] = field(default_factory=lambda: asyncio.Queue(MESSAGES_HELD_MAX))
    _reader: asyncio.Task[None] | None = None
    _end: str = ""
    _received_bytes: int = 0
    _making: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Begin to read."""
        self._reader = asyncio.create_task(self._read(), name=f"read {self.guest.name}")

    async def _read(self) -> None:
        try:
            while (message := await self.agent.receive(timeout_s=None)) is not None:
                arrival = Arrival(time.monotonic_ns(), message)
                if message.get("type") == "beat" and self.on_beat is not None:
                    self.on_beat(message)
                elif message.get("type") != "beat":
                    self._count(message)
                    self._arrivals.put_nowait(arrival)
            self._end = self.agent.last_words()
        except asyncio.QueueFull:
            self._end = "the agent sent more than was asked"
        except CalyxError as error:
            self._end = str(error)
        except Exception as error:  # the last net: what one guest sends may end its own session only
            self._end = f"its messages could not be taken: {type(error).__name__}: {error}"
        with contextlib.suppress(asyncio.QueueFull):
            self._arrivals.put_nowait(None)

    def _count(self, message: Message) -> None:
        """Keep the memory of one question's answers bounded. Raises AgentError when a guest sends too much."""
        self._received_bytes += max(
            MESSAGE_BYTES, *(len(value) for value in message.values() if isinstance(value, str)), 0
        )
        if self._received_bytes > ANSWER_BYTES_MAX:
            raise AgentError(f"the agent sent more than {ANSWER_BYTES_MAX >> 20} MiB for one question")

    def begin(self) -> None:
        """Forget the documents of the question before."""
        self.documents.clear()
        self._received_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether the agent can still answer."""
        return self._reader is not None and not self._reader.done()

    def data_use(self, target: str, index: int) -> int | str:
        """What a round's data is drawn by besides seed and guest: on kept files never as in a run before, also by the same seed."""
        uses = self.laid_out.get(target, {}).get("uses")
        return f"{index}/{uses}" if uses else index

    def directories(self) -> tuple[str, ...]:
        """What the agent made on the guest and removes at its end: its work directory and those of laid-out files, but for kept ones.

        Only paths whose names are the agent's own and that lie where they were asked for; a guest may say anything.
        """
        work = str(self.agent.hello.get("work", ""))
        found = [work] if posixpath.basename(work).startswith("calyx-work-") else []
        for target in self.guest.targets:
            parents = {posixpath.dirname(path) for path in self.files.get(target.name, ())} | self._making
            parents -= self.kept
            found += [
                path
                for path in sorted(parents)
                if posixpath.dirname(path) == target.path.rstrip("/")
                and posixpath.basename(path).startswith(".calyx-orch-")
            ]
        return tuple(found)

    async def send(self, verb: str, pairs: Pairs = ()) -> None:
        """Send one line. Raises AgentError when the channel is gone, with the agent's end where that is known or told soon."""
        try:
            await self.agent.send(verb, pairs)
        except AgentError as error:
            if self._reader is not None:
                await asyncio.wait({self._reader}, timeout=END_KNOWN_WITHIN_S)
            raise AgentError(self._end or str(error), step=error.step) from error

    async def next(self, timeout_s: float) -> Arrival:
        """The next message that is no beat; documents are put aside. Raises AgentError at the end or when time is up."""
        while True:
            if self._arrivals.empty() and not self.is_open:
                raise AgentError(self._end or "the agent ended")  # also where no room was left to say so
            try:
                async with asyncio.timeout(timeout_s):
                    arrival = await self._arrivals.get()
            except TimeoutError:
                raise AgentError(f"no answer within {timeout_s:.0f} s") from None
            if arrival is None:
                self._arrivals.put_nowait(None)  # whoever asks next shall hear it too
                raise AgentError(self._end or "the agent ended")
            kind = arrival.message.get("type")
            if kind == "document":
                self.documents[str(arrival.message["name"])] = str(arrival.message["text"])
            elif kind == "making":
                self._making.add(str(arrival.message.get("directory", "")))
            else:
                return arrival

    async def ask(self, verb: str, pairs: Pairs = (), *, answer: str, timeout_s: float) -> Arrival:
        """Send a line and wait for its answer of type `answer`. Raises AgentError when refused, late or lost.

        What else comes meanwhile, such as the end of a command that was stopped before, is no answer.
        """
        self.begin()
        await self.send(verb, pairs)
        deadline = time.monotonic() + timeout_s
        while True:
            arrival = await self.next(max(0.0, deadline - time.monotonic()))
            kind = arrival.message.get("type")
            if kind == answer:
                return arrival
            if kind == "refused" and arrival.message.get("verb", verb) in (verb, ""):
                number = arrival.message.get("errno")
                raise AgentError(
                    str(arrival.message.get("why", "refused without a reason")),
                    step=verb,
                    errno=number if isinstance(number, int) else 0,
                )

    async def rest(self, within_s: float) -> bool:
        """End what the guest may still hold or run, so that it is idle for what comes next. Never raises.

        False when the agent is gone, or does not come to rest in time.
        """
        deadline = time.monotonic() + within_s
        try:
            await self.send("stop")
            while self.is_open:
                arrival = await self.next(max(0.0, deadline - time.monotonic()))
                if arrival.message.get("type") in AT_REST:
                    return True
        except Exception:  # also what no rule foresaw: whoever cannot be brought to rest is taken for gone
            return False
        return False

    async def clean(self, within_s: float) -> Arrival:
        """Have the agent end what it is at and remove what it made; its answer. Raises AgentError.

        It refuses as busy as long as that, such as a layout, has not come to its end; then it is asked again.
        """
        deadline = time.monotonic() + within_s
        await self.send("stop")
        while True:
            try:
                return await self.ask("clean", answer="cleaned", timeout_s=max(0.0, deadline - time.monotonic()))
            except AgentError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(BUSY_EVERY_S)

    async def say_alive(self, within_s: float) -> None:
        """Tell the agent that its controller lives. Never raises: what it does not take within a time it does not hear."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(within_s):
                if self.is_open:
                    await self.send("alive")

    async def probe_clock(self, count: int, *, timeout_s: float = 5.0) -> tuple[Probe, ...]:
        """Ask the guest's clock `count` times, one after another; fewer, once an answer was as quick as is of any use."""
        probes: list[Probe] = []
        for number in range(count):
            sent_ns = time.monotonic_ns()
            arrival = await self.ask("clock", (("n", number),), answer="clock", timeout_s=timeout_s)
            guest_ns = arrival.message.get("now_ns")
            if arrival.message.get("n") == number and isinstance(guest_ns, int):
                probes.append(Probe(sent_ns, guest_ns, arrival.at_ns))
            if number + 1 >= PROBES_FEWEST and any(0 <= probe.round_trip_ns <= QUICK_TRIP_NS for probe in probes):
                break
        if not probes:
            raise AgentError("the agent's clock gives no sensible answer", step="clock")
        return tuple(probes)

    async def close(self) -> None:
        """Let the agent clean and end; bounded."""
        try:
            with contextlib.suppress(CalyxError, OSError):
                await self.send("bye")
            await self.agent.close()
        finally:
            if self._reader is not None:
                self._reader.cancel()
                await asyncio.wait({self._reader})
