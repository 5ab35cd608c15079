"""The only place that waits for guests: connect, inspect, lay out, rehearse, run every round, clean.

run(plan, folder, live, interrupted) -> Ended
"""

from calyx_orch.runner.flow import Ended, run

__all__ = ["Ended", "run"]
