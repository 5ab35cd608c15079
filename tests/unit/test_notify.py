"""Messages to a real web server on loopback, and that no address ever shows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from calyx_orch import notify
from calyx_orch.errors import UsageError
from calyx_orch.schedule import telling
from calyx_orch.schedule.deciding import Firing, Schedule, Settings

TOKEN = "T0kenThatNobodySees"


class Server(ThreadingHTTPServer):
    """Keeps what it is sent; answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.got: list[tuple[str, str, bytes]] = []
        self.status = 200

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.got.append((self.command, self.path, body))
        self.send_response(self.server.status)
        self.end_headers()

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_message_arrives_whole(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", f"json://{server.place}/{TOKEN}")
    assert notify.send("env:HOOK", "title", "two\nlines") == ""
    ((method, path, body),) = server.got
    assert (method, path) == ("POST", f"/{TOKEN}")
    assert (json.loads(body)["title"], json.loads(body)["message"]) == ("title", "two\nlines")


def test_an_address_may_lie_in_a_file(server: Server, tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(f"json://{server.place}/{TOKEN}\n")
    assert notify.send(f"file:{tmp_path / 'hook'}", "t", "b") == ""
    assert len(server.got) == 1


@pytest.mark.parametrize("status", [404, 500])
def test_a_refusal_is_told_without_the_address(
    server: Server, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = status
    monkeypatch.setenv("HOOK", f"json://user:{TOKEN}@{server.place}/{TOKEN}/x?+X-Key={TOKEN}")
    monkeypatch.setenv("PING", f"http://{server.place}/{TOKEN}")
    why, ping = notify.send("env:HOOK", "t", "b"), notify.ping("env:PING")
    assert str(status) in why
    assert ping == f"ping: HTTP {status}"
    assert TOKEN not in why + ping + caplog.text


def test_nobody_there_is_told_without_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", f"json://127.0.0.1:1/{TOKEN}")
    monkeypatch.setenv("PING", f"http://127.0.0.1:1/{TOKEN}")
    for why in (notify.send("env:HOOK", "t", "b"), notify.ping("env:PING")):
        assert why
        assert TOKEN not in why


def test_every_part_of_an_address_is_taken_out_of_what_a_service_says() -> None:
    address = f"https://user:pa55word@example.org/{TOKEN}?key=abcd1234"
    said = f"could not reach {address}: {TOKEN}, pa55word and abcd1234 refused\nby it"
    told = notify.without(said, address)
    assert not any(word in told for word in (TOKEN, "pa55word", "abcd1234", "example.org"))
    assert "refused by it" in told


def test_a_ping_asks_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PING", f"http://{server.place}/{TOKEN}")
    assert notify.ping("env:PING") == ""
    assert [one[:2] for one in server.got] == [("GET", f"/{TOKEN}")]


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (f"slack://{TOKEN}", "an address is a secret"),
        ("env:", "an address is a secret"),
        ("env:CALYX_NO_SUCH_NAME", "the environment has no CALYX_NO_SUCH_NAME"),
        ("file:/proc/nowhere", "cannot be read"),
    ],
)
def test_what_is_no_reference_is_refused_without_repeating_it(reference: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as told:
        notify.secret(reference)
    assert TOKEN not in str(told.value)


def test_an_address_of_no_known_kind_is_refused_when_a_schedule_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", f"nonsense {TOKEN}")
    with pytest.raises(UsageError, match="holds no address that apprise knows") as told:
        notify.check("env:HOOK")
    assert TOKEN not in str(told.value)
    notify.check("env:CALYX_NO_SUCH_NAME")  # the daemon may have it


# --- what is told ----------------------------------------------------------------------------------------------------


def schedule(**more: Any) -> Schedule:
    return Schedule(
        "nightly", Settings("/i.yaml", "30 2 * * *", "Europe/Berlin", "/runs", notify="env:X", **more), 0.0, 0.0
    )


DUE_S = 1_780_014_600  # 2026-05-29 02:30 CEST


def test_a_message_has_the_verdict_the_three_worst_and_a_link() -> None:
    details = {
        "news": ["regression opened: hv2 12 % less"],
        "findings": [f"hv{number} {number} % less (1 % to 2 %)" for number in range(5)],
        "notes": ["On this fleet 1.2 incidents in 1000 series-nights are false."],
    }
    firing = Firing(
        "nightly", DUE_S, "finished", folder="/runs/nightly-1", verdict="1 regression open.", details=details
    )
    told = telling.message(schedule(link="https://bench.example/runs/"), firing)
    assert told["title"] == "calyx-orch nightly: regression opened: hv2 12 % less"
    assert told["body"].splitlines() == [
        "due 2026-05-29 02:30 CEST: finished",
        "1 regression open.",
        "regression opened: hv2 12 % less",
        "worst:",
        "  hv0 0 % less (1 % to 2 %)",
        "  hv1 1 % less (1 % to 2 %)",
        "  hv2 2 % less (1 % to 2 %)",
        "On this fleet 1.2 incidents in 1000 series-nights are false.",
        "https://bench.example/runs/nightly-1/report.html",
    ]


@pytest.mark.parametrize(
    ("state", "news", "quiet", "is_told"),
    [
        ("finished", [], False, True),
        ("finished", [], True, False),
        ("finished", ["recovered: hv2"], True, True),
        ("failed", [], True, True),
        ("skipped", [], True, True),
        ("interrupted", [], True, True),
    ],
)
def test_quiet_leaves_out_only_nights_on_which_nothing_changed(
    state: Any, news: list[str], quiet: bool, is_told: bool
) -> None:
    firing = Firing("nightly", DUE_S, state, details={"news": news})
    assert (telling.notice(schedule(quiet=quiet), firing, 0.0)["notice"] == "waiting") is is_told


@pytest.mark.parametrize(("state", "is_pinged"), [("finished", True), ("failed", False), ("missed", False)])
def test_only_a_night_that_finished_is_a_sign_of_life(state: Any, is_pinged: bool) -> None:
    told = telling.notice(schedule(quiet=True, ping="env:Y"), Firing("nightly", DUE_S, state), 0.0)
    assert told["message"]["ping"] is is_pinged
