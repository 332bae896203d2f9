from types import SimpleNamespace

import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ragen_trl.engines.attention import NAME, attend_with_shared_heads, sharing_heads
from tests.conversations import make_model

ROWS, SIZE, SLOTS = 3, 8, 11


def make_inputs(*, heads, shared, width):
    torch.manual_seed(0)
    query = torch.randn(ROWS, heads, width, SIZE)
    # As in a cache: the slots are a part of a larger buffer.
    key, value = (torch.randn(ROWS, shared, SLOTS + 5, SIZE)[:, :, :SLOTS] for _ in range(2))
    mask = torch.rand(ROWS, 1, width, SLOTS) < 0.6
    mask[..., -1] = True
    return query, key, value, mask


def attend(function, inputs, **kwargs):
    layer = SimpleNamespace(num_key_value_groups=inputs[0].shape[1] // inputs[1].shape[1])
    return function(layer, *inputs, **kwargs)[0]


@pytest.mark.parametrize(("heads", "shared"), [(4, 2), (6, 1), (14, 2), (4, 4)])
@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("scaling", [None, 0.5])
def test_shared_heads_give_what_transformers_gives(heads, shared, width, scaling):
    inputs = make_inputs(heads=heads, shared=shared, width=width)
    expected = attend(sdpa_attention_forward, inputs, scaling=scaling)
    actual = attend(attend_with_shared_heads, inputs, scaling=scaling)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


def test_without_a_mask_attention_is_causal():
    query, key, value, _ = make_inputs(heads=4, shared=2, width=SLOTS)
    causal = torch.ones(ROWS, 1, SLOTS, SLOTS, dtype=torch.bool).tril()
    actual = attend(attend_with_shared_heads, (query, key, value, None))
    expected = attend(attend_with_shared_heads, (query, key, value, causal))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


def test_a_token_that_may_look_at_nothing_stays_finite_and_harms_no_other():
    query, key, value, mask = make_inputs(heads=4, shared=2, width=5)
    whole = attend(attend_with_shared_heads, (query, key, value, mask))
    mask[1, :, 2] = False
    actual = attend(attend_with_shared_heads, (query, key, value, mask))
    assert actual.isfinite().all()
    others = torch.ones(ROWS, 5, dtype=torch.bool)
    others[1, 2] = False
    torch.testing.assert_close(actual[others], whole[others], rtol=0, atol=0)


def test_further_terms_are_left_to_transformers():
    query, key, value, mask = make_inputs(heads=4, shared=2, width=5)
    bias = torch.randn(ROWS, 4, 5, SLOTS)
    inputs = (query, key, value, mask)
    actual = attend(attend_with_shared_heads, inputs, position_bias=bias)
    expected = attend(sdpa_attention_forward, inputs, position_bias=bias)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    plain = attend(attend_with_shared_heads, inputs)
    assert not torch.allclose(actual, plain, atol=1e-3)


def test_a_mask_of_numbers_is_left_to_transformers():
    query, key, value, mask = make_inputs(heads=4, shared=2, width=5)
    # As Doge has it: an own bias per head, on top of what is closed.
    numbers = torch.randn(ROWS, 4, 5, SLOTS).masked_fill(~mask, torch.finfo(torch.float32).min)
    actual = attend(attend_with_shared_heads, (query, key, value, numbers))
    expected = attend(sdpa_attention_forward, (query, key, value, numbers))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize(("attention", "meanwhile"), [("sdpa", NAME), ("eager", "eager")])
def test_model_gets_its_attention_back(attention, meanwhile):
    model = make_model()
    model.set_attn_implementation(attention)
    error = RuntimeError("in between")

    def fail():
        with sharing_heads(model):
            assert model.config._attn_implementation == meanwhile
            raise error

    with pytest.raises(RuntimeError, match="in between"):
        fail()
    assert model.config._attn_implementation == attention


def test_model_reads_alike_with_shared_heads():
    model = make_model()
    ids = torch.arange(5, 25).view(2, 10)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    with torch.no_grad():
        expected = model(ids, attention_mask=mask).logits
        with sharing_heads(model):
            actual = model(ids, attention_mask=mask).logits
    kept = mask.bool()
    torch.testing.assert_close(actual[kept], expected[kept], rtol=0, atol=1e-5)
