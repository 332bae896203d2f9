import random

import pytest
import torch

from ragen_trl.collation import (
    Row,
    collate,
    place_rewards,
    plan_passes,
    plan_updates,
    split_evenly,
    split_micro_batches,
    weigh_rows,
)
from tests.episodes import make_row, make_trajectory, make_turn

PAD = 99


def make_rows(count, *, seed=0):
    """Rows of random lengths, told apart by their advantage; every token id occurs once."""
    rng = random.Random(seed)
    ids = iter(range(1000, 10**6))
    rows = []
    for i in range(count):
        length = rng.randint(1, 12)
        mask = [rng.random() < 0.5 for _ in range(length)]
        completion = [next(ids) for _ in range(length)]
        trajectory = make_trajectory(
            prompt_ids=[next(ids) for _ in range(rng.randint(1, 9))],
            completion_ids=completion,
            action_mask=mask,
            logps=[-token / 10**6 if m else 0.0 for token, m in zip(completion, mask, strict=True)],
        )
        rows.append(make_row(trajectory, float(i)))
    return rows


def identities(rows):
    return sorted(row.advantages for row in rows)


# --- Splitting --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "parts", "lengths"),
    [(36, 2, [18, 18]), (7, 3, [2, 2, 3]), (2, 4, [0, 1, 0, 1]), (0, 3, [0, 0, 0]), (5, 1, [5])],
)
def test_split_evenly_lengths_and_order(count, parts, lengths):
    pieces = [list(range(count))[part] for part in split_evenly(count, parts)]
    assert [len(piece) for piece in pieces] == lengths
    assert [i for piece in pieces for i in piece] == list(range(count))


