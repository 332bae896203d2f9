import random

import pytest
import torch

from ragen_trl import StarPOConfig
from ragen_trl.collation import collate
from ragen_trl.completions import can_share_prompts, run_completions, split_by_length
from tests.conversations import VOCABULARY, make_model
from tests.episodes import make_row, make_trajectory


def make_batch(seed=0, *, num_prompts=3, size=4):
    """Groups with one prompt each, and replies of very different length between other words."""
    rng = random.Random(seed)
    rows = []
    for _ in range(num_prompts):
        prompt = [rng.randrange(5, VOCABULARY) for _ in range(rng.randint(1, 25))]
        for _ in range(size):
            mask = [True] + [rng.random() < 0.5 for _ in range(rng.randint(0, 60))]
            completion = [rng.randrange(5, VOCABULARY) for _ in mask]
            rows.append(make_row(make_trajectory(prompt, completion, mask)))
    rng.shuffle(rows)
    return collate(rows, pad_token_id=0)


class Scorer:
    """Log-probabilities of a model, and what it was asked to read."""

    def __init__(self, model):
        self.model, self.num_tokens, self.num_prompts = model, 0, 0

    def forward(self, part):
        self.num_tokens += part.inputs["input_ids"].numel()
        logits = self.model(**part.inputs).logits.double()
        ids = part.next_ids.clamp(min=0)
        return [logits.log_softmax(-1).gather(2, ids.unsqueeze(2)).squeeze(2)]

    def read_prompts(self, inputs):
        self.num_prompts += len(inputs["input_ids"])
        self.num_tokens += inputs["input_ids"].numel()
        self.model(**inputs)


def plain_logps(model, batch):
    """The definition: every row from its beginning, all at once."""
    ids, mask = batch["input_ids"], batch["attention_mask"]
    logits = model(ids, attention_mask=mask).logits.double()
    logps = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)
    kept = batch["action_mask"].size(1)
    return torch.where(batch["action_mask"], logps[:, -kept:], 0.0)


def gradients(model, logps):
    weights = torch.randn(logps.shape, generator=torch.Generator().manual_seed(1)).double()
    model.zero_grad()
    (logps * weights).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
def test_scores_and_gradients_equal_those_of_whole_rows(shares, in_parts, architecture):
    model, batch = make_model(architecture, tied=False), make_batch()
    scorer = Scorer(model)
    (logps,) = run_completions(
        batch,
        scorer.forward,
        read_prompts=scorer.read_prompts if shares else None,
        in_parts=in_parts,
    )
    expected = plain_logps(model, batch)
    torch.testing.assert_close(logps, expected, rtol=0, atol=1e-5)
    assert (logps[~batch["action_mask"]] == 0).all()
    actual, wanted = gradients(model, logps), gradients(model, expected)
    for name in wanted:
        torch.testing.assert_close(actual[name], wanted[name], rtol=1e-3, atol=1e-4, msg=name)


def test_every_prompt_is_read_once_and_little_is_padding():
    batch = make_batch(num_prompts=4, size=16)
    plain, shared = Scorer(make_model()), Scorer(make_model())
    run_completions(batch, plain.forward, read_prompts=None)
    run_completions(batch, shared.forward, read_prompts=shared.read_prompts)
    assert shared.num_prompts == 4
    num_real = int(batch["attention_mask"].sum())
    assert plain.num_tokens <= num_real / 0.9
    assert shared.num_tokens < plain.num_tokens
    assert batch["input_ids"].numel() > 1.3 * num_real


def test_prompts_that_differ_in_padding_alone_stay_apart():
    # Token 0 is the padding as well: [0, 7] and [7] look alike once they are flush right.
    rows = [make_row(make_trajectory(prompt, [8, 9])) for prompt in ([0, 7, 5], [7, 5], [0, 7, 5])]
    model, batch = make_model(), collate(rows, pad_token_id=0)
    scorer = Scorer(model)
    (logps,) = run_completions(batch, scorer.forward, read_prompts=scorer.read_prompts)
    assert scorer.num_prompts == 2
    torch.testing.assert_close(logps, plain_logps(model, batch), rtol=0, atol=1e-5)


def test_batch_without_rows_keeps_the_model_in_the_graph():
    model = make_model()
    scorer = Scorer(model)
    (logps,) = run_completions(
        collate([], pad_token_id=0), scorer.forward, read_prompts=scorer.read_prompts
    )
    assert logps.tolist() == [[0.0]]
    logps.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("seed", range(20))
def test_split_by_length_holds_every_row_once_and_little_padding(seed):
    rng = random.Random(seed)
    lengths = [rng.randint(1, 300) for _ in range(rng.randint(1, 40))]
    parts = split_by_length(lengths)
    assert sorted(row for part in parts for row in part) == list(range(len(lengths)))
    for part in parts:
        own = [lengths[row] for row in part]
        assert sum(own) >= 0.9 * max(own) * len(own)


def test_split_by_length_makes_one_part_of_equal_rows():
    assert split_by_length([7] * 5) == [[0, 1, 2, 3, 4]]
    assert split_by_length([10, 1, 10]) == [[1], [0, 2]]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_prompts_are_shared_where_layers_keep_their_inputs(checkpointing, tmp_path):
    args = StarPOConfig(str(tmp_path), gradient_checkpointing=checkpointing)
    model = make_model()
    assert can_share_prompts(args, model) is not checkpointing
    model.config.layer_types = ["sliding_attention"] * 2
    assert not can_share_prompts(args, model)
