"""The figures of a report: each module here that has `figure(frame, **options)` is one, known by the module's name.

To add a figure, add a module. Its keyword arguments with their defaults are the options that a dashboard may give.
Nothing in this file imports plotly; the modules do, when they are loaded.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from typing import Any

SHARED = frozenset({"palette", "panels", "ratios"})


class NothingToDraw(Exception):
    """The run holds nothing for this figure; `str()` is the sentence that stands in its place."""


def names() -> tuple[str, ...]:
    """Name all figures, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in SHARED))


def load(name: str) -> Callable[..., Any]:
    """Give the `figure` function of the module `name`, which must be one of `names()`."""
    module = importlib.import_module(f"{__name__}.{name}")
    function: Callable[..., Any] = module.figure
    return function


def title_of(name: str) -> str:
    """Say what a figure is, from the first words of its module."""
    said = (importlib.import_module(f"{__name__}.{name}").__doc__ or name).split("\n")[0]
    title = re.split(r"[,:.] |[.:]$", said)[0].removesuffix(".")
    return title if title.startswith("calyx") else title[:1].upper() + title[1:]


def options_of(name: str) -> Mapping[str, Any]:
    """Give the options of a figure with their defaults."""
    parameters = list(inspect.signature(load(name)).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in parameters}


def javascript() -> str:
    """Give the text of the plotly.js that draws these figures."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
