from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_trl.refill import has_variance, refill, split_groups
from tests.episodes import make_trajectory


def make_groups(*groups):
    return [
        make_trajectory(group_id=group_id, reward=value)
        for group_id, returns in enumerate(groups)
        for value in returns
    ]


class Play:
    """Plays groups from a list, those of one call numbered from 0 like a rollout of its own."""

    def __init__(self, *groups):
        self.groups = list(groups)
        self.asked = []

    def __call__(self, count):
        self.asked.append(count)
        taken, self.groups = self.groups[:count], self.groups[count:]
        return make_groups(*taken)


EQUAL, MIXED, OTHER = [0.15, 0.15], [0.0, 1.0], [2.0, 5.0]


def returns_by_group(trajectories):
    return {g[0].group_id: [t.total_reward for t in g] for g in split_groups(trajectories)}


def test_has_variance_is_decided_by_more_than_rounding():
    assert not has_variance(make_groups([0.1 + 0.2, 0.3]))
    assert has_variance(make_groups([0.3, 0.30001]))


def test_refill_without_tries_changes_nothing():
    start, play = make_groups(EQUAL, MIXED), Play(MIXED)
    kept, played = refill(start, num_wanted=2, max_tries=0, play=play)
    assert kept == played == start
    assert play.asked == []


def test_refill_replaces_groups_without_variance_by_new_ones():
    play = Play(OTHER)
    kept, played = refill(make_groups(EQUAL, MIXED), num_wanted=2, max_tries=5, play=play)
    assert play.asked == [1]
    assert returns_by_group(played) == {0: EQUAL, 1: MIXED, 2: OTHER}
    assert returns_by_group(kept) == {1: MIXED, 2: OTHER}


def test_refill_stops_after_its_tries_and_keeps_the_number_of_groups():
    play = Play(*[EQUAL] * 100)
    kept, played = refill(make_groups(EQUAL, EQUAL, MIXED), num_wanted=3, max_tries=4, play=play)
    assert play.asked == [2, 2, 2, 2]
    assert len(split_groups(played)) == 11
    # The one that can teach something comes first; the others are the first that were played.
    assert list(returns_by_group(kept)) == [0, 1, 2]
    assert [t.group_id for t in kept] == [2, 2, 0, 0, 1, 1]


def test_refill_asks_for_what_is_missing_each_time():
    play = Play(EQUAL, MIXED, OTHER)
    kept, _ = refill(make_groups(EQUAL, EQUAL, EQUAL), num_wanted=2, max_tries=9, play=play)
    # Two are missing; of the two that come one has variance, so one more is played.
    assert play.asked == [2, 1]
    assert returns_by_group(kept) == {0: EQUAL, 4: MIXED, 5: OTHER}


@settings(max_examples=60, deadline=None)
@given(
    started=st.lists(st.sampled_from([EQUAL, MIXED]), min_size=1, max_size=5),
    further=st.lists(st.sampled_from([EQUAL, MIXED]), min_size=25, max_size=25),
    share=st.floats(0.2, 1.0),
    max_tries=st.integers(1, 5),
)
def test_refill_is_bounded_deterministic_and_loses_no_group_with_variance(
    started, further, share, max_tries
):
    start, num_wanted = make_groups(*started), max(1, int(share * len(started)))
    play = Play(*further)
    kept, played = refill(start, num_wanted=num_wanted, max_tries=max_tries, play=play)
    again = refill(start, num_wanted=num_wanted, max_tries=max_tries, play=Play(*further))
    assert again == (kept, played)
    assert len(play.asked) <= max_tries
    # Every group is there once, under an id of its own, in the order in which it was played.
    everything = started + further[: sum(play.asked)]
    assert returns_by_group(played) == dict(enumerate(everything))
    num_mixed = everything.count(MIXED)
    assert num_mixed >= num_wanted or len(play.asked) == max_tries
    kept_groups = list(returns_by_group(kept).values())
    assert len(kept_groups) == len(started)
    assert kept_groups.count(MIXED) == min(num_mixed, len(started))


def test_refill_of_a_rollout_that_has_enough_plays_nothing():
    play = Play(OTHER)
    kept, played = refill(make_groups(MIXED, EQUAL, OTHER), num_wanted=2, max_tries=3, play=play)
    assert play.asked == []
    assert returns_by_group(kept) == returns_by_group(played)
