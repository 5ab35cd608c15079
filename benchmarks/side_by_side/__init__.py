"""What the benchmarks share: alternating pairs on this machine's own disk, ratios with intervals, goals, and their words."""
