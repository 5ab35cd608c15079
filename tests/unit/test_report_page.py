"""The page: one offline file below 15 MB, whatever a guest is called and however long the series are."""

from __future__ import annotations

import hashlib
import html.parser
import json
import re
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calyx_orch.analysis.summary import Summary, summarise
from calyx_orch.errors import Fault, UsageError
from calyx_orch.model import GuestOutcome, Histogram, LoadMode, Measurement, RunRecord, Series
from calyx_orch.report import facts, figures, page, run_page, wording
from report_records import renamed, run_record

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>&\"'%{x}\x1b[31m\u202e"


class Elements(html.parser.HTMLParser):
    """Collects the tags of a page, the text of its scripts, and its visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def written(record: RunRecord, folder: Path, **options: Any) -> tuple[str, Elements]:
    path = run_page.write(record, summarise(record), out=folder / "report.html", **options)
    text = path.read_text(encoding="utf-8")
    elements = Elements()
    elements.feed(text)
    return text, elements


@pytest.fixture(scope="module")
def small() -> RunRecord:
    return run_record(3, per_host=2, blocks=1, runtime_s=5.0)


@pytest.fixture(scope="module")
def whole(small: RunRecord, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Elements]:
    """The page of the small record, written once."""
    folder = tmp_path_factory.mktemp("page")
    found = written(small, folder)
    assert [path.name for path in folder.iterdir()] == ["report.html"]
    return found


def test_the_page_is_one_file_with_one_copy_of_plotly_and_no_address_to_load_from(whole: tuple[str, Elements]) -> None:
    text, elements = whole
    assert len(re.findall(r"plotly\.js v\d", text)) == 1
    for tag, attributes in elements.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base"), tag
        assert "src" not in attributes, (tag, attributes)
        assert not (attributes.get("href") or "#").startswith(("http", "//")), attributes


def test_only_the_scripts_of_the_page_may_run(whole: tuple[str, Elements]) -> None:
    _, elements = whole
    policy = next(a["content"] or "" for t, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]
    kinds = [attributes.get("type") for tag, attributes in elements.tags if tag == "script"]
    for kind, script in zip(kinds, elements.scripts, strict=True):
        digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert (f"'sha256-{digest}'" in policy) == (kind is None)


def test_names_and_reasons_with_html_do_not_become_elements(small: RunRecord, tmp_path: Path) -> None:
    record = renamed(small, "hv1-vm01", EVIL)
    outcomes = (*record.outcomes, GuestOutcome("vm9", "lost", "connect", EVIL))
    record = replace(record, outcomes=outcomes, notes=(EVIL,), facts={**record.facts, EVIL: {"kernel": EVIL}})
    text, elements = written(record, tmp_path)
    assert not [tag for tag, _ in elements.tags if tag in ("img",)]
    assert len([tag for tag, _ in elements.tags if tag == "script"]) == 3
    assert "onerror=alert(1)>" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<img src=x onerror=alert(1)>" in "".join(elements.text)  # shown as what it is


def test_a_short_run_says_so_at_the_top_and_over_every_table_and_figure_that_was_measured(
    whole: tuple[str, Elements], tmp_path: Path
) -> None:
    text, _ = whole
    assert "Short run:" in text.split("<main>")[0]
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert len(headings) >= 10
    assert [heading for heading in headings if "short</span>" not in heading] == [
        "What is doubtful",
        "Guests that failed",
        "Set-ups that took effect",
        "The guests",
    ]  # what the guests are is no figure
    long, _ = written(run_record(1, per_host=1, blocks=1), tmp_path)
    assert "short</span>" not in long


def test_numbers_are_strict_json_with_null_for_what_is_no_number() -> None:
    text = page.compact({"y": [1.0, float("nan"), float("inf")], "z": np.array([2.5, np.nan])})
    assert text == '{"y":[1,null,null],"z":[2.5,null]}'
    strict(text)


def test_numbers_are_rounded_to_what_is_shown() -> None:
    assert page.compact([20123.456789012345, 0.00012345678, -1.5e-7, 123456.7]) == "[20123,0.00012346,-1.5e-07,123460]"


def test_json_cannot_end_its_script_element() -> None:
    text = page.compact("</script><!--\u2028&")
    assert not set("<>&\u2028") & set(text)
    assert strict(text) == "</script><!--\u2028&"


def test_every_figure_of_the_fleet_page_draws_or_says_why_not(whole: tuple[str, Elements], tmp_path: Path) -> None:
    _, elements = whole
    plots = strict(elements.scripts[0])
    assert len(plots) == len(figures.names()) - 1  # no density was run
    assert all(any(len(trace.get("x", ())) for trace in plot["data"]) for plot in plots)
    together = run_record(1, per_host=1, blocks=1, runtime_s=2.0, loads=(LoadMode.TOGETHER,))
    text, elements = written(together, tmp_path)
    assert len(strict(elements.scripts[0])) == len(plots) - 1
    assert "Nothing to draw: the run has no guest measured both together and alone" in text


def test_a_run_in_which_nothing_was_measured_still_gives_a_page(small: RunRecord, tmp_path: Path) -> None:
    outcomes = tuple(GuestOutcome(one.guest, "lost", "connect", "no route to host") for one in small.outcomes)
    empty = replace(small, measurements=(), outcomes=outcomes, facts={}, status="failed")
    text, elements = written(empty, tmp_path)
    assert elements.scripts == []
    assert len(text) < 100_000  # no plotly.js that would draw nothing
    assert "Nothing to draw:" not in text
    assert re.findall(r'<section id="(\w+)"', text) == ["failures"]
    assert text.count("no route to host") == 3


def test_a_guest_without_io_or_values_shows_na_and_no_nan(small: RunRecord, tmp_path: Path) -> None:
    def emptied(m: Measurement) -> Measurement:
        if m.guest != "hv1-vm01" or m.read is None:
            return m
        nothing = replace(m.read, ios=0, bytes=0, latency=Histogram())
        zeros = tuple(0.0 for _ in range(50))
        return replace(m, read=nothing, series=Series(100_000_000, zeros, zeros, zeros, zeros), cpu=None)

    record = replace(small, measurements=tuple(emptied(m) for m in small.measurements))
    text, elements = written(record, tmp_path)
    strict(elements.scripts[0])
    assert "n/a" in text
    assert not re.search(r">\s*(nan|NaN|inf|None)", text.split("<script")[0])


def long_record(guests: int, seconds: int) -> RunRecord:
    """One workload, `seconds` of one-second intervals with unrounded values; guest 7 has one spike at second 1234."""
    record = run_record(guests, per_host=10, blocks=1, runtime_s=5.0, loads=(LoadMode.TOGETHER,))
    rng = np.random.default_rng(7)

    def lengthened(m: Measurement) -> Measurement:
        if m.read is None or m.round_index != 0:
            return replace(m, series=None)
        ios = rng.normal(20_000, 400, seconds)
        if m.guest == record.plan.inventory.guests[7].name:
            ios[1234] = 250_000.0
        zeros = tuple(0.0 for _ in range(seconds))
        series = Series(1_000_000_000, tuple(ios), tuple(ios * 4096), zeros, zeros)
        return replace(m, window_end_ns=m.window_start_ns + seconds * 1_000_000_000, series=series)

    return replace(record, measurements=tuple(lengthened(m) for m in record.measurements if m.round_index < 2))


def test_an_hour_of_fifty_guests_stays_small_and_keeps_a_spike_of_one_second(tmp_path: Path) -> None:
    """A-097 and A-098: 540 000 unrounded points; the page is small, no number in it is long, and the one second is seen."""
    record = long_record(50, 3600)
    text, elements = written(record, tmp_path)
    assert len(text.encode()) < page.SIZE_MAX
    assert len(text.encode()) < 8_000_000
    highest = 0.0
    for plot in strict(elements.scripts[0]):
        for trace in plot["data"]:
            highest = max([highest, *(row[1] for row in trace.get("customdata", ()) if row[1] is not None)])
    assert highest == pytest.approx(250_000 * 4096 / 1e6, rel=1e-4)
    longest = max(map(len, re.findall(r"\d+\.\d+", elements.scripts[0])))
    assert longest <= 11  # 0.00012345 at most, never 16 digits


def test_a_page_beyond_15_mb_is_refused_and_the_old_one_stays(
    small: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.html").write_text("old")
    monkeypatch.setattr(page, "SIZE_MAX", 1000)
    board = tmp_path / "one.yaml"
    board.write_text("figures:\n  - figure: p99_by_guest\n")
    with pytest.raises(Fault, match="list fewer figures"):
        run_page.write(small, summarise(small), out=tmp_path / "report.html", dashboard=board)
    assert (tmp_path / "report.html").read_text() == "old"


def test_another_dashboard_draws_its_own_list(small: RunRecord, tmp_path: Path) -> None:
    board = tmp_path / "mine.yaml"
    board.write_text(
        "title: Mine\nfigures:\n  - figure: p99_by_guest\n    title: Worst of all\n    options: {percentile: p50}\n"
    )
    text, elements = written(small, tmp_path, dashboard=board)
    assert len(strict(elements.scripts[0])) == 1
    assert "<h1>Mine</h1>" in text
    assert "Worst of all" in text
    board.write_text("figures:\n  - figure: p98_by_guest\n")
    with pytest.raises(
        UsageError, match=r"mine\.yaml:2:13: unknown figure 'p98_by_guest' \(did you mean 'p99_by_guest'\?\)"
    ):
        run_page.write(small, summarise(small), out=tmp_path / "x.html", dashboard=board)


def test_the_verdict_and_the_run_stand_at_the_top(small: RunRecord, whole: tuple[str, Elements]) -> None:
    summary: Summary = summarise(small)
    text, _ = whole
    head = text.split("<main>")[0]
    for part in (
        small.run_id,
        small.started_at,
        "inventories/fleet.yaml",
        "3 guests on 2 vm_hosts",
        "finished",
        "7</dd>",
    ):
        assert part in head
    assert 'class="verdict"' in head
    assert len(summary.guests) == text.split('id="rows"')[1].split("</tbody>")[0].count("<tr>") - 1


def test_a_dashboard_that_names_a_workload_the_run_has_not_is_told_so_in_the_figure(
    small: RunRecord, tmp_path: Path
) -> None:
    board = tmp_path / "mine.yaml"
    board.write_text("figures:\n  - figure: p99_by_guest\n    options: {workloads: [randread-4K]}\n")
    text, _ = written(small, tmp_path, dashboard=board)
    assert "the run has no workload &#39;randread-4K&#39; (did you mean &#39;randread-4k&#39;?); it has" in text


def test_equal_set_ups_are_one_row_whatever_their_seeds(small: RunRecord) -> None:
    seeded = tuple(
        replace(m, setup={**m.setup, "seed": n, "data_seed": n + 1}) for n, m in enumerate(small.measurements)
    )
    made = facts.setups(replace(small, measurements=seeded))
    assert made is not None
    assert len(made.rows) == 4  # two workloads by two engines
    assert "seed" not in " ".join(" ".join(row) for row in made.rows)
    assert "measurements.jsonl" in made.text


def test_the_doubts_of_a_row_stand_beside_its_engine(whole: tuple[str, Elements]) -> None:
    """At the far right they would be out of sight."""
    head = re.findall(r"<th[^>]*>(.*?)</th>", whole[0].split('id="rows"')[1].split("</thead>")[0])
    assert head[head.index("engine") + 1] == "doubts"


def test_the_navigation_follows_the_page(whole: tuple[str, Elements]) -> None:
    text, _ = whole
    wanted = re.findall(r'href="#(\w+)"', text.split("<nav>")[1].split("</nav>")[0])
    places = [text.index(f'id="{name}"') for name in wanted]
    assert places == sorted(places)
    assert wanted[0] == "doubts"


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\n", "\u202e", "\ud800", "\ufffe", "\uffff", "\U0001ffff"])
def test_what_is_no_character_or_acts_on_a_terminal_is_shown_by_its_number(character: str) -> None:
    """U+FFFE stands in no XML: a JUnit file with it could not be read."""
    shown = wording.printable(f"a{character}b")
    assert re.fullmatch(r"a\\[xuU][0-9a-f]+b", shown)
    assert wording.printable("µ × ± … 名") == "µ × ± … 名"
