"""From checked settings to guests: ranges expanded, layers laid over each other, references followed.

The closest setting wins, key by key: the guest, its groups (the later listed wins), its vm_host, defaults, built in. `labels`
and `targets` are merged name by name. A key that says null goes back to the built-in value.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from calyx_orch import names
from calyx_orch.documents import Document, Path, suggestion
from calyx_orch.errors import Problem
from calyx_orch.inventory import addresses
from calyx_orch.inventory.schema import InventoryDocument
from calyx_orch.inventory.settings.guests import GuestSettings, JumpHostSettings, TargetSettings
from calyx_orch.model import Connection, Guest, HostKeyPolicy, Limits, Place, Target, TransportKind

_NAME_REFUSED = frozenset("*?,[]{}\\\"'`$|<>;&/")


class Fleet:
    """Resolves the guests of one document; what is wrong is added to the document's problems."""

    def __init__(self, document: Document, model: InventoryDocument, cut: set[Path], base_dir: str) -> None:
        self._document = document
        self._model = model
        self._cut = cut
        self._base_dir = base_dir
        self._defaults = model.defaults or GuestSettings.model_construct()
        self._vm_hosts = model.vm_hosts or {}
        self._groups = model.groups or {}
        self._storage = model.storage or {}
        self._jump_hosts = model.jump_hosts or {}
        self._jumps: dict[str, Connection | None] = {}

    def guests(self) -> tuple[Guest, ...]:
        """All guests in the order written, names unique."""
        found: dict[str, Guest] = {}
        whole: list[Guest] = []  # those of which no part of the connection was wrong
        for path, pattern, settings in self._entries():
            is_whole = not self._document.lacks(path, "address", "port", "jump", "transport")
            for guest in self._members(path, pattern, settings):
                if guest.name in found:
                    lines = f"line {found[guest.name].line} and line {guest.line}"
                    self._problem(path, f"guest '{guest.name}' is named twice: {lines}", at_key=True)
                    break
                found[guest.name] = guest
                if is_whole:
                    whole.append(guest)
                if len(found) > names.NAMES_MAX:
                    self._problem(path, f"more than {names.NAMES_MAX} guests", at_key=True)
                    return tuple(found.values())
        if not self._model.guests and not self._is_cut("guests"):
            self._problem(("guests",), "no guest: name at least one under guests:")
        self._refuse_same_machine(whole)
        return tuple(found.values())

    def places(self, section: str) -> tuple[Place, ...]:
        """The vm_hosts or storage pools with their declared free space."""
        declared: Mapping[str, Any] = self._vm_hosts if section == "vm_hosts" else self._storage
        return tuple(
            Place(name, settings.free if settings else None, dict((settings.labels if settings else None) or {}))
            for name, settings in declared.items()
        )

    def _entries(self) -> Iterator[tuple[Path, str, GuestSettings]]:
        guests = self._model.guests
        if isinstance(guests, dict):
            for name, settings in guests.items():
                yield ("guests", name), name, settings or GuestSettings.model_construct()
        else:
            for index, named in enumerate(guests or ()):
                yield ("guests", index), named.name, named

    def _names(self, path: Path, pattern: str) -> tuple[str, ...]:
        try:
            expanded = names.expand(pattern)
            for name in (expanded[0], expanded[-1]):
                _check_name(name)
        except ValueError as error:
            self._problem(path, f"guest name: {error}", at_key=True)
            return ()
        return expanded

    def _members(self, path: Path, pattern: str, settings: GuestSettings) -> Iterator[Guest]:
        """The guests of one entry: one, or those of a range, which are alike but for name and address."""
        members = self._names(path, pattern)
        layers, groups, vm_host = self._layers(path, settings)
        targets = self._targets(layers)
        if not targets and not any("targets" in steps for steps in self._cut):
            self._problem(
                path,
                f"guest '{pattern}' has no target: give targets: {{data: /directory}} here or under defaults",
                at_key=True,
            )
        node = self._document.key(path) if isinstance(path[-1], str) else self._document.find((*path, "name"))
        node = node or self._document.find(path)  # a list's entry that is a name alone
        alike: dict[str, Any] = {
            "targets": targets, "vm_host": vm_host, "groups": groups, "storage": self._reference(layers, "storage", self._storage),
            "fio_path": _said(layers, "fio")[0], "agent_dir": _said(layers, "agent_dir")[0],
            "become": tuple((_said(layers, "become")[0] or "").split()), "dead_man_s": _said(layers, "dead_man")[0] or 10.0,
            "same_machine": bool(_said(layers, "same_machine")[0]), "labels": _merged(layers, "labels"),
            "limits": _limits(layers), "line": node.line if node is not None else 0,
        }  # fmt: skip
        for name, connection in zip(members, self._connections(layers, path, members), strict=False):
            yield Guest(name=name, connection=connection, **alike)

    def _layers(
        self, path: Path, settings: GuestSettings
    ) -> tuple[list[tuple[Path, Any]], tuple[str, ...], str | None]:
        """What holds for an entry, the closest first; its groups, and its vm_host."""
        defaults: tuple[Path, Any] = (("defaults",), self._defaults)
        named, named_at = _said([(path, settings), defaults], "groups")
        groups = self._references(named_at, "groups", named or (), self._groups)
        members = [(("groups", group), self._groups[group]) for group in groups if self._groups.get(group) is not None]
        layers: list[tuple[Path, Any]] = [(path, settings), *reversed(members), defaults]
        vm_host = self._reference(layers, "vm_host", self._vm_hosts)
        if vm_host is not None and self._vm_hosts[vm_host] is not None:
            layers.insert(-1, (("vm_hosts", vm_host), self._vm_hosts[vm_host]))
        return layers, tuple(groups), vm_host

    def _connections(self, layers: list[tuple[Path, Any]], path: Path, members: Sequence[str]) -> Iterator[Connection]:
        """How each of these guests is reached; none when an address of theirs cannot be."""
        user, user_at = _said(layers, "user")
        jump, jump_at = _said(layers, "jump")
        _, address_at = _said(layers, "address")
        alike: dict[str, Any] = {
            "port": _said(layers, "port")[0] or 22,
            "jump": self._jump(jump, (*jump_at, "jump")) if jump is not None else None,
            "transport": TransportKind(_said(layers, "transport")[0] or "ssh"),
            **self._credentials(layers),
        }
        for endpoint in self._endpoints(layers, path, members):
            if endpoint.user is not None and user_at == address_at and user not in (None, endpoint.user):
                self._problem(
                    (*address_at, "user"), f"'user' says {user!r}, the address says {endpoint.user!r}: keep one"
                )
            yield Connection(address=endpoint.address, user=user if endpoint.user is None else endpoint.user, **alike)

    def _endpoints(
        self, layers: list[tuple[Path, Any]], path: Path, members: Sequence[str]
    ) -> Sequence[addresses.Endpoint]:
        """The address of each of these guests: its own of a range, the one that is said for all, or its name."""
        written, where = _said(layers, "address")
        try:
            spelled = members if written is None else names.expand(written) if names.has_range(written) else (written,)
            if members and len(spelled) not in (1, len(members)):
                raise ValueError(f"{written!r} stands for {len(spelled)} addresses, the name for {len(members)} guests")
            endpoints = [addresses.split_endpoint(one) for one in spelled]
            for one, endpoint in zip(spelled, endpoints, strict=True):
                if endpoint.port is not None:
                    raise ValueError(f"{one!r} holds a port: write it as port: {endpoint.port}")
        except ValueError as error:
            message = (
                f"'address': {error}" if written is not None else f"the name is the address, but {error}; give address:"
            )
            self._problem((*where, "address") if written is not None else path, message, at_key=written is None)
            return ()
        return endpoints if len(endpoints) == len(members) else endpoints * len(members)

    def _credentials(self, layers: list[tuple[Path, Any]]) -> dict[str, Any]:
        keys = _said(layers, "key")[0] or ()
        policy, timeout_s = _said(layers, "host_key_policy")[0], _said(layers, "connect_timeout")[0]
        return {
            "key_files": tuple(self._file(key) for key in keys),
            "ssh_config": self._file(_said(layers, "ssh_config")[0]),
            "known_hosts": self._file(_said(layers, "known_hosts")[0]),
            "host_key_policy": HostKeyPolicy(policy or "strict"),
            "connect_timeout_s": 15.0 if timeout_s is None else timeout_s,
        }

    def _jump(self, written: str, at: Path, on_the_way: tuple[str, ...] = ()) -> Connection | None:
        """The connection of a jump host, by name or as user@host:port."""
        if written in on_the_way:
            self._problem(at, f"jump hosts lead in a circle: {' > '.join((*on_the_way, written))}")
            return None
        if written not in self._jumps:
            self._jumps[written] = self._new_jump(written, at, (*on_the_way, written))
        return self._jumps[written]

    def _new_jump(self, written: str, at: Path, on_the_way: tuple[str, ...]) -> Connection | None:
        settings = self._jump_hosts.get(written) or JumpHostSettings.model_construct()
        here: Path = ("jump_hosts", written)
        is_declared = written in self._jump_hosts
        if not is_declared and "@" not in written and ":" not in written:
            hint = suggestion(written, self._jump_hosts) or ": declare it under jump_hosts:, or write user@host:port"
            if not self._is_cut("jump_hosts"):
                self._problem(at, f"unknown jump host '{written}'{hint}")
            return None
        spelled = settings.address or written
        try:
            endpoint = addresses.split_endpoint(spelled)
        except ValueError as error:
            self._problem((*here, "address") if is_declared else at, f"jump host: {error}")
            return None
        inner = self._jump(settings.jump, (*here, "jump"), on_the_way) if settings.jump is not None else None
        layers: list[tuple[Path, Any]] = [(here, settings), (("defaults",), self._defaults)]
        return Connection(
            address=endpoint.address, port=settings.port or endpoint.port or 22, user=settings.user or endpoint.user,
            jump=inner, **self._credentials(layers),
        )  # fmt: skip

    def _targets(self, layers: list[tuple[Path, Any]]) -> tuple[Target, ...]:
        keep = bool(_said(layers, "keep_files")[0])
        targets = []
        for name, settings in _merged(layers, "targets").items():
            if settings is not None:
                targets.append(_target(name, settings, keep=keep))
        return tuple(targets)

    def _reference(self, layers: list[tuple[Path, Any]], key: str, known: Mapping[str, Any]) -> str | None:
        value, where = _said(layers, key)
        if value is None:
            return None
        return next(iter(self._references(where, key, (value,), known)), None)

    def _references(self, where: Path, key: str, values: Iterable[str], known: Mapping[str, Any]) -> list[str]:
        section = {"vm_host": "vm_hosts", "groups": "groups", "storage": "storage"}[key]
        found = []
        for index, value in enumerate(values):
            if value in known:
                found.append(value)
            elif (section, value) not in self._cut and (section,) not in self._cut:
                at: Path = (*where, key)
                if isinstance(getattr(self._document.find(at), "value", None), list):
                    at = (*at, index)
                word = "group" if key == "groups" else key
                hint = suggestion(value, known) or f": declare it under {section}:"
                self._problem(at, f"unknown {word} '{value}'{hint}")
        return found

    def _refuse_same_machine(self, guests: Iterable[Guest]) -> None:
        seen: dict[tuple[Any, ...], Guest] = {}
        for guest in guests:
            first = seen.setdefault(_machine(guest.connection), guest)
            if first is guest or (first.same_machine and guest.same_machine):
                continue
            node = self._document.find(("guests",))
            where = f"{guest.connection.address} port {guest.connection.port}"
            if guest.connection.transport is TransportKind.LOCAL:
                where = "this machine (transport: local)"
            column = node.column if node is not None else 0
            self._add(Problem(self._document.source, guest.line, column,
                f"guests '{first.name}' (line {first.line}) and '{guest.name}' are the same machine, {where}: it would be loaded twice "
                "and counted as two; say same_machine: true on both when that is meant"))  # fmt: skip

    def _file(self, path: str | None) -> str | None:
        if path is None or path.startswith(("/", "~")) or not self._base_dir:
            return path
        return posixpath.normpath(posixpath.join(self._base_dir, path))

    def _is_cut(self, section: str) -> bool:
        return any(steps and steps[0] == section for steps in self._cut)

    def _problem(self, path: Path, message: str, *, at_key: bool = False) -> None:
        self._add(self._document.problem(path, message, at_key=at_key))

    def _add(self, problem: Problem) -> None:
        self._document.problems.append(problem)


