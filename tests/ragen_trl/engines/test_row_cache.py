import pytest
import torch

from ragen_trl.engines.row_cache import RowCache
from tests.conversations import VOCABULARY, make_model


def fresh_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -1]


@pytest.fixture
def model():
    return make_model()


@pytest.mark.parametrize("lengths", [(1, 1), (3, 70), (200, 5)])
def test_reading_in_parts_equals_reading_at_once(model, lengths):
    generator = torch.Generator().manual_seed(0)
    first, second = (
        torch.randint(5, VOCABULARY, (length,), generator=generator).tolist() for length in lengths
    )
    cache = RowCache(model, 2)
    with torch.no_grad():
        cache.read([first, first[:1]])
        logits = cache.read([second, second[:1]])
    torch.testing.assert_close(logits[0], fresh_logits(model, first + second), rtol=0, atol=1e-4)
    expected = fresh_logits(model, first[:1] + second[:1])
    torch.testing.assert_close(logits[1], expected, rtol=0, atol=1e-4)


def test_take_drops_repeats_and_reorders_rows(model):
    rows = [[5, 6, 7], [8], [9, 10]]
    cache = RowCache(model, 3)
    with torch.no_grad():
        cache.read(rows)
        cache.take([2, 0, 0])
        logits = cache.read([[11, 12], [13], [14]])
    for row, ids in enumerate(([9, 10, 11, 12], [5, 6, 7, 13], [5, 6, 7, 14])):
        torch.testing.assert_close(logits[row], fresh_logits(model, ids), rtol=0, atol=1e-4)


def test_take_closes_the_gaps_that_ragged_rows_leave(model):
    cache = RowCache(model, 2)
    with torch.no_grad():
        for _ in range(5):
            # Ten slots per round for row 0, which needs one, and row 1, which needs ten.
            cache.read([[5], [6] * 10])
        cache.take([0])
        logits = cache.read([[7]])
    assert cache._mask.tolist() == [[1] * 6]
    assert cache._cache.layers[0].keys.shape[2] == 6
    expected = fresh_logits(model, [5] * 5 + [7])
    torch.testing.assert_close(logits[0], expected, rtol=0, atol=1e-4)


def test_masked_tokens_leave_no_trace(model):
    cache = RowCache(model, 1)
    with torch.no_grad():
        cache.read([[5, 6]])
        cache.read_padded(torch.tensor([[40]]), torch.tensor([[0]]))
        logits = cache.read([[7]])
    torch.testing.assert_close(logits[0], fresh_logits(model, [5, 6, 7]), rtol=0, atol=1e-4)


def test_buffers_are_copied_rarely(model):
    cache = RowCache(model, 1)
    addresses = set()
    with torch.no_grad():
        for _ in range(300):
            cache.read([[5]])
            addresses.add(cache._cache.layers[0]._buffers[0].data_ptr())
    assert len(addresses) <= 5
