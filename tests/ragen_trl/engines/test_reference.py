from ragen_trl.engines import ReferenceEngine, Reply


def test_reference_hands_over_the_whole_history_and_the_largest_budget():
    calls = []

    def write(histories, most):
        calls.append((histories, most))
        return [Reply([50 + i] * most, [-1.0] * most) for i in range(len(histories))]

    session = ReferenceEngine(write, name="some").start([[1, 2], [3], [4]])
    assert session.reply([0, 1, 2], [[], [], []], [2, 1, 2])[1] == Reply([51], [-1.0])
    session.reply([0, 2], [[7], [8, 9]], [1, 1])
    assert calls == [
        ([[1, 2], [3], [4]], 2),
        ([[1, 2, 50, 50, 7], [4, 52, 52, 8, 9]], 1),
    ]
    assert session.cache_bytes == 0
