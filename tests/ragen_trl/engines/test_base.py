from ragen_trl.engines import CachedEngine, ReferenceEngine
from ragen_trl.engines.base import Engine, Session
from tests.conversations import make_cached, make_model, make_reference


def test_engines_offer_what_the_protocols_ask():
    wanted = {name for name in vars(Session) if not name.startswith("_")}
    assert wanted == {"reply", "cache_bytes"}
    assert {name for name in vars(Engine) if not name.startswith("_")} == {
        "start",
        "finish",
    }
    for engine in (make_cached(make_model()), make_reference(make_model())):
        assert isinstance(engine, CachedEngine | ReferenceEngine)
        session = engine.start([[5]])
        assert all(hasattr(session, name) for name in wanted)
        # Alone there is nobody to wait for.
        assert engine.finish() is None
