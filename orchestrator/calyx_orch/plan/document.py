"""A plan as a JSON document and back, exactly: every field by its name, enumerations by their value."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

from calyx_orch.documents.spread import spread
from calyx_orch.errors import FormatError
from calyx_orch.model import Plan

FORMAT = "calyx-orch-plan/1"
LEVELS = 4  # with lines of their own: a round, a layout, a guest of the inventory is one line
SCALARS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
FORMATS_READ = (FORMAT, 1)  # 1: as it was called at first


def to_json(plan: Plan) -> str:
    """The plan as JSON text; `from_json` gives an equal plan."""
    return spread({"format": FORMAT, "plan": _encode(plan)}, LEVELS, ascii_only=False, nan=False)


def from_json(text: str) -> Plan:
    """The plan of a document that `to_json` wrote. FormatError: it is another format, or incomplete."""
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("format") not in FORMATS_READ:
            raise FormatError(f"this is no plan of the format {FORMAT}: it was written by another version")
        return typing.cast(Plan, _decode(Plan, document.get("plan")))
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"this plan cannot be read: {error}") from error


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _encode(getattr(value, name)) for name in _fields(type(value))}
    if isinstance(value, tuple):
        return [_encode(one) for one in value]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _encode(one) for key, one in value.items()}
    return value


@functools.cache
def _fields(kind: type) -> dict[str, Any]:
    """The fields of a dataclass with their types, lists and unions opened once."""
    return typing.get_type_hints(kind)


@functools.cache
def _origin(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(kind), typing.get_args(kind)


def _decode(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise TypeError(f"a {getattr(kind, '__name__', kind)} is missing")
        known = _fields(kind)
        # A field that an older document does not have takes its default.
        return kind(**{name: _decode(known[name], one) for name, one in value.items() if name in known})
    origin, arguments = _origin(kind)
    if origin is types.UnionType or origin is typing.Union:
        if value is None:
            return None
        return _decode(next(one for one in arguments if one is not types.NoneType), value)
    if origin is tuple:
        return tuple(_decode(arguments[0], one) for one in value)
    if origin is not None and issubclass(origin, Mapping):
        return dict(value)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(value)
    if kind is float and type(value) is int:
        return float(value)
    if kind in SCALARS and type(value) is not kind:
        raise TypeError(f"{value!r} is no {SCALARS[kind]}")
    return value
