"""What all models of an inventory have in common."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A mapping without keys that nobody knows."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def or_text(schema: dict[str, Any], description: str) -> None:
    """Let the schema of a mapping take a text in its place."""
    mapping = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"type": "string", "description": description}, mapping]
