"""Calls with odd values: which public calls there are, and what each makes of an odd argument."""

import importlib
import inspect
import itertools
import pkgutil
import re
import signal
import warnings
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

import ragen_envs
from ragen_envs.splits import Splits
from ragen_envs.tools import BanditTools, FrozenLakeTools, SokobanTools

ODD: tuple[Any, ...] = (
    None, True, 5, -1, 0, 2.5, float("nan"), float("inf"), float("-inf"), 1j, 10**9, 10**400,
    -(10**400), "", "x", "3", "nul\0l", "nul\0l\n#", "\ud800", "\ud800\n#", "long" * 25_000,
    b"", b"ab", [], [1], ["x"], [None, None], [[]], (-1, 2.5), {}, {"x": 1}, {1, 2}, object(),
    lambda *_: None, np.uint64(1), np.bool_(True), np.float32("nan"), np.array([1, 2]),
    np.array([[1, 2], [3, 4]]), np.array("x"),
)  # fmt: skip

# Of the processor's time, so that a busy machine fails nothing; the clock is for calls that wait.
CPU_SECONDS = 2.0
CLOCK_SECONDS = 20.0
LONGEST_MESSAGE = 2_000


class TookTooLongError(BaseException):
    """Raised inside of a call by the signal; no `except Exception` keeps it."""


class Call:
    """A call that is in order: what is called, and all arguments that it knows.

    An argument that a call changes, such as an environment, is given as the `functools.partial`
    that makes it, and made anew for each call.
    """

    def __init__(self, function: Callable[..., Any], **arguments: Any) -> None:
        self.function = function
        self.arguments = arguments

    def make(self, **changes: Any) -> Any:
        """Call, with other values for some of the arguments."""
        arguments = {n: v() if isinstance(v, partial) else v for n, v in self.arguments.items()}
        return self.function(**{**arguments, **changes})


class Fault(NamedTuple):
    """An odd argument that went wrong."""

    subject: str
    argument: str
    value: str
    what: str


@contextmanager
def time_limit(cpu_seconds: float = CPU_SECONDS, clock_seconds: float = CLOCK_SECONDS):
    """End what takes longer by `TookTooLongError`."""

    def stop(*_: Any) -> None:
        raise TookTooLongError

    timers = {
        signal.SIGPROF: (signal.ITIMER_PROF, cpu_seconds),
        signal.SIGALRM: (signal.ITIMER_REAL, clock_seconds),
    }
    before = {number: signal.signal(number, stop) for number in timers}
    try:
        for timer, seconds in timers.values():
            signal.setitimer(timer, seconds)
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def list_surface() -> dict[str, inspect.Signature]:
    """Return the signatures of the public callables that take something, by `name` or `Class.name`.

    Public is what a module of the package has in `__all__`, with the public methods, and
    `gymnasium.make` and `make_vec` of every registered id.
    """
    things: dict[str, Any] = {}
    for module in _walk_modules():
        for name in getattr(module, "__all__", ()):
            thing = vars(module)[name]
            assert things.setdefault(name, thing) is thing, f"two public things called {name}"
    surface = {}
    for name, thing in things.items():
        if not callable(thing) or getattr(thing, "_is_protocol", False):
            continue
        surface[name] = inspect.signature(thing)
        if inspect.isclass(thing):
            for method in _list_methods(thing):
                surface[f"{name}.{method}"] = _drop_self(thing, method)
    for env_id, spec in gym.registry.items():
        if env_id.startswith("ragen/"):
            for make, entry_point in (
                ("make", spec.entry_point),
                ("make_vec", spec.vector_entry_point),
            ):
                entry = gym.envs.registration.load_env_creator(str(entry_point))
                surface[f"{make} {env_id}"] = inspect.signature(entry)
    return {name: signature for name, signature in surface.items() if signature.parameters}


def _walk_modules() -> Iterator[Any]:
    yield ragen_envs
    for info in pkgutil.walk_packages(ragen_envs.__path__, "ragen_envs."):
        if not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


def _list_methods(kind: type) -> list[str]:
    own = [base for base in kind.__mro__ if base.__module__.startswith("ragen_envs")]
    return sorted(
        {
            name
            for base in own
            for name, member in vars(base).items()
            if not name.startswith("_")
            and isinstance(member, classmethod | staticmethod) | inspect.isfunction(member)
        }
    )


