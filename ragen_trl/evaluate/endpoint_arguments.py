"""The command line's way to a player at an endpoint."""

import argparse
import functools
from typing import TYPE_CHECKING

from ragen_trl.evaluate.settings import EvaluationSettings

if TYPE_CHECKING:
    from ragen_trl.evaluate.endpoint import EndpointPlayer


def add_endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a group of arguments; `make_endpoint_player` reads them. The key is never one of them."""
    group = parser.add_argument_group(
        "endpoint", "a model behind an OpenAI-compatible server; the key comes from OPENAI_API_KEY"
    )
    # Defaults are the player's; what is not given is left out.
    add = functools.partial(group.add_argument, default=argparse.SUPPRESS)
    add("--api-model", metavar="NAME", help="name of the model at the server")
    add("--base-url", metavar="URL", help="address of the server; default: OpenAI's own")
    add("--concurrency", type=int, metavar="N", help="episodes at the same time; default: 8")
    add("--max-retries", type=int, metavar="N", help="repetitions of one question; default: 6")
    add(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="silence after which to repeat; default: 120",
    )
    add(
        "--prices",
        type=float,
        nargs=2,
        metavar=("PROMPT", "COMPLETION"),
        help="per million tokens, in any currency; default: no cost is told",
    )


def make_endpoint_player(
    arguments: argparse.Namespace, *, settings: EvaluationSettings
) -> "EndpointPlayer | None":
    """Return the player that the command line asks for, `None` without `--api-model`.

    Args:
        arguments: Parsed by a parser with `add_endpoint_arguments`.
        settings: Temperature and the limit of a reply.

    Raises:
        ValueError: If an argument is out of range or given without `--api-model`.
        ImportError: If the `openai` client is missing.
    """
    names = ("base_url", "concurrency", "max_retries", "timeout")
    given = {name: vars(arguments)[name] for name in names if name in arguments}
    if "prices" in arguments:
        given["price_per_million_prompt_tokens"] = arguments.prices[0]
        given["price_per_million_completion_tokens"] = arguments.prices[1]
    if "api_model" not in arguments:
        if given:
            raise ValueError(
                "`--api-model` must be given with any other argument of an endpoint, got only "
                f"{given}. Name the model as the server does."
            )
        return None
    # Whoever evaluates a model in this process can do without the client.
    from ragen_trl.evaluate.endpoint import EndpointPlayer

    return EndpointPlayer(arguments.api_model, settings=settings, **given)
