"""The only place that waits for guests: connect, inspect, lay out, rehearse, run every round, clean.

run(plan, folder, live, interrupted, cache, earlier) -> Ended
"""

from calyx_orch.runner.calibration import Cache, cache_path
from calyx_orch.runner.flow import Ended, run
from calyx_orch.runner.resume import Earlier, inventory_differences

__all__ = ["Cache", "Earlier", "Ended", "cache_path", "inventory_differences", "run"]