def _target(name: str, settings: TargetSettings, *, keep: bool) -> Target:
    raw = settings.path is None
    path = settings.path or settings.device or f"serial:{settings.serial}"
    keep = keep if settings.keep_files is None else settings.keep_files
    return Target(name, path, settings.allow_ram, raw, settings.serial if raw else None, settings.reserve, keep)


def _said(layers: list[tuple[Path, Any]], key: str) -> tuple[Any, Path]:
    """The closest layer's value of `key`, and where it is said; (None, ()) when nobody says it."""
    for path, settings in layers:
        if key in settings.model_fields_set:
            return getattr(settings, key), path
    return None, ()


def _limits(layers: list[tuple[Path, Any]]) -> Limits:
    said = _said(layers, "limits")[0]
    return Limits() if said is None else Limits(said.max_read, said.max_write)


def _merged(layers: list[tuple[Path, Any]], key: str) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for _, settings in reversed(layers):
        merged.update(getattr(settings, key, None) or {})
    return merged


def _machine(connection: Connection) -> tuple[Any, ...]:
    if connection.transport is TransportKind.LOCAL:
        return ("local",)
    behind = _machine(connection.jump) if connection.jump is not None else ()
    return (addresses.canonical(connection.address), connection.port, behind)


def _check_name(name: str) -> None:
    if not name.strip() or name != name.strip() or len(name) > 200:
        raise ValueError(f"{name[:60]!r} is empty, too long, or begins or ends with a space")
    if name in (".", "..") or name.startswith("-"):
        raise ValueError(f"{name!r} cannot be a name")
    bad = sorted({character for character in name if character in _NAME_REFUSED or not character.isprintable()})
    if bad:
        raise ValueError(f"{name[:60]!r} holds {' '.join(repr(one) for one in bad)}")