def plan(rows, update_batch_size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return plan_updates(rows, update_batch_size=update_batch_size, generator=generator)


@pytest.mark.parametrize(
    ("num_rows", "update_batch_size", "sizes"),
    [
        (36, 32, [18, 18]),
        (32, 32, [32]),
        (33, 32, [16, 17]),
        (128, 32, [32] * 4),
        (31, 8, [7, 8, 8, 8]),
        (3, 1, [1, 1, 1]),
        (5, 32, [5]),
        (0, 32, []),
    ],
)
def test_plan_updates_sizes_are_even_and_no_row_is_lost(num_rows, update_batch_size, sizes):
    rows = make_rows(num_rows)
    updates = plan(rows, update_batch_size)
    assert [len(update) for update in updates] == sizes
    assert identities(row for update in updates for row in update) == identities(rows)


def test_plan_updates_never_exceeds_the_update_batch():
    rows = make_rows(40)
    for num_rows in range(41):
        for update_batch_size in (1, 2, 3, 7, 32):
            updates = plan(rows[:num_rows], update_batch_size)
            assert all(1 <= len(update) <= update_batch_size for update in updates)
            assert sum(map(len, updates)) == num_rows


def test_plan_updates_of_several_mix_the_groups():
    # The first sixteen rows are one group, the rest another.
    first, second = plan(make_rows(32), 16)
    for update in (first, second):
        assert 4 <= sum(row.advantages < (16.0,) for row in update) <= 12


def test_plan_updates_order_comes_from_the_generator_alone():
    rows = make_rows(20)
    orders = [
        [row.advantages for update in plan(rows, 7, seed) for row in update] for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert [row.advantages for row in plan(rows, 20)[0]] == [row.advantages for row in rows]


def test_plan_passes_go_through_all_rows_in_another_order_each():
    rows = make_rows(20)
    passes = plan_passes(rows, 3, 7, seed=1)
    assert passes[0] == plan(rows, 7, 1)
    orders = [[row.advantages for update in updates for row in update] for updates in passes]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    for updates in passes:
        assert [len(update) for update in updates] == [6, 7, 7]
        assert identities(row for update in updates for row in update) == identities(rows)


def test_weigh_rows_changes_the_weight_only():
    rows = make_rows(3)
    weighed = weigh_rows(rows, torch.tensor([0.5, 0.25, 0.0]))
    assert [row.weight for row in weighed] == [0.5, 0.25, 0.0]
    assert [row.weight for row in rows] == [0.0, 0.0, 0.0]
    assert all(a.trajectory is b.trajectory for a, b in zip(rows, weighed, strict=True))
    assert identities(weighed) == identities(rows)
    with pytest.raises(ValueError, match="zip"):
        weigh_rows(rows, torch.tensor([1.0, 1.0]))


@pytest.mark.parametrize("num_processes", [1, 2, 3])
@pytest.mark.parametrize("num_micro_batches", [1, 4])
@pytest.mark.parametrize("num_rows", [0, 1, 3, 8, 23])
def test_split_micro_batches_every_row_once_over_all_processes(
    num_rows, num_micro_batches, num_processes
):
    rows = make_rows(num_rows)
    parts = [
        split_micro_batches(
            rows,
            num_micro_batches=num_micro_batches,
            process_index=index,
            num_processes=num_processes,
        )
        for index in range(num_processes)
    ]
    # Processes must agree on the number of micro-batches, or they wait for each other for ever.
    assert [len(part) for part in parts] == [num_micro_batches] * num_processes
    batches = [batch for part in parts for batch in part]
    assert identities(row for batch in batches for row in batch) == identities(rows)
    capacity = -(-num_rows // (num_micro_batches * num_processes))
    assert all(len(batch) <= capacity for batch in batches)


def test_split_micro_batches_neighbours_in_length_share_a_batch():
    rows = make_rows(24, seed=3)
    batches = split_micro_batches(rows, num_micro_batches=6, process_index=0, num_processes=1)

    def padding(batches):
        return sum(
            max(r.num_tokens for r in b) * len(b) - sum(r.num_tokens for r in b) for b in batches
        )

    lengths = [row.num_tokens for batch in batches for row in batch]
    assert lengths == sorted(lengths)
    assert padding(batches) < padding([rows[i : i + 4] for i in range(0, 24, 4)]) / 3


# --- Padding ----------------------------------------------------------------------------------


def example_rows():
    long_prompt = make_trajectory(
        [11, 12, 13],
        [21, 22, 23],
        [1, 0, 1],
        logps=[-0.5, 0.0, -0.25],
        turns=[make_turn(), make_turn()],
    )
    long_prompt.turn_index[:] = [0, -1, 1]
    short_prompt = make_trajectory([31], [41, 42], [1, 1], logps=[-1.0, -2.0])
    return [
        Row(long_prompt, (1.5, -2.0), (0.5, 1.0), weight=0.25),
        Row(short_prompt, (-0.5,), (3.0,), advantage_scale=0.5, weight=0.125),
    ]


def test_collate_hand_written_example():
    batch = collate(example_rows(), pad_token_id=PAD)
    assert batch["input_ids"].tolist() == [[11, 12, 13, 21, 22, 23], [31, 41, 42, PAD, PAD, PAD]]
    assert batch["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0]]
    # The shortest prompt has one token, so the last five of six positions are kept.
    assert batch["action_mask"].tolist() == [
        [False, False, True, False, True],
        [True, True, False, False, False],
    ]
    assert batch["turn_index"].tolist() == [[-1, -1, 0, -1, 1], [0, 0, -1, -1, -1]]
    assert batch["sampling_per_token_logps"].tolist() == [
        [0.0, 0.0, -0.5, 0.0, -0.25],
        [-1.0, -2.0, 0.0, 0.0, 0.0],
    ]
    assert batch["advantages"].tolist() == [[0.0, 0.0, 1.5, 0.0, -2.0], [-0.5, -0.5, 0, 0, 0]]
    # Paid at the last token of each turn.
    assert batch["rewards"].tolist() == [[0.0, 0.0, 0.5, 0.0, 1.0], [0.0, 3.0, 0.0, 0.0, 0.0]]
    assert batch["prompt_lengths"].tolist() == [3, 1]
    assert batch["advantage_scales"].tolist() == [1.0, 0.5]
    assert batch["loss_weights"].tolist() == [0.25, 0.125]
    dtypes = {name: tensor.dtype for name, tensor in batch.items()}
    assert dtypes == {
        "prompt_lengths": torch.int64,
        "input_ids": torch.int64,
        "attention_mask": torch.int64,
        "action_mask": torch.bool,
        "turn_index": torch.int64,
        "sampling_per_token_logps": torch.float32,
        "advantages": torch.float32,
        "rewards": torch.float32,
        "advantage_scales": torch.float32,
        "loss_weights": torch.float32,
    }


@pytest.mark.parametrize(
    ("turn_index", "rewards", "placed"),
    [
        ([0, 0, -1, 1, 1], [1.0, 2.0], [0, 1, 0, 0, 2]),
        # Turn 1 sampled nothing: paid at the end of turn 0, the last token before it.
        ([0, 0, -1, 2, 2], [1.0, 4.0, 2.0], [0, 5, 0, 0, 2]),
        # Turn 0 sampled nothing, and nothing stands before it.
        ([-1, -1, 1, 1, -1], [1.0, 2.0], [0, 0, 0, 3, 0]),
        ([-1, 1, 1, -1, 2], [1.0, 2.0, 4.0], [0, 0, 3, 0, 4]),
        ([0, -1, 1, -1, 2], [0.0, 0.0, 7.0], [0, 0, 0, 0, 7]),
        ([-1] * 5, [1.0], [0] * 5),
    ],
)
def test_place_rewards_pays_at_the_last_sampled_token_of_each_turn(turn_index, rewards, placed):
    trajectory = make_trajectory(
        completion_ids=range(5),
        action_mask=[k >= 0 for k in turn_index],
        turns=[make_turn()] * len(rewards),
    )
    trajectory.turn_index[:] = turn_index
    assert place_rewards(trajectory, rewards) == placed


def test_collate_rows_are_the_same_whatever_their_batch_mates_and_padding():
    rows = make_rows(9, seed=1)
    alone = [collate([row], pad_token_id=PAD) for row in rows]
    for multiple in (None, 1, 8, 64):
        together = collate(rows, pad_token_id=PAD, pad_to_multiple_of=multiple)
        for i, (row, single) in enumerate(zip(rows, alone, strict=True)):
            length = row.num_tokens
            ids = row.trajectory.prompt_ids + row.trajectory.completion_ids
            assert together["input_ids"][i, :length].tolist() == ids
            assert (together["input_ids"][i, length:] == PAD).all()
            assert together["attention_mask"][i].sum() == length
            mask = together["action_mask"][i]
            sampled = together["input_ids"][i, -len(mask) :][mask]
            assert (
                sampled.tolist()
                == single["input_ids"][0, -single["action_mask"].size(1) :][
                    single["action_mask"][0]
                ].tolist()
            )
            logps = together["sampling_per_token_logps"][i]
            assert (
                logps[mask].tolist()
                == single["sampling_per_token_logps"][single["action_mask"]].tolist()
            )
            assert (logps[~mask] == 0).all()


def test_collate_sampled_tokens_stand_at_their_ids():
    for seed in range(5):
        rows = make_rows(6, seed=seed)
        batch = collate(rows, pad_token_id=PAD)
        ids = batch["input_ids"][:, -batch["action_mask"].size(1) :]
        for i, row in enumerate(rows):
            t = row.trajectory
            expected = [x for x, m in zip(t.completion_ids, t.action_mask, strict=True) if m]
            assert ids[i][batch["action_mask"][i]].tolist() == expected
            # The log-probability of a token says which one it belongs to.
            logps = batch["sampling_per_token_logps"][i][batch["action_mask"][i]]
            assert logps.tolist() == pytest.approx([-token / 10**6 for token in expected])


@pytest.mark.parametrize(
    ("multiple", "width"), [(None, 6), (1, 6), (3, 6), (4, 8), (6, 6), (128, 128)]
)
def test_collate_width_is_rounded_up_to_the_multiple(multiple, width):
    batch = collate(example_rows(), pad_token_id=PAD, pad_to_multiple_of=multiple)
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, width)
    assert batch["action_mask"].shape == batch["sampling_per_token_logps"].shape == (2, width - 1)


@pytest.mark.parametrize("multiple", [None, 8])
def test_collate_no_rows_give_one_row_that_counts_for_nothing(multiple):
    batch = collate([], pad_token_id=PAD, pad_to_multiple_of=multiple)
    width = multiple or 2
    assert batch["input_ids"].tolist() == [[PAD] * width]
    # Two tokens are attended to: a row without any would give NaN in some attention kernels.
    assert batch["attention_mask"].tolist() == [[1, 1] + [0] * (width - 2)]
    assert batch["action_mask"].tolist() == [[False] * (width - 1)]
    assert batch["turn_index"].tolist() == [[-1] * (width - 1)]
    assert batch["advantages"].tolist() == batch["rewards"].tolist() == [[0.0] * (width - 1)]
    assert batch["loss_weights"].tolist() == [0.0]
    filled = collate(example_rows(), pad_token_id=PAD)
    assert {name: tensor.dtype for name, tensor in batch.items()} == {
        name: tensor.dtype for name, tensor in filled.items()
    }
