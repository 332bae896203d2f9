import numpy as np
import pytest
import torch

from ragen_trl.engines.luck import ReplyLuck, pick_tokens
from tests.conversations import converse, make_cached, make_model, make_reference


def test_pick_tokens_takes_the_token_whose_share_holds_the_number():
    # Shares: [0, 0.5), nothing, [0.5, 0.75), [0.75, 1).
    row = [0.5, 0.0, 0.25, 0.25]
    numbers = [0.0, 0.25, 0.5, 0.74, 0.75, 1 - 2**-53]
    picked = pick_tokens(torch.tensor([row] * len(numbers)), numbers)
    assert picked.tolist() == [0, 0, 2, 2, 3, 3]


def test_pick_tokens_never_takes_what_has_no_share_at_either_end():
    row = [0.0, 0.5, 0.5, 0.0]
    assert pick_tokens(torch.tensor([row, row]), [0.0, 1 - 2**-53]).tolist() == [1, 2]


def test_pick_tokens_follows_the_probabilities():
    row = torch.tensor([0.1, 0.6, 0.3])
    numbers = ReplyLuck(range(20_000), 0).draw()
    picked = pick_tokens(row.expand(20_000, 3), numbers)
    shares = torch.bincount(picked, minlength=3) / 20_000
    # Four standard deviations of the largest share: 4 * sqrt(0.6 * 0.4 / 20,000).
    assert shares.tolist() == pytest.approx(row.tolist(), abs=0.014)


def test_luck_depends_on_seed_and_turn_alone():
    together, alone = ReplyLuck([5, 6], 2), ReplyLuck([6], 2)
    draws = [together.draw() for _ in range(3)]
    assert [row[1] for row in draws] == [alone.draw()[0] for _ in range(3)]
    assert np.unique(draws).size == 6
    assert ReplyLuck([6], 3).draw() != ReplyLuck([6], 2).draw()


@pytest.mark.parametrize("rules", [{}, {"top_k": 5}, {"top_p": 0.8}])
def test_episodes_with_own_luck_are_the_same_in_every_wave_and_engine(rules):
    model = make_model()
    played = [
        converse(engine, num_groups=4, group_size=3, wave_size=wave_size, has_own_luck=True)[0]
        for engine in (
            make_cached(model, temperature=1.0, **rules),
            make_reference(model, temperature=1.0, **rules),
        )
        for wave_size in (1, 5, 12)
    ]
    ids = [[episode.ids for episode in episodes] for episodes in played]
    assert all(other == ids[0] for other in ids[1:])
    logps = [[logp for episode in episodes for logp in episode.logps] for episodes in played]
    assert logps[-1] == pytest.approx(logps[0], abs=1e-4)
    # Members of a group share their prompt and not their luck.
    assert len({tuple(episode) for episode in ids[0]}) > 8


def test_episodes_without_own_luck_depend_on_their_wave():
    engine = make_cached(make_model(), temperature=1.0)
    played = []
    for wave_size in (5, 12):
        torch.manual_seed(0)
        episodes, _ = converse(engine, num_groups=4, group_size=3, wave_size=wave_size)
        played.append([episode.ids for episode in episodes])
    assert played[0] != played[1]
