"""A round as a pure state machine: who is told what, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calyx_orch import coordination as co
from calyx_orch.model import Policy

SECOND = 1_000_000_000
RULES = co.Rules(Policy(), ready_within_ns=10 * SECOND, report_within_ns=60 * SECOND, stop_within_ns=5 * SECOND)


def play(progress: co.RoundProgress, *events: co.Event) -> tuple[co.RoundProgress, list[co.Action]]:
    """Feed events, collect all actions."""
    actions: list[co.Action] = []
    for event in events:
        progress, new = co.step(progress, event)
        actions += new
    return progress, actions


def opened(*guests: str, policy: Policy | None = None) -> co.RoundProgress:
    rules = RULES if policy is None else replace(RULES, policy=policy)
    return co.open_round(guests, rules, at_ns=0)[0]


def test_every_guest_is_loaded_when_the_round_opens() -> None:
    """Opening a round tells each guest its job, once."""
    _, actions = co.open_round(("a", "b"), RULES, at_ns=0)
    assert actions == (co.Load("a"), co.Load("b"))


def test_no_guest_is_armed_before_every_guest_is_ready() -> None:
    """The start line is set only when the slowest is ready."""
    progress, actions = play(opened("a", "b"), co.Ready(1, "a"), co.Tick(2))
    assert actions == []
    _, actions = play(progress, co.Ready(3, "b"))
    assert actions == [co.Arm(("a", "b"))]


def test_a_guest_that_is_never_ready_is_abandoned_and_the_others_start() -> None:
    """A barrier that waits for ever is no barrier."""
    progress, actions = play(opened("a", "b"), co.Ready(1, "a"), co.Tick(10 * SECOND))
    assert actions == [co.Abandon("b", "not ready within 10 s"), co.Arm(("a",))]
    assert progress.state_of("b").state is co.GuestState.LOST


def test_a_failed_guest_does_not_hold_up_the_others() -> None:
    """Continue is the default policy."""
    _, actions = play(opened("a", "b"), co.Failed(1, "a", "no space"), co.Ready(2, "b"))
    assert actions == [co.Arm(("b",))]


def test_the_round_ends_when_all_have_reported_or_are_gone() -> None:
    """Lost in the middle: the other's result stands."""
    progress, actions = play(
        opened("a", "b"), co.Ready(1, "a"), co.Ready(2, "b"), co.Armed(3, "a"), co.Armed(3, "b"), co.Started(4, "a"),
        co.Lost(5, "b", "connection lost"), co.Reported(6, "a"),
    )  # fmt: skip
    assert actions == [co.Arm(("a", "b")), co.Finish("")]
    assert progress.named(co.GuestState.REPORTED) == ("a",)
    assert progress.state_of("b").reason == "connection lost"


def test_a_silent_guest_is_given_up_only_after_its_deadline() -> None:
    """Late beats are no reason; the deadline is."""
    progress, _ = play(opened("a"), co.Ready(0, "a"), co.Armed(1, "a"), co.Started(2, "a"))
    progress, actions = play(progress, co.Tick(59 * SECOND))
    assert actions == []
    progress, actions = play(progress, co.Tick(60 * SECOND))
    assert [type(action) for action in actions] == [co.Abandon, co.Finish]


def test_an_interrupt_stops_whoever_runs_and_waits_a_bounded_time() -> None:
    """What was measured is kept: guests are asked to stop and report."""
    progress, actions = play(
        opened("a", "b"), co.Ready(1, "a"), co.Ready(1, "b"), co.Reported(2, "a"), co.Interrupted(3)
    )
    assert actions[1:] == [co.Stop("b")]
    progress, actions = play(progress, co.Tick(3 + 5 * SECOND))
    assert actions == [co.Abandon("b", "did not stop within 5 s"), co.Finish("interrupted")]


