"""Lanes: what all nights of a place share is written once, and histograms lie beside the figures. Wide numbers where 32 bits end."""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

LANE = ("scope", "name", "target", "workload", "engine", "load", "series_key")
FIGURE = (
    "started_s", "guests", "units", "throughput_bytes_per_s", "iops", "p50_ns", "p99_ns", "p999_ns", "cv_within_run",
    "cpu_ns_per_io", "doubts",
)  # fmt: skip
WRITTEN = {"sqlite": "rowid", "postgresql": "ctid"}  # the order in which a run's rows were put in
WIDE = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the new tables, carry all figures over, and drop the old one."""
    for index in ("ix_figure_trend", "ix_figure_run"):
        op.drop_index(index, table_name="figure")
    op.rename_table("figure", "figure_0002")
    _make_tables()
    _carry_over()
    op.drop_table("figure_0002")
    op.create_index("ix_figure_lane", "figure", ["lane", "started_s"])
    op.create_index("ix_figure_run", "figure", ["run_id"])
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column("series", "interval_ns", type_=sa.BigInteger, existing_nullable=False)
        op.alter_column("firing", "due_s", type_=sa.BigInteger, existing_nullable=False)


def _make_tables() -> None:
    op.create_table(
        "lane",
        sa.Column("id", WIDE, primary_key=True, autoincrement=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("engine", sa.String(32), nullable=False),
        sa.Column("load", sa.String(16), nullable=False),
        sa.Column("series_key", sa.String(16), nullable=False),
    )
    op.create_index("ix_lane_scope", "lane", ["scope", "name"])
    op.create_table(
        "figure",
        _run_id("figure"),
        sa.Column("lane", WIDE, sa.ForeignKey("lane.id", name="fk_figure_lane"), nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.Column("started_s", sa.Float, nullable=False),
        sa.Column("guests", sa.Integer, nullable=False),
        sa.Column("units", sa.Integer, nullable=False),
        sa.Column("throughput_bytes_per_s", sa.Float),
        sa.Column("iops", sa.Float),
        sa.Column("p50_ns", sa.Float),
        sa.Column("p99_ns", sa.Float),
        sa.Column("p999_ns", sa.Float),
        sa.Column("cv_within_run", sa.Float),
        sa.Column("cpu_ns_per_io", sa.Float),
        sa.Column("doubts", sa.JSON, nullable=False),
    )
    op.create_table(
        "latency",
        _run_id("latency"),
        sa.Column("lane", WIDE, nullable=False),
        sa.Column("packed", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("run_id", "lane", name="uq_latency_run_id"),
    )


def _carry_over() -> None:
    connection = op.get_bind()
    columns: list[sa.ColumnClause[str]] = [sa.column(name, sa.Text) for name in LANE]
    known = connection.execute(sa.select(*columns).distinct().select_from(sa.table("figure_0002"))).all()
    if not known:
        return
    lane = sa.table("lane", sa.column("id", sa.BigInteger), *columns)
    rows = [{"id": _number(tuple(row)), **dict(zip(LANE, row, strict=True))} for row in known]
    connection.execute(sa.insert(lane), rows)
    same = " AND ".join(f"l.{name} = o.{name}" for name in LANE)
    place = f"ROW_NUMBER() OVER (PARTITION BY o.run_id ORDER BY o.{WRITTEN[connection.dialect.name]}) - 1"
    connection.execute(
        sa.text(
            f"INSERT INTO figure (run_id, lane, place, {', '.join(FIGURE)}) "
            f"SELECT o.run_id, l.id, {place}, {', '.join(f'o.{name}' for name in FIGURE)} FROM figure_0002 o JOIN lane l ON {same}"
        )
    )
    connection.execute(
        sa.text(
            f"INSERT INTO latency (run_id, lane, packed) SELECT o.run_id, l.id, o.latency FROM figure_0002 o JOIN lane l ON {same}"
        )
    )


def _number(what: tuple[str, ...]) -> int:
    """As it is made since; written out here, since what was migrated once must not change."""
    return int.from_bytes(hashlib.blake2b(json.dumps(what).encode(), digest_size=8).digest(), "big", signed=True)


def _run_id(table: str) -> sa.Column[str]:
    key = sa.ForeignKey("run.run_id", ondelete="CASCADE", name=f"fk_{table}_run_id")
    return sa.Column("run_id", sa.String(64), key, nullable=False)