def _drop_self(kind: type, method: str) -> inspect.Signature:
    signature = inspect.signature(getattr(kind, method))
    parameters = list(signature.parameters.values())
    is_bound = inspect.ismethod(getattr(kind, method))
    return signature.replace(parameters=parameters if is_bound else parameters[1:])


def find_missing(signature: inspect.Signature, known: Set[str]) -> set[str]:
    """Return the arguments by name that are not among the known ones."""
    by_name = {
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    return by_name - known


def find_faults(subject: str, call: Call) -> Iterator[Fault]:
    """Call once with each argument replaced by each odd value, and so with the parts of it."""
    for argument, valid in call.arguments.items():
        for path, place in _list_places(valid, ()):
            # A message about one item of `actions` may call it `action`.
            names = (argument, argument.removesuffix("s"), *filter(_is_name, path))
            for value in ODD:
                what = find_fault(partial(call.make, **{argument: place(value)}), names)
                if what is not None:
                    shown = "".join(f"[{part!r}]" for part in path)
                    yield Fault(subject, f"{argument}{shown}", _show(value), what)


def _list_places(valid: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield where odd values go: in place of a valid one, of its first item, of each entry."""
    yield path, lambda value: value
    parts: list[Any] = []
    if type(valid) in (list, tuple) and valid:
        parts = [0]
    elif isinstance(valid, dict):
        parts = list(valid)
    for part in parts:
        for deeper, place in _list_places(valid[part], (*path, part)):
            yield deeper, lambda value, part=part, place=place: _put(valid, part, place(value))


def _put(whole: Any, part: Any, value: Any) -> Any:
    changed = dict(whole) if isinstance(whole, dict) else list(whole)
    changed[part] = value
    return changed if isinstance(whole, dict) else type(whole)(changed)


def find_fault(call: Callable[[], Any], names: tuple[str, ...]) -> str | None:
    """Return what is wrong with what a call does; `None` if it ends, or raises a proper error."""
    try:
        with warnings.catch_warnings(), time_limit():
            warnings.simplefilter("ignore")
            _use(call())
    except TookTooLongError:
        return "does not end"
    except (TypeError, ValueError, AttributeError, gym.error.Error) as error:
        return _judge(error, names)
    except Exception as error:
        return f"raises {type(error).__name__}"
    return None


def _judge(error: Exception, names: tuple[str, ...]) -> str | None:
    # Gymnasium repeats all arguments behind the message of an environment that it makes.
    message = str(error).partition(" was raised from the environment creator")[0]
    shown = f"{type(error).__name__}: {message[:300]}"
    # Gymnasium names the id alone where it knows of no such environment, and Python the argument
    # that a function does not have.
    if isinstance(error, gym.error.UnregisteredEnv) or "unexpected keyword argument" in message:
        return None
    if not any(re.search(rf"`[^`]*\b{re.escape(name)}\b[^`]*`", message) for name in names):
        return f"names no argument: {shown}"
    if not re.search(r"\b(must|may)\b", message) or not re.search(r"\b(got|found)\b", message):
        return f"says no rule or no value: {shown}"
    if len(message) > LONGEST_MESSAGE:
        return f"{len(message)} characters: {shown}"
    return None


def _use(result: Any) -> None:
    """Do the next things with what was returned, where an argument may be looked at late."""
    if isinstance(result, Iterator):
        list(itertools.islice(result, 2))
    elif isinstance(result, BanditTools | FrozenLakeTools | SokobanTools):
        result.reset(seed=0)
    elif isinstance(result, VectorEnv):
        result.reset(seed=0)
        result.step([0] * result.num_envs)
    elif isinstance(result, gym.Env):
        result.reset(seed=0)
        result.step(0 if isinstance(result.action_space, gym.spaces.Discrete) else "Up")
        if result.render_mode is not None:
            result.render()
    elif isinstance(result, Splits):
        result.validation_seeds(1)


def _is_name(part: Any) -> bool:
    return isinstance(part, str)


def _show(value: Any) -> str:
    try:
        return repr(value)[:40]
    except ValueError:
        return "an int of too many digits"
