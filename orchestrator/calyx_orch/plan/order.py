"""Balanced order: of engines within a block, and of guests within a load mode.

Engines. One engine has one turn in a block. Two have two turns each, ABBA or BAAB by turns, so that any linear drift within a
block falls on both alike. Three (any odd number) have one turn each in the order of a Williams design: over three blocks each
engine stands once at each place, over six each follows each other equally often (Williams, Aust. J. Sci. Res. A 2, 1949).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from calyx_orch.model import Guest, LoadMode


def engine_orders(engines: Sequence[str], blocks: int, rng: random.Random) -> tuple[tuple[str, ...], ...]:
    """The order of engines for each block; the first is drawn by `rng`, the rest follow from it."""
    count = len(engines)
    if count == 1:
        indices: list[list[int]] = [[0]]
        start = 0
    elif count == 2:
        indices, start = [[0, 1, 1, 0], [1, 0, 0, 1]], rng.randrange(2)
    else:
        forward, backward = _williams(count)
        first, row = (forward, backward) if rng.randrange(2) == 0 else (backward, forward), rng.randrange(count)
        indices = [square[(row + place) % count] for square in first for place in range(count)]
        start = 0
    return tuple(tuple(engines[index] for index in indices[(start + block) % len(indices)]) for block in range(blocks))


def turns(guests: Sequence[Guest], load: LoadMode, *, by_domain: bool) -> dict[str, int]:
    """At which step of a staggered round each guest starts: guest after guest, or domain after domain; all at 0 in other modes."""
    if load is not LoadMode.STAGGERED:
        return dict.fromkeys((guest.name for guest in guests), 0)
    steps = list(dict.fromkeys(guest.domain if by_domain else guest.name for guest in guests))
    place = {step: number for number, step in enumerate(steps)}
    return {guest.name: place[guest.domain if by_domain else guest.name] for guest in guests}


def guest_sets(guests: Sequence[Guest], load: LoadMode, max_per_domain: int | None) -> tuple[tuple[Guest, ...], ...]:
    """Who runs at once, set after set: each guest is in exactly one set.

    together and staggered: all; per_domain: one domain after another; alone: the k-th guest of each domain. No set holds more
    than `max_per_domain` guests of a domain; what is beyond is in further sets.
    """
    domains = _by_domain(guests)
    limit = max_per_domain if max_per_domain is not None else len(guests)
    if load is LoadMode.ALONE:
        return _slices(domains, 1)
    if load is LoadMode.PER_DOMAIN:
        return tuple(part for domain in domains for part in _slices([domain], limit))
    return _slices(domains, limit)


def density_sets(
    guests: Sequence[Guest], levels: Sequence[int], max_per_domain: int | None
) -> tuple[tuple[int, tuple[Guest, ...]], ...]:
    """(level, the first so many guests of each vm_host), from few to many; 0 stands for all.

    A guest without a vm_host counts as on one with all others that have none. Levels that no vm_host reaches, or that `max_per_domain`
    forbids, are those of as many guests as there may be.
    """
    hosts: dict[str | None, list[Guest]] = {}
    for guest in guests:
        hosts.setdefault(guest.vm_host, []).append(guest)
    most = max(map(len, hosts.values()), default=0)
    most = min(most, max_per_domain or most)
    chosen = sorted({min(level or most, most) for level in levels} - {0})
    named = {level: {one.name for of in hosts.values() for one in of[:level]} for level in chosen}
    return tuple((level, tuple(guest for guest in guests if guest.name in named[level])) for level in chosen)


def _williams(count: int) -> tuple[list[list[int]], list[list[int]]]:
    """The rows of a Williams design: a Latin square in zigzag order and its mirror."""
    zigzag = [(place + 1) // 2 if place % 2 else (count - place // 2) % count for place in range(count)]
    rows = [[(value + shift) % count for value in zigzag] for shift in range(count)]
    return rows, [row[::-1] for row in rows]


def _by_domain(guests: Iterable[Guest]) -> list[list[Guest]]:
    domains: dict[str, list[Guest]] = {}
    for guest in guests:
        domains.setdefault(guest.domain, []).append(guest)
    return list(domains.values())


def _slices(domains: Sequence[Sequence[Guest]], width: int) -> tuple[tuple[Guest, ...], ...]:
    """The k-th `width` guests of each domain, for k = 0, 1, .. until none is left."""
    longest = max((len(domain) for domain in domains), default=0)
    return tuple(
        tuple(guest for domain in domains for guest in domain[start : start + width])
        for start in range(0, longest, width)
    )
