"""From text to a tree of nodes that know their place, with bounds on depth and on what aliases expand to."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

from calyx_orch.errors import Problem

DEPTH_MAX = 64
TEXT_BYTES_MAX = 64 << 20
ALIAS_VALUES_MAX = 500_000  # values that aliases may add to those written

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_LEADING_ZERO = re.compile(r"^[-+]?0[0-9][0-9_]*(\.[0-9]*)?$", re.ASCII)
_UNPRINTABLE = re.compile("[^\\t\\n\\r\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_CORE_TAG = "tag:yaml.org,2002:"

Path = tuple[str | int, ...]


class Node:
    """One value and where it is written (1-based). `value` is text, None, a list of nodes, or key -> (key node, value node)."""

    __slots__ = ("closed", "column", "cut", "line", "plain", "value", "weight")

    def __init__(self, value: str | list[Node] | dict[str, tuple[Node, Node]] | None, line: int, column: int) -> None:
        self.value = value
        self.line = line
        self.column = column
        self.weight = 1  # values below it, aliases expanded
        self.closed = True  # False while a list or mapping is still being read
        self.plain: Any = None
        self.cut: set[str | int] = set()  # keys whose values a schema did not take


@dataclass
class Document:
    """A text read: its tree (None: it is empty or cannot be read) and what is wrong with it whatever the schema says."""

    source: str
    root: Node | None
    problems: list[Problem] = field(default_factory=list)
    readable: bool = True

    def find(self, path: Iterable[str | int]) -> Node | None:
        """The node at `path`, None when there is none."""
        node = self.root
        for step in path:
            found = child(node, step)
            if found is None:
                return None
            node = found[1]
        return node

    def key(self, path: Path) -> Node | None:
        """The node of the last key of `path` (the element itself for a list)."""
        found = child(self.find(path[:-1]), path[-1]) if path else None
        return None if found is None else found[0]

    def lacks(self, path: Path, *keys: str) -> bool:
        """Whether a value of the mapping at `path` is missing because it was wrong: then it is told already."""
        node = self.find(path)
        return node is not None and not node.cut.isdisjoint(keys)

    def problem(self, path: Path, message: str, *, at_key: bool = False) -> Problem:
        """A problem with the value (or the key) at `path`, or at the closest value above it that exists."""
        steps = path
        while steps:
            node = self.key(steps) if at_key or steps != path else self.find(steps)
            if node is not None:
                return Problem(self.source, node.line, node.column, message)
            steps = steps[:-1]
        line, column = (self.root.line, self.root.column) if self.root is not None else (1, 1)
        return Problem(self.source, line, column, message)


def load(text: str, source: str) -> Document:
    """Read one YAML or JSON document. Never raises for what is written: `problems` says it, `readable` whether to go on."""
    reader = _Reader(source)
    try:
        if len(text) > TEXT_BYTES_MAX:
            raise _Stop("this file is larger than 64 MiB", 1, 1)
        for event in yaml.parse(text, Loader=_Loader):
            reader.take(event)
    except _Stop as stop:
        reader.problems.append(Problem(source, stop.line, stop.column, stop.message))
        return Document(source, None, reader.problems, readable=False)
    except yaml.YAMLError as error:
        reader.problems.append(_syntax_problem(error, text, source))
        return Document(source, None, reader.problems, readable=False)
    return Document(source, reader.root, reader.problems)


def child(node: Node | None, step: str | int) -> tuple[Node, Node] | None:
    """The key node and the value one step below `node`, None when there is none (for a list both are the element)."""
    if node is None:
        return None
    if isinstance(node.value, dict) and isinstance(step, str):
        return node.value.get(step)
    if isinstance(node.value, list) and isinstance(step, int) and 0 <= step < len(node.value):
        return node.value[step], node.value[step]
    return None


class _Stop(Exception):
    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being read, the key that waits for its value, and the values of its `<<`."""

    node: Node
    key: Node | None = None
    merges: list[Node] = field(default_factory=list)
    merge_line: int = 0


