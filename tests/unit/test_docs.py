"""The docs keep up with the program: every inventory key, verb, option and exit code is documented, no link is dead."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calyx_orch import errors

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
HEAVY = {"pandas", "plotly", "asyncssh", "numpy", "scipy", "sqlalchemy", "jinja2", "cryptography"}


def pages() -> list[Path]:
    own = [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "inventories").glob("*.md"),
    ]
    return sorted(own)


def without_code(text: str) -> str:
    """The text of a page without fenced blocks and inline code, which hold no links."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as the usual renderers make them."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} +(.+?) *$", plain, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)", without_code(page.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z][a-z0-9+.-]*:", target):
            yield target


def dead_links(page: Path) -> list[str]:
    dead = []
    for target in links(page):
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        missing_anchor = (
            anchor and file.suffix == ".md" and file.is_file() and anchor not in anchors(file.read_text("utf-8"))
        )
        if not file.exists() or missing_anchor:
            dead.append(target)
    return dead


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_relative_link_is_dead(page: Path) -> None:
    """Every relative link and picture of a page leads to a file, and its anchor to a heading."""
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """The check above sees a missing file, a missing anchor and a missing picture, and lets live ones and code pass."""
    page = tmp_path / "page.md"
    page.write_text(
        "# A head\n[a](page.md#a-head) [b](gone.md) [c](#none) ![d](gone.png) `[e](code.md)` [f](https://x.example/y)\n"
    )
    assert dead_links(page) == ["gone.md", "#none", "gone.png"]


def schema_keys(schema: Any) -> set[str]:
    """Every property name anywhere in a JSON Schema."""
    if isinstance(schema, list):
        return set().union(*map(schema_keys, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own.union(*(schema_keys(value) for value in schema.values()))


def test_every_inventory_key_is_documented() -> None:
    """docs/inventory.md names each key of the schema, as code."""
    from calyx_orch.inventory import schema

    keys = schema_keys(schema())
    assert {"guests", "targets", "workloads", "iodepth"} <= keys
    spans = re.findall(r"`([^`\n]+)`", (DOCS / "inventory.md").read_text(encoding="utf-8"))
    fenced = re.findall(
        r"^```.*?^```", (DOCS / "inventory.md").read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    named = set(re.findall(r"\w+", " ".join(spans))) | set(re.findall(r"(\w+):", " ".join(fenced)))
    assert sorted(keys - named) == []


def test_every_exit_code_is_documented() -> None:
    """The table of docs/exit-codes.md holds exactly the codes of errors.py."""
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    table = re.findall(r"^\| *`?(\d+)`? *\|", (DOCS / "exit-codes.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(map(int, table)) == sorted(codes)


def test_the_cli_reference_is_current() -> None:
    """docs/cli.md is what the program says of itself, and every verb and option says something."""
    check = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "cli_reference.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (check.returncode, check.stdout, check.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--help",), "run"),
        (("--version",), "calyx-orch"),
        (("run", "--help"), "--resume"),
        (("run", "--guest", "vm1", "--target", "/d", "--dry-run"), "24 rounds"),
    ],
)
def test_what_is_asked_before_a_run_imports_nothing_heavy(words: tuple[str, ...], says: str) -> None:
    """`calyx-orch --help` and a dry run answer without pandas, plotly, scipy, asyncssh and the like."""
    program = (
        f"import sys\nsys.argv = ['calyx-orch', *{words!r}]\nfrom calyx_orch.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('MODULES', *sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    answer, _, modules = done.stdout.partition("MODULES")
    assert says in answer
    assert "calyx_orch" in modules.split()
    assert sorted(HEAVY & set(modules.split())) == []


def inventories_in(page: Path) -> list[str]:
    """The YAML blocks of a page that are whole inventories."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [block for block in blocks if re.search(r"^guests:", block, flags=re.MULTILINE)]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/inventory.md"])
def test_every_inventory_of_the_texts_can_be_run_within_an_hour_as_the_text_says(page: str) -> None:
    """The inventories shown to a first visitor parse without a problem, and how long each takes stands on the page."""
    from calyx_orch import inventory, plan, workloads

    texts = inventories_in(ROOT / page)
    assert texts
    told = set(map(int, re.findall(r"(\d+) minutes", (ROOT / page).read_text(encoding="utf-8"))))
    for text in texts:
        parsed = inventory.parse(text, source=page, base_dir=str(ROOT), presets=workloads.read_presets())
        planned = plan.make(parsed, limit=(), workloads=(), repetitions=None, seed=1)
        assert planned.rounds
        minutes = planned.estimated_s / 60
        assert minutes < 60
        assert any(abs(number - minutes) < 1 for number in told), f"{minutes:.1f} minutes, and the page tells {told}"


def test_the_rule_of_turns_is_as_documented() -> None:
    """`repetitions: 3`: 6 rounds each of calyx and one baseline, 3 each of three engines, 3 of calyx alone."""
    from calyx_orch import inventory, plan, workloads

    said = re.search(
        r"^### Blocks and turns\n(.*?)^#", (DOCS / "inventory.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert said is not None
    text = " ".join(said[1].split())
    rules = {
        "[fio-io_uring]": (6, "6 rounds each of calyx and fio-io_uring"),
        "[fio-io_uring, fio-libaio]": (3, "3 each of calyx, fio-io_uring and fio-libaio"),
        "none": (3, "3 of calyx without a baseline"),
    }
    for baselines, (rounds, words) in rules.items():
        whole = (
            f"guests: {{vm1: {{targets: {{d: /d}}}}}}\nworkloads: [{{rw: read, size: 1g}}]\nbaselines: {baselines}\n"
        )
        made = plan.make(inventory.parse(whole, source="t", base_dir="", presets=workloads.read_presets()), seed=1)
        assert set(Counter(one.engine for one in made.rounds).values()) == {rounds}
        assert words in text


def test_every_room_of_the_controller_is_in_the_house() -> None:
    """docs/architecture.md names each package and module of the controller, and each that decides or runs a step."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    root = ROOT / "orchestrator" / "calyx_orch"
    rooms = {f"{one.name}/" for one in root.iterdir() if (one / "__init__.py").is_file()} | {
        one.name for one in root.glob("*.py")
    }
    below = {one.stem for room in ("runner", "plan") for one in (root / room).glob("*.py")}
    spans = {span.removeprefix(".. ") for span in re.findall(r"`([^`\n]+)`", page)}
    assert sorted(rooms - {"__init__.py"} - spans) == []
    assert sorted(below - {"__init__", "document", "cost", "display"} - spans) == []
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert sorted(one.name for one in (DOCS / "decisions").glob("0*.md") if one.name not in index) == []


def test_the_directions_of_imports_are_those_that_are_checked() -> None:
    """The block of layers in docs/architecture.md is the contract of pyproject.toml, layer by layer."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ][0]
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    (block,) = [
        one for one in re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if one.startswith("cli\n")
    ]
    shown = [re.split(r" {2,}", line)[0].split(" | ") for line in block.splitlines() if not line.startswith("-")]
    layers = [[name.removeprefix("calyx_orch.") for name in layer.split(" | ")] for layer in contract["layers"]]
    assert [sorted(layer) for layer in shown if layer != ["native/"]] == [sorted(layer) for layer in layers]
