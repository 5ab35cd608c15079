"""Presets: workloads that an inventory takes by name. One YAML each; its name is the file's."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources


def read_presets() -> Mapping[str, str]:
    """The text of every preset by name, in the order of names."""
    files = [entry for entry in resources.files(__name__).iterdir() if entry.name.endswith(".yaml")]
    return {
        entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8")
        for entry in sorted(files, key=lambda one: one.name)
    }
