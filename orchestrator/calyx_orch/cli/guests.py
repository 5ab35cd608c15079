"""The words by which run, check and clean hear of guests: an inventory, or guests by hand and how these are reached."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_type_hints

import typer

from calyx_orch.errors import UsageError
from calyx_orch.model import HostKeyPolicy, Inventory

BY_HAND = "Guests without an inventory"
_REACHED = (
    "key",
    "known_hosts",
    "host_key_policy",
    "ssh_config",
    "jump",
)  # as an inventory calls them under `defaults`


@dataclass(frozen=True)
class Guests:
    """What the command line says of guests; each field is one of its words, with its help."""

    inventory: Annotated[
        str | None, typer.Argument(metavar="INVENTORY", help="A YAML file, a program that prints one, or - .")
    ] = None
    guest: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            rich_help_panel=BY_HAND,
            help="Instead of an inventory: address, user@address or user@address:port; repeat.",
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(metavar="DIR", rich_help_panel=BY_HAND, help="With --guest: the directory to measure on each."),
    ] = None
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", rich_help_panel=BY_HAND, help="With --guest: a private key file; repeat."),
    ] = None
    known_hosts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=BY_HAND, help="With --guest: host keys, instead of your own file."
        ),
    ] = None
    host_key_policy: Annotated[
        HostKeyPolicy | None,
        typer.Option(
            metavar="POLICY",
            rich_help_panel=BY_HAND,
            help="With --guest: strict (the default), or accept-new: record an unknown host key at first sight.",
        ),
    ] = None
    ssh_config: Annotated[
        str | None,
        typer.Option(metavar="FILE", rich_help_panel=BY_HAND, help="With --guest: an OpenSSH client configuration."),
    ] = None
    jump: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", rich_help_panel=BY_HAND, help="With --guest: reach all through this machine."),
    ] = None

    @property
    def by_hand(self) -> dict[str, Any]:
        """All but the inventory, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "inventory"}

    def read(self, wanted: Sequence[str] = ()) -> Inventory:
        """The inventory that is named, or the guests by hand as one, with those presets of `wanted` that it can take.

        Raises UsageError when neither is named, or both are.
        """
        from calyx_orch.commands import run as command

        if self.inventory is not None and self.guest:
            raise UsageError("give either an inventory or --guest, not both")
        if self.guest:
            if self.target is None:
                raise UsageError("--guest needs --target: the directory to measure on each guest")
            said = {name: getattr(self, name) for name in _REACHED}
            reached = command.Reached(**{**said, "key": tuple(self.key or ())})
            return command.of_guests(tuple(self.guest), self.target, tuple(wanted), reached)
        if self.target is not None:
            raise UsageError("--target goes with --guest; in an inventory the targets stand under `targets:`")
        for name in _REACHED:
            if getattr(self, name):
                raise UsageError(f"{spelling(name)} goes with --guest; in an inventory write `{name}:` under defaults:")
        if self.inventory is None:
            raise UsageError(
                "name an inventory, or guests with --guest and --target; `calyx-orch init` writes a first inventory"
            )
        return command.read_file(self.inventory)


def on_guests(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose first parameter is `Guests`, as typer wants it: with the words of `Guests` in that parameter's place."""
    hints = get_type_hints(Guests, include_extras=True)
    words = [
        inspect.Parameter(
            one.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=one.default, annotation=hints[one.name]
        )
        for one in fields(Guests)
    ]
    own = list(inspect.signature(verb, eval_str=True).parameters.values())[1:]

    @functools.wraps(verb)
    def spelled_out(**said: Any) -> None:
        verb(Guests(**{one.name: said.pop(one.name) for one in words}), **said)

    spelled_out.__signature__ = inspect.Signature([*words, *own])  # type: ignore[attr-defined]
    spelled_out.__annotations__ = {one.name: one.annotation for one in (*words, *own)}
    return spelled_out


def spelling(name: str) -> str:
    """An option as it is typed."""
    return f"--{name.replace('_', '-')}"
