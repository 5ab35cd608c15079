"""The figures of a history's page, each drawn from a `HistoryFrame`."""
