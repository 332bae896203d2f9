"""A tokenizer made from the texts that an environment writes: whole words, single cells."""

import re
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD_TOKEN, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# A tag, an action separator, a word with the space before it, or any single character.
_PIECE = r"</?(?:think|answer)>| ?\|\|| ?[A-Za-z]{1,16}|[\s\S]"


def build_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Make a fast tokenizer with a ChatML template.

    Every word of `texts` that holds a lower-case letter is one token, as are tags and separators;
    everything else is one token per character, as are lines without a space, so that a board is one
    token per cell. Characters never seen fall back to bytes: any text survives encoding and
    decoding.
    """
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pieces = {
        piece
        for text in texts
        for line in text.split("\n")
        for piece in (re.findall(_PIECE, line) if " " in line else line)
        if len(piece) == 1 or not piece.strip().isalpha() or any(map(str.islower, piece))
    }
    words = sorted(to_bytes.pre_tokenize_str(piece)[0][0] for piece in pieces)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = [PAD_TOKEN, TURN_START, TURN_END]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*special, *alphabet, *words]))}
    tokenizer = Tokenizer(
        models.WordPiece(vocabulary, unk_token=PAD_TOKEN, continuing_subword_prefix="")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_PIECE), behavior="isolated"), to_bytes]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=PAD_TOKEN,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
