"""YAML (and JSON, which is YAML) with the place of every value, and a schema's complaints as `file:line:column: sentence`.

`load` makes a `Document` of a text: a tree of `Node` and what is wrong with it by itself. `validate` makes a pydantic model of that.

Scalars stay the text that was written until the schema says what they are: YAML 1.1's `no`, `22:22`, `2024-01-01`, `1_000` and
`3.10` never turn into something else on the way. Only null is known here (`~`, `null`, nothing), as are four refusals that hold
everywhere: duplicate keys, numbers with a leading zero, tags, and aliases that expand without bound.
"""

from calyx_orch.documents.checking import describe_value, suggestion, to_plain, validate
from calyx_orch.documents.reading import Document, Node, Path, load

__all__ = ["Document", "Node", "Path", "describe_value", "load", "suggestion", "to_plain", "validate"]
