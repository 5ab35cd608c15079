"""The figures of pages: each module that has `figure(frame, **options)` is one, known by the module's name.

Here are those of a run's page; `comparison/`, `history/` and `nightly/` hold those of the other kinds of pages, each with a frame of
its own. To add a figure, add a module. Its keyword arguments with their defaults are the options that a dashboard may give.
Nothing in this file imports plotly; the modules do, when they are loaded.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from typing import Any

SHARED = frozenset({"palette", "panels", "ratios", "curves"})
RUN, COMPARISON, HISTORY, NIGHTLY = "run", "comparison", "history", "nightly"  # the kinds of pages


class NothingToDraw(Exception):
    """The run holds nothing for this figure; `str()` is the sentence that stands in its place."""


def names(kind: str = RUN) -> tuple[str, ...]:
    """Name all figures of a kind of page, sorted."""
    package = importlib.import_module(_package(kind))
    found = (module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg)
    return tuple(sorted(name for name in found if name not in SHARED))


def load(name: str, kind: str = RUN) -> Callable[..., Any]:
    """Give the `figure` function of the module `name`, which must be one of `names(kind)`."""
    module = importlib.import_module(f"{_package(kind)}.{name}")
    function: Callable[..., Any] = module.figure
    return function


def title_of(name: str, kind: str = RUN) -> str:
    """Say what a figure is, from the first words of its module."""
    said = (importlib.import_module(f"{_package(kind)}.{name}").__doc__ or name).split("\n")[0]
    title = re.split(r"[,:.] |[.:]$", said)[0].removesuffix(".")
    return title if title.startswith("calyx") else title[:1].upper() + title[1:]


def options_of(name: str, kind: str = RUN) -> Mapping[str, Any]:
    """Give the options of a figure with their defaults."""
    parameters = list(inspect.signature(load(name, kind)).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in parameters}


def javascript() -> str:
    """Give the text of the plotly.js that draws these figures."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _package(kind: str) -> str:
    return __name__ if kind == RUN else f"{__name__}.{kind}"
