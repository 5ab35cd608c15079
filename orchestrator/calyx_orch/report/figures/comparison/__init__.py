"""The figures of a comparison's page, each drawn from a `ComparisonFrame`."""
