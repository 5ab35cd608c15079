"""The plan of a run: which rounds, in which order, on which guests, and what they cost. Pure, and the same for the same seed.

`make` lays out the rounds of an inventory with the engines in balanced order; `without` takes guests out of the rounds of engines
that they lack; `describe` gives the rows of --dry-run, `around` what a round takes besides its I/O; `to_json` and `from_json` are
an exact round trip; `plan.standing` says how far a run got.
"""

from calyx_orch.plan.cost import PlanRow, around, describe
from calyx_orch.plan.document import from_json, to_json
from calyx_orch.plan.make import chosen_guests, make, without
from calyx_orch.plan.order import engine_orders

__all__ = ["PlanRow", "around", "chosen_guests", "describe", "engine_orders", "from_json", "make", "to_json", "without"]
