"""Messages to a real web server on loopback, and that no address ever shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calyx_orch import notify
from calyx_orch.errors import UsageError
from calyx_orch.schedule import delivering, telling
from calyx_orch.schedule.deciding import Firing, Schedule, Settings
from web_server import WebServer, web_server

TOKEN = "T0kenThatNobodySees"


@pytest.fixture
def server() -> Iterator[WebServer]:
    with web_server() as made:
        yield made


def test_a_message_arrives_whole(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", f"json://{server.place}/{TOKEN}")
    assert notify.send("env:HOOK", "title", "two\nlines") == ""
    ((method, path, body),) = server.got
    assert (method, path) == ("POST", f"/{TOKEN}")
    assert (json.loads(body)["title"], json.loads(body)["message"]) == ("title", "two\nlines")


def test_an_address_may_lie_in_a_file(server: WebServer, tmp_path: Path) -> None:
    (tmp_path / "hook").write_text(f"json://{server.place}/{TOKEN}\n")
    assert notify.send(f"file:{tmp_path / 'hook'}", "t", "b") == ""
    assert len(server.got) == 1


@pytest.mark.parametrize("status", [404, 500])
def test_a_refusal_is_told_without_the_address(
    server: WebServer, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("pa55%40w0rd", "auth of pa55@w0rd failed"),
        ("pa55@w0rd", "auth of pa55%40w0rd failed"),
        ("two+words", "'two words' is no user"),
    ],
)
def test_a_part_of_an_address_is_taken_out_also_as_it_is_meant(written: str, said: str) -> None:
    """A service tells the password as it was decoded."""
    told = notify.without(said, f"mailtos://user:{written}@example.org")
    assert "***" in told
    assert not any(word in told for word in ("pa55", "w0rd", "two words"))


def test_what_guests_say_is_text_also_where_a_service_takes_html(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An e-mail would show what a guest wrote as HTML, its images and links as well."""
    monkeypatch.setenv("HOOK", f"json://{server.place}/hook?format=html")
    assert notify.send("env:HOOK", "title", "guest vm1 was lost: <img src=http://example.org/x>\nverdict") == ""
    (body,) = server.to("/hook")
    message = json.loads(body)["message"]
    assert "<img" not in message
    assert "&lt;img" in message


@pytest.mark.parametrize("raw", [b"nonsense\r\n", b"HTTP/1.1 two hundred\r\n\r\n"])
def test_a_ping_that_is_answered_with_nonsense_is_told_and_ends_nothing(
    server: WebServer, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.raw = raw
    monkeypatch.setenv("PING", f"http://{server.place}/{TOKEN}")
    why = notify.ping("env:PING")
    assert "no answer that HTTP knows" in why
    assert TOKEN not in why


def test_an_address_that_no_request_can_bear_is_told_without_it(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PING", f"http://{server.place}/{TOKEN} two")
    why = notify.ping("env:PING")
    assert why
    assert TOKEN not in why


def test_a_ping_does_not_wait_for_a_message_that_cannot_be_told(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead-man service would alarm for a night that is well; what was told is not told again."""
    monkeypatch.setenv("HOOK", f"json://127.0.0.1:1/{TOKEN}")
    monkeypatch.setenv("PING", f"http://{server.place}/ping")
    settings = Settings("/i.yaml", "30 2 * * *", "UTC", "/runs", notify="env:HOOK", ping="env:PING")
    message = {"title": "t", "body": "b", "notify": True, "ping": True}
    why, left = delivering.deliver(settings, Firing("nightly", DUE_S, "finished", message=message))
    assert why
    assert (left["notify"], left["ping"]) == (True, False)
    assert len(server.to("/ping")) == 1
    monkeypatch.setenv("HOOK", f"json://{server.place}/hook")
    why, left = delivering.deliver(settings, Firing("nightly", DUE_S, "finished", message=left))
    assert (why, left["notify"], left["ping"]) == ("", False, False)
    assert [one.path for one in server.got] == ["/ping", "/hook"]


def test_a_ping_that_is_no_reference_or_no_web_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PING", f"ftp://{TOKEN}")
    for reference, says in (("env:", "an address is a secret"), ("env:PING", "holds no http address")):
        with pytest.raises(UsageError, match=says) as told:
            notify.check_ping(reference)
        assert TOKEN not in str(told.value)
    notify.check_ping("env:CALYX_NO_SUCH_NAME")


def test_a_ping_asks_once(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_message_has_no_control_character_and_bounds_what_a_large_fleet_says() -> None:
    """A title with a line break would be another header of an e-mail."""
    news = [f"guest vm{number} was lost twice in a row: \x1b[31mno\nroute" for number in range(40)]
    firing = Firing("nightly", DUE_S, "finished", folder="/runs/night one", details={"news": news, "notes": news})
    told = telling.message(schedule(link="https://bench.example/runs"), firing)
    assert told["title"] == r"calyx-orch nightly: guest vm0 was lost twice in a row: \x1b[31mno\x0aroute"
    assert "\x1b" not in told["body"]
    lines = told["body"].splitlines()
    assert len(lines) < 30
    assert lines.count("and 28 more") == 2
    assert lines[-1] == "https://bench.example/runs/night%20one/report.html"


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
