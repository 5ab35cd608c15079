"""How a run goes: baselines, who runs at once, repetitions and preconditions, bounds of its impact, and what a lost guest means."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from calyx_orch import units
from calyx_orch.inventory import words
from calyx_orch.inventory.settings.strict import Strict
from calyx_orch.inventory.values import (
    DayWindow,
    Duration,
    Latency,
    Many,
    Rate,
    Share,
    Size,
    Text,
    Whole,
    parsed,
)

Engine = Literal["fio-io_uring", "fio-libaio", "fio-psync"]


class BaselineSettings(Strict):
    """Which fio engines run besides calyx."""

    engines: Many[Engine]
    when_missing: Literal["refuse", "skip"] = "refuse"


class QuorumSettings(Strict):
    """Go on while at least this share of the guests answers."""

    quorum: Annotated[
        float,
        parsed(units.parse_percent),
        WithJsonSchema({"type": "string", "pattern": units.PERCENT_PATTERN}),
        Field(gt=0),
    ]


class AbortSettings(Strict):
    """A round is stopped when a guest shows that it harms; what it measured until then enters no figure."""

    lost_time_above: Share | None = Field(
        default=None, description="share of time that is taken from a CPU, before a round: it is not begun"
    )
    steal_above: Share | None = Field(
        default=None, description="share of stolen time over a round: its workload is not run again in this run"
    )
    latency_above: Latency | None = Field(
        default=None,
        description="age of an I/O of calyx while a round runs: it is stopped, and its workload not run again",
    )


class ImpactSettings(Strict):
    """Bounds of what a run may do to its neighbours; they hold for every engine."""

    max_rate: Rate | None = Field(default=None, description="per guest")
    max_guests_per_domain: Whole | None = Field(default=None, ge=1)
    max_bytes_written: Size | None = Field(default=None, description="per guest and run, layout included")
    layout_rate: Rate | None = Field(
        default=None, description="per guest, while files are laid out; default: max_rate, else 500MB/s"
    )
    window: DayWindow | None = Field(
        default=None, description="time of day in which rounds may run, such as 01:00-05:00 Europe/Berlin"
    )
    abort_if: AbortSettings | None = None
    stagger_by: Literal["guest", "domain"] = Field(
        default="guest", description="domain: load: staggered starts one contention domain after the other"
    )


class PreconditionSettings(Strict):
    """Writing workloads are run before the first block, until steady."""

    until: Literal["steady"] = "steady"
    max: Annotated[Duration, Field(gt=0, le=7 * 86400)] = Field(
        default=1800.0, description="the longest of each workload; default: 30m"
    )
    max_bytes: Size | None = Field(default=None, description="written by each guest to precondition, in the whole run")
    workloads: Many[Text] | None = Field(default=None, description="names; default: those that write")


class DensitySettings(Strict):
    """How many guests of each vm_host run at once: level after level."""

    density: Many[Annotated[int, parsed(words.density), WithJsonSchema(words.DENSITY_SCHEMA)]]


class UntilSettings(Strict):
    """What makes further blocks needless."""

    cv_interval: Share = Field(
        gt=0, le=0.5, description="half of the 95 % interval of each engine's throughput / its mean: 0.02 or 2%"
    )


class RepetitionSettings(Strict):
    """Blocks until an interval is narrow enough."""

    min: Annotated[Whole, Field(ge=3, le=1000)] = 3
    max: Annotated[Whole, Field(ge=3, le=1000)] = 15
    until: UntilSettings

    @model_validator(mode="after")
    def _in_order(self) -> RepetitionSettings:
        if self.max < self.min:
            raise ValueError(f"'max' is {self.max}, less than 'min', which is {self.min}")
        return self


def _baselines(value: Any) -> Any:
    if isinstance(value, list):
        return {"engines": value}
    if isinstance(value, str) and value.startswith("fio"):
        return {"engines": [value]}
    return value


class _OrEngines:
    """In the schema, beside the words and the mapping: the engines alone."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        engine = {"enum": list(get_args(Engine)), "type": "string"}
        return {"anyOf": [handler(core), engine, {"type": "array", "items": engine, "minItems": 1}]}


def _word_or_mapping(value: Any) -> str:
    return "(mapping)" if isinstance(value, (dict, BaseModel)) else "(word)"


BaselineChoice = Annotated[
    Annotated[Literal["auto", "none"], Tag("(word)")] | Annotated[BaselineSettings, Tag("(mapping)")],
    Discriminator(_word_or_mapping),
    BeforeValidator(_baselines),
    _OrEngines,
]
PolicyChoice = Annotated[
    Annotated[Literal["continue", "stop"], Tag("(word)")] | Annotated[QuorumSettings, Tag("(mapping)")],
    Discriminator(_word_or_mapping),
]
Repetitions = Annotated[
    Annotated[Annotated[Whole, Field(ge=1, le=1000)], Tag("(word)")] | Annotated[RepetitionSettings, Tag("(mapping)")],
    Discriminator(_word_or_mapping),
]
Load = Literal["together", "per_domain", "alone", "staggered"]
LoadChoice = Annotated[
    Annotated[Load, Tag("(word)")] | Annotated[DensitySettings, Tag("(mapping)")], Discriminator(_word_or_mapping)
]
