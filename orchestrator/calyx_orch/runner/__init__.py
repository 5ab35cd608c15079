"""The only place that waits for guests: connect, inspect, lay out, rehearse, run every round, clean.

run(plan, folder, live, interrupted, cache) -> Ended
"""

from calyx_orch.runner.calibration import Cache, cache_path
from calyx_orch.runner.flow import Ended, run

__all__ = ["Cache", "Ended", "cache_path", "run"]
