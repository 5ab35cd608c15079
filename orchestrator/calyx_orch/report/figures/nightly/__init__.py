"""The figures of a schedule's page, each drawn from a `HistoryFrame` that knows when it was due."""
