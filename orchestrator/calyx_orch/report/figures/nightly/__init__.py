"""The figures of a schedule's page, each drawn from a `ScheduleFrame`: when it was due, and its histories."""
