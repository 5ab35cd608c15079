"""A schema's view of a document: its pydantic model, and its complaints with their place and a way out."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import pydantic

from calyx_orch.documents.reading import Document, Node, Path, child
from calyx_orch.errors import Problem

Model = TypeVar("Model", bound=pydantic.BaseModel)

_PASSES_MAX = 8


def to_plain(node: Node | None) -> Any:
    """The tree as dict, list, str and None. What an alias names is shared, not copied."""
    if node is None or node.value is None:
        return None
    if isinstance(node.value, str):
        return node.value
    if node.plain is None:
        if isinstance(node.value, list):
            node.plain = [to_plain(below) for below in node.value]
        else:
            node.plain = {name: to_plain(below) for name, (_, below) in node.value.items()}
    return node.plain


def validate(
    document: Document, model: type[Model], *, refusals: Mapping[str, str] | None = None
) -> tuple[Model | None, set[Path]]:
    """Check `document` against `model`; its complaints are added to `document.problems`.

    What is wrong is cut from the tree and the rest checked again, so that one slip does not hide the next. Returns the model of
    what was left (None: nothing usable) and the paths that were cut. `refusals` maps unknown keys to why they are refused.
    """
    cut: set[Path] = set()
    refused = {(problem.line, problem.column) for problem in document.problems}
    for _ in range(_PASSES_MAX):
        try:
            return model.model_validate(to_plain(document.root)), cut
        except pydantic.ValidationError as error:
            found = [(_resolve(document.root, item["loc"]), item) for item in error.errors(include_url=False)]
            for path, item in found:
                node = document.find(path)
                is_told = node is not None and (node.line, node.column) in refused
                if not is_told and not any(gone[: len(path)] == path for gone in cut):
                    document.problems.append(_translate(document, model, path, item, refusals or {}))
            if not _cut(document, {path for path, _ in found}):
                return None, cut
            cut.update(path for path, _ in found)
    return None, cut


def suggestion(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'port'?)` for the closest of `known`, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""


def describe_value(node: Node | None) -> str:
    """What stands there, in words and cut short, for a message."""
    if node is None or node.value is None:
        return "nothing"
    if isinstance(node.value, dict):
        return "a mapping"
    if isinstance(node.value, list):
        return "a list"
    return repr(node.value if len(node.value) <= 40 else node.value[:37] + "...")


def _resolve(root: Node | None, loc: Path) -> Path:
    """A pydantic location without the steps that are no part of the document (union tags, the index of a lone value)."""
    path: list[str | int] = []
    node = root
    for position, step in enumerate(loc):
        found = child(node, step)
        if found is not None:
            path.append(step)
            node = found[1]
        elif position == len(loc) - 1 and isinstance(step, str) and isinstance(node and node.value, dict):
            path.append(step)  # a missing key
    return tuple(path)


def _cut(document: Document, paths: set[Path]) -> bool:
    """Take the values at `paths` out of the tree; a missing key takes its mapping. False: nothing was left to take."""
    doomed: list[tuple[Node, str | int, Node]] = []
    for path in paths:
        steps = path
        while steps and document.find(steps) is None:
            steps = steps[:-1]
        parent, node = document.find(steps[:-1]), document.find(steps)
        if not steps or parent is None or node is None:
            return False
        doomed.append((parent, steps[-1], node))
    for parent, step, node in doomed:
        parent.cut.add(step)
        if isinstance(parent.value, dict):
            parent.value.pop(str(step), None)
        elif isinstance(parent.value, list):
            parent.value[:] = [one for one in parent.value if one is not node]
    _forget_plain(document.root)
    return True


def _forget_plain(node: Node | None) -> None:
    if node is None or node.plain is None:
        return
    node.plain = None
    if isinstance(node.value, list):
        for below in node.value:
            _forget_plain(below)
    elif isinstance(node.value, dict):
        for _, below in node.value.values():
            _forget_plain(below)


def _translate(
    document: Document, model: type[pydantic.BaseModel], path: Path, item: Any, refusals: Mapping[str, str]
) -> Problem:
    kind, name = item["type"], str(item["loc"][-1]) if item["loc"] else ""
    node = document.find(path)
    if kind == "extra_forbidden":
        if name in refusals:
            return document.problem(path, f"'{name}' is refused: {refusals[name]}", at_key=True)
        message = f"unknown key '{name}'{suggestion(name, _keys_at(model, item['loc'][:-1]))}"
        return document.problem(path, message, at_key=True)
    if kind == "missing":
        return document.problem(path, f"missing key '{name}'{_inside(path[:-1])}")
    return document.problem(path, _sentence(kind, item, _called(path), node))


def _sentence(kind: str, item: Any, what: str, node: Node | None) -> str:
    context = item.get("ctx") or {}
    shown = describe_value(node)
    bounds = {
        "greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le"),
        "greater_than": ("more than", "gt"), "less_than": ("less than", "lt"),
    }  # fmt: skip
    if kind in ("value_error", "assertion_error"):
        said = str(context.get("error", item["msg"]))
        return f"{what} {said}" if said.startswith(("is ", "holds ")) else f"{what}: {said}"
    if kind in bounds:
        words, key = bounds[kind]
        return f"{what} must be {words} {context[key]:g}, not {shown}"
    if kind in ("literal_error", "enum"):
        choices = [word.strip().strip("'") for word in re.split(r",| or ", str(context.get("expected", "")))]
        close = suggestion(str(node.value), choices) if node is not None and isinstance(node.value, str) else ""
        return f"{what} must be one of {', '.join(choices)}, not {shown}{close}"
    kinds = {"model_type": "a mapping", "model_attributes_type": "a mapping", "dict_type": "a mapping", "list_type": "a list",
             "string_type": "text", "union_tag_not_found": "a mapping or a list"}  # fmt: skip
    if kind in kinds:
        return f"{what} must be {kinds[kind]}, not {shown}"
    if kind in ("too_short", "too_long"):
        return f"{what} is {'empty' if kind == 'too_short' else 'too long'}"
    return f"{what}: {item['msg']}"


def _called(path: Path) -> str:
    """The last key of a path, with the indices behind it: `'rw[1]'`."""
    names = [place for place, step in enumerate(path) if isinstance(step, str)]
    if not names:
        return "this"
    return f"'{path[names[-1]]}{''.join(f'[{step}]' for step in path[names[-1] + 1 :])}'"


def _inside(path: Path) -> str:
    if not path:
        return ""
    return " in " + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _keys_at(model: type[pydantic.BaseModel], loc: Path) -> set[str]:
    """The keys that the schema knows where `loc` points."""
    here: list[Any] = list(_alternatives(model))
    for step in loc:
        below = [kind for one in here for kind in _below(one, step)]
        here = below or here  # a step that leads nowhere is a union's tag
    return {name for one in here if _is_model(one) for name in one.model_fields}


def _below(kind: Any, step: str | int) -> Iterable[Any]:
    if _is_model(kind):
        known = kind.model_fields.get(str(step))
        return _alternatives(known.annotation) if known is not None else ()
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is dict and isinstance(step, str) and not step.startswith("("):
        return _alternatives(arguments[1])
    if origin is list and isinstance(step, int):
        return _alternatives(arguments[0])
    return ()


def _alternatives(kind: Any) -> list[Any]:
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _alternatives(typing.get_args(kind)[0])
    if origin is typing.Union or origin is types.UnionType:
        return [one for argument in typing.get_args(kind) for one in _alternatives(argument)]
    return [kind]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)
