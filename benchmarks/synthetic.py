"""What the benchmarks share: random models of published shapes, and episodes that nobody played."""

import torch
from transformers import PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM

from ragen_trl import Trajectory, Turn

# Qwen2.5 (the config.json of each size).
QWEN_VOCABULARY = 151_936
QWEN_SHAPES = {
    "0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "1.5B": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    # No published size: for trying a script where there is no room for one.
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}


def build_qwen(
    tokenizer: PreTrainedTokenizerBase, *, vocab_size: int, size: str = "0.5B"
) -> Qwen2ForCausalLM:
    """Build a model of the shape of Qwen2.5 with random weights; nothing is downloaded.

    Args:
        tokenizer: Gives the special tokens. It may know fewer tokens than the model.
        vocab_size: Rows of the embedding, which the output shares.
        size: Key of `QWEN_SHAPES`.
    """
    config = Qwen2Config(
        vocab_size=vocab_size,
        **QWEN_SHAPES[size],
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    torch.manual_seed(0)
    return Qwen2ForCausalLM(config)


def script_trajectories(
    *, num_groups: int, num_generations: int, num_turns: int, tokens_per_part: int, num_ids: int
) -> list[Trajectory]:
    """Write down episodes of equal length, half of which succeed in every group.

    An episode is a message and a reply per turn, `tokens_per_part` random ids each.
    """
    generator = torch.Generator().manual_seed(0)

    def draw() -> list[int]:
        return torch.randint(num_ids, (tokens_per_part,), generator=generator).tolist()

    num_parts = 2 * num_turns - 1
    in_reply = [part % 2 == 0 for part in range(num_parts) for _ in range(tokens_per_part)]
    turn_of = [part // 2 for part in range(num_parts) for _ in range(tokens_per_part)]
    turns = [Turn("message", "reply", (), (), True, f"state {k}") for k in range(num_turns)]
    return [
        Trajectory(
            env_id="scripted",
            seed=group,
            group_id=group,
            prompt_ids=draw(),
            completion_ids=[i for _ in range(num_parts) for i in draw()],
            action_mask=in_reply,
            turn_index=[k if own else -1 for k, own in zip(turn_of, in_reply, strict=True)],
            logps=[-1.0 if own else 0.0 for own in in_reply],
            turn_rewards=[*[0.0] * (num_turns - 1), float(member % 2)],
            format_penalties=[0.0] * num_turns,
            terminated=True,
            truncated=False,
            success=member % 2 == 1,
            turns=turns,
        )
        for group in range(num_groups)
        for member in range(num_generations)
    ]