@pytest.mark.parametrize(
    ("policy", "stops"),
    [(Policy(), False), (Policy("stop"), True), (Policy(quorum=0.5), False), (Policy(quorum=0.8), True)],
)
def test_the_policy_decides_what_a_lost_guest_means(policy: Policy, stops: bool) -> None:
    """Of four guests one is lost."""
    _, actions = play(opened("a", "b", "c", "d", policy=policy), co.Lost(1, "d", "gone"))
    assert (co.Stop("a") in actions) is stops


@pytest.mark.parametrize(
    ("policy", "here", "elsewhere", "fleet", "stops"),
    [
        (Policy(quorum=0.8), 2, 8, 10, False),  # 9 of 10 are left, though only one of the two in this round
        (Policy(quorum=0.8), 8, 0, 10, True),  # 7 of 10 are left, though 7 of the 8 in this round
        (Policy(quorum=0.8), 1, 8, 10, False),
        (Policy(quorum=0.8), 1, 7, 10, True),
        (Policy("stop"), 1, 9, 10, True),
        (Policy(), 1, 0, 10, False),
    ],
)
def test_the_policy_counts_the_fleet_and_not_the_round(
    policy: Policy, here: int, elsewhere: int, fleet: int, stops: bool
) -> None:
    """One guest of a round is lost, while others of the run have no part in the round, or were lost before."""
    names = tuple(f"g{number}" for number in range(here))
    rules = replace(RULES, policy=policy, fleet=fleet, elsewhere=elsewhere)
    progress, actions = play(co.open_round(names, rules, at_ns=0)[0], co.Lost(1, "g0", "gone"))
    assert progress.stopped_because.startswith("policy") is stops
    assert (co.Stop("g1") in actions) is (stops and here > 1)


@pytest.mark.parametrize("percent", range(1, 101))
def test_a_quorum_is_met_to_the_guest(percent: int) -> None:
    """55 % of 20 guests are 11, whatever floats say."""
    for planned in (1, 3, 7, 10, 20, 100):
        needed = -(-percent * planned // 100)
        policy = Policy(quorum=percent / 100)
        assert co.is_quorum_met(policy, alive=needed, planned=planned)
        assert not co.is_quorum_met(policy, alive=needed - 1, planned=planned)


def test_what_comes_after_the_end_changes_nothing() -> None:
    """A late message of a past round is ignored."""
    progress, _ = play(opened("a"), co.Lost(1, "a", "gone"))
    assert progress.phase is co.Phase.DONE
    assert co.step(progress, co.Ready(2, "a")) == (progress, ())


EVENTS = st.one_of(
    st.builds(co.Ready, st.just(0), st.sampled_from("abc")),
    st.builds(co.Armed, st.just(0), st.sampled_from("abc")),
    st.builds(co.Started, st.just(0), st.sampled_from("abc")),
    st.builds(co.Reported, st.just(0), st.sampled_from("abc")),
    st.builds(co.Failed, st.just(0), st.sampled_from("abc"), st.just("f")),
    st.builds(co.Lost, st.just(0), st.sampled_from("abc"), st.just("l")),
    st.builds(co.Tick, st.just(0)),
    st.builds(co.Interrupted, st.just(0)),
)


@given(st.lists(EVENTS, max_size=40))
def test_every_order_of_events_arms_once_and_finishes_once_at_most(events: list[co.Event]) -> None:
    """Whatever guests send, in whatever order: one start line, one end, and time always ends the round."""
    timed = [replace(event, at_ns=index) for index, event in enumerate(events)]
    ends = [co.Tick(at * 1000 * SECOND) for at in (1, 2, 3, 4)]
    progress, actions = play(opened("a", "b", "c"), *timed, *ends)
    assert sum(isinstance(action, co.Arm) for action in actions) <= 1
    assert sum(isinstance(action, co.Finish) for action in actions) == 1
    assert progress.phase is co.Phase.DONE


@given(st.lists(EVENTS, max_size=30))
def test_replaying_the_journal_gives_the_same_actions(events: list[co.Event]) -> None:
    """`step` depends on nothing but what it is given."""
    timed = [replace(event, at_ns=index) for index, event in enumerate(events)]
    assert play(opened("a", "b", "c"), *timed) == play(opened("a", "b", "c"), *timed)