class _Reader:
    """Builds nodes from parser events with a stack of its own, so that depth and expansion are bounded."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._nodes = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            self._attach(self._anchored(event, self._scalar(event)), is_merge=event.implicit[0] and event.value == "<<")
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._start(event, {} if kind is yaml.MappingStartEvent else [])
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._end()
        elif kind is yaml.AliasEvent:
            self._attach(self._alias(event))
        elif kind is yaml.DocumentStartEvent:
            self._documents += 1
            if self._documents > 1:
                raise self._stop(event, "a second document begins here ('---'): keep one document in a file")

    def _scalar(self, event: Any) -> Node:
        mark = event.start_mark
        node = Node(event.value, mark.line + 1, mark.column + 1)
        self._refuse_tag(event, node)
        if event.style is None or event.style == "":
            if event.value in _NULLS:
                node.value = None
            elif event.value[0] in "0+-" and _LEADING_ZERO.match(event.value):
                self._problem(node, f"{event.value} has a leading zero: readers disagree whether that is octal; write it without, "
                                    "or in quotes where text is meant")  # fmt: skip
        return node

    def _start(self, event: Any, value: Any) -> None:
        if len(self._open) >= DEPTH_MAX:
            raise self._stop(event, f"nested deeper than {DEPTH_MAX} levels")
        node = Node(value, event.start_mark.line + 1, event.start_mark.column + 1)
        node.closed = False
        self._refuse_tag(event, node)
        self._open.append(_Open(self._anchored(event, node)))

    def _end(self) -> None:
        frame = self._open.pop()
        for merged in frame.merges:
            self._merge(frame.node, merged)
        node = frame.node
        if isinstance(node.value, dict):
            node.weight = 1 + sum(1 + child.weight for _, child in node.value.values())
        elif isinstance(node.value, list):
            node.weight = 1 + sum(child.weight for child in node.value)
        node.closed = True
        if node.weight > self._nodes + ALIAS_VALUES_MAX:
            raise _Stop(f"aliases expand to more than {ALIAS_VALUES_MAX} values here: refused", node.line, node.column)
        self._attach(node)

    def _attach(self, node: Node, *, is_merge: bool = False) -> None:
        self._nodes += 1
        if not self._open:
            self.root = node
            return
        frame = self._open[-1]
        if isinstance(frame.node.value, list):
            frame.node.value.append(node)
        elif frame.key is None:
            frame.key = Node("<<", node.line, node.column) if is_merge else self._as_key(node)
            frame.merge_line = (frame.merge_line or node.line) if is_merge else frame.merge_line
            frame.key.closed = not is_merge  # marks the key that merges until its value is there
        else:
            self._pair(frame, frame.key, node)
            frame.key = None

    def _as_key(self, node: Node) -> Node:
        if isinstance(node.value, str):
            return Node(node.value, node.line, node.column)
        what = "is null (quote it when it is a name)" if node.value is None else "is a list or mapping"
        self._problem(node, f"this key {what}; a key is text")
        return Node(f"\0{node.line}:{node.column}", node.line, node.column)

    def _pair(self, frame: _Open, key: Node, node: Node) -> None:
        if not key.closed:
            if frame.merges:
                self._problem(key, f"duplicate key '<<': line {frame.merge_line} and line {key.line}")
            values = node.value if isinstance(node.value, list) else [node]
            for value in values:
                if isinstance(value.value, dict):
                    frame.merges.append(value)
                else:
                    self._problem(key, "'<<' takes a mapping or a list of mappings")
            return
        pairs = typing.cast("dict[str, tuple[Node, Node]]", frame.node.value)
        name = typing.cast(str, key.value)
        if name in pairs:
            self._problem(key, f"duplicate key '{name}': line {pairs[name][0].line} and line {key.line}")
        elif not name.startswith("\0"):
            pairs[name] = (key, node)

    def _merge(self, node: Node, merged: Node) -> None:
        pairs = typing.cast("dict[str, tuple[Node, Node]]", node.value)
        for name, pair in typing.cast("dict[str, tuple[Node, Node]]", merged.value).items():
            pairs.setdefault(name, pair)

    def _anchored(self, event: Any, node: Node) -> Node:
        if event.anchor is not None:
            if event.anchor in self._anchors:
                self._problem(
                    node,
                    f"duplicate anchor '&{event.anchor}': line {self._anchors[event.anchor].line} and line {node.line}",
                )
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any) -> Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            raise self._stop(event, f"unknown alias '*{event.anchor}' (a text that begins with * needs quotes)")
        if not node.closed:
            raise self._stop(event, f"alias '*{event.anchor}' stands inside what it names")
        return node

    def _refuse_tag(self, event: Any, node: Node) -> None:
        if event.tag is not None:
            tag = event.tag.replace(_CORE_TAG, "!!", 1)
            self._problem(node, f"tag '{tag}' is not supported: write the plain value")

    def _problem(self, node: Node, message: str) -> None:
        self.problems.append(Problem(self.source, node.line, node.column, message))

    def _stop(self, event: Any, message: str) -> _Stop:
        return _Stop(message, event.start_mark.line + 1, event.start_mark.column + 1)


def _syntax_problem(error: yaml.YAMLError, text: str, source: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        bad = _UNPRINTABLE.search(text)
        before = text[: bad.start()] if bad is not None else ""
        reason = getattr(error, "reason", error)
        return Problem(
            source, before.count("\n") + 1, len(before) - before.rfind("\n"), f"not readable as YAML: {reason}"
        )
    lines = text.splitlines()
    written = lines[mark.line] if mark.line < len(lines) else ""
    said = str(getattr(error, "problem", None) or error).replace("hexdecimal", "hexadecimal")
    return Problem(
        source, mark.line + 1, mark.column + 1, f"not readable as YAML: {said}{_hint(said, written, mark.column)}"
    )


def _hint(said: str, written: str, column: int) -> str:
    if "hexadecimal" in said or "unknown escape" in said or "escape code" in said:
        return r" (a backslash in double quotes is an escape: use single quotes, such as 'DOM\user')"
    if written[: column + 1].strip() == "" and "\t" in written[: column + 1]:
        return " (a tab cannot indent: use spaces)"
    if "cannot start any token" in said:
        return " (a text that begins with @, `, % or a tab needs quotes)"
    if "mapping values are not allowed" in said:
        return " (a text with ': ' in it needs quotes; or check the indentation)"
    if "[" in written and "{" in written and ("expected" in said):
        return " (within braces a range needs quotes: 'vm[01:16]')"
    return ""
