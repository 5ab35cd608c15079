"""The tables of the index. Summaries are rows; histograms and interval series are blobs (see `packing`).

The run folder is the truth: every row of runs and their figures can be made again by `calyx-orch index`. Times are seconds since 1970, UTC.
A change of these needs a migration in `migrations/versions`; a test holds the two together.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


WIDE = BigInteger().with_variant(Integer, "sqlite")  # 64 bits on either: SQLite's whole numbers always have them


def _run_key() -> Column[str]:
    return Column("run_id", String(64), ForeignKey("run.run_id", ondelete="CASCADE"), nullable=False)


run = Table(
    "run",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("folder", Text, nullable=False),
    Column("started_s", Float, nullable=False, index=True),
    Column("started_at", String(40), nullable=False),
    Column("status", String(16), nullable=False),
    Column("inventory", Text, nullable=False),
    Column("inventory_sha256", String(64), nullable=False),
    Column("seed", String(24), nullable=False),
    Column("is_short", Integer, nullable=False),
    Column("guests", Integer, nullable=False),
    Column("guests_measured", Integer, nullable=False),
    Column("sentence", Text, nullable=False),
    Column("notes", JSON, nullable=False),
)

guest = Table(
    "guest",
    metadata,
    _run_key(),
    Column("guest", Text, nullable=False),
    Column("vm_host", Text),
    Column("storage", Text),
    Column("state", String(16), nullable=False),
    Column("step", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("facts", JSON, nullable=False),
    UniqueConstraint("run_id", "guest"),
)

# What every night says of a place is said here once: a figure is numbers, and two years of them lie close together.
lane = Table(
    "lane",
    metadata,
    Column("id", WIDE, primary_key=True, autoincrement=False),  # a digest of the rest
    Column("scope", String(16), nullable=False),  # fleet, vm_host, storage, guest
    Column("name", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("workload", Text, nullable=False),
    Column("engine", String(32), nullable=False),
    Column("load", String(16), nullable=False),
    Column("series_key", String(16), nullable=False),
    Index("ix_lane_scope", "scope", "name"),
)

figure = Table(
    "figure",
    metadata,
    _run_key(),
    Column("lane", WIDE, ForeignKey("lane.id"), nullable=False),
    Column("place", Integer, nullable=False),  # in the order of the run's tables, from 0
    Column("started_s", Float, nullable=False),  # the run's, so that a trend is one range of one index
    Column("guests", Integer, nullable=False),
    Column("units", Integer, nullable=False),
    Column("throughput_bytes_per_s", Float),
    Column("iops", Float),
    Column("p50_ns", Float),
    Column("p99_ns", Float),
    Column("p999_ns", Float),
    Column("cv_within_run", Float),
    Column("cpu_ns_per_io", Float),
    Column("doubts", JSON, nullable=False),
    Index("ix_figure_lane", "lane", "started_s"),
    Index("ix_figure_run", "run_id"),
)

latency = Table(
    "latency",
    metadata,
    _run_key(),
    Column("lane", WIDE, nullable=False),
    Column("packed", LargeBinary, nullable=False),
    UniqueConstraint("run_id", "lane"),
)

series = Table(
    "series",
    metadata,
    _run_key(),
    Column("guest", Text, nullable=False),
    Column("round_index", Integer, nullable=False),
    Column("interval_ns", WIDE, nullable=False),
    Column("intervals", Integer, nullable=False),
    Column("packed", LargeBinary, nullable=False),
    UniqueConstraint("run_id", "guest", "round_index"),
)

baseline = Table(
    "baseline",
    metadata,
    Column("inventory", Text, primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("set_s", Float, nullable=False),
)

inventory_copy = Table(
    "inventory_copy",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("text", Text, nullable=False),
)

schedule = Table(
    "schedule",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("settings", JSON, nullable=False),
    Column("added_s", Float, nullable=False),
    Column("considered_s", Float, nullable=False),  # due times up to here were decided
    Column("paused", Integer, nullable=False),
)

# A firing is claimed by its row: two daemons cannot both put in the same due time.
firing = Table(
    "firing",
    metadata,
    Column("schedule", String(64), nullable=False),
    Column("due_s", WIDE, nullable=False),
    Column("state", String(16), nullable=False),
    Column("kind", String(16), nullable=False),  # planned, catch-up, by hand
    Column("reason", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("daemon", Text, nullable=False),
    Column("lease_s", Float, nullable=False),  # until when the daemon is believed to live
    Column("started_s", Float),
    Column("ended_s", Float),
    Column("run_id", String(64)),
    Column("folder", Text, nullable=False),
    Column("inventory_sha256", String(64), nullable=False),
    Column("places", JSON, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("details", JSON, nullable=False),
    Column("notice", String(16), nullable=False),  # "", waiting, sent, given up
    Column("notice_tries", Integer, nullable=False),
    Column("notice_next_s", Float, nullable=False),
    Column("notice_why", Text, nullable=False),
    Column("message", JSON, nullable=False),
    UniqueConstraint("schedule", "due_s"),
    Index("ix_firing_state", "state"),
)

incident = Table(
    "incident",
    metadata,
    Column("schedule", String(64), nullable=False),
    Column("metric", String(32), nullable=False),
    Column("series", Text, nullable=False),
    Column("since_run", String(64), nullable=False),
    Column("opened_run", String(64), nullable=False),
    Column("since_at", String(40), nullable=False),
    Column("change", Float, nullable=False),
    Column("worse", Integer, nullable=False),
    Column("recovered_run", String(64)),
    UniqueConstraint("schedule", "metric", "series", "opened_run"),
)
