"""Chat templates that do more than write each message between two tags."""

import pytest

from ragen_trl.chat import ChatCodec
from ragen_trl.tiny.tokenizer import CHAT_TEMPLATE, build_tokenizer

END, START = "<|im_end|>", "<|im_start|>"
# One message in ChatML, of which the tests change a part.
TURN = "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
STRIPS_THINK = CHAT_TEMPLATE.replace(
    "{{ message.content }}",
    "{% if message.role == 'assistant' %}{{ message.content.split('</think>')[-1] }}"
    "{% else %}{{ message.content }}{% endif %}",
)
TRIMS = CHAT_TEMPLATE.replace("{{ message.content }}", "{{ message.content | trim }}")
WRITES_SYSTEM = "<|im_start|>system\nBe brief.<|im_end|>\n" + CHAT_TEMPLATE
# As in Llama 2: a space before the end of a reply.
SPACED_END = (
    "{% for message in messages %}"
    "{% if message.role == 'user' %}<|im_start|>{{ message.content }}\n"
    "{% else %}{{ message.content }} <|im_end|>{% endif %}"
    "{% endfor %}"
)
WITHOUT_END = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
FAULTY = {
    "drops replies": "{% for message in messages if message.role == 'user' %}"
    + TURN
    + "{% endfor %}",
    "drops old messages": "{% for message in messages[-2:] %}" + TURN + "{% endfor %}",
    "keeps the last message": "{% for message in messages[-1:] %}" + TURN + "{% endfor %}",
    "repeats the last message": CHAT_TEMPLATE + "{{ messages[-1].content }}",
    "repeats every message": CHAT_TEMPLATE * 2,
    "changes letters": CHAT_TEMPLATE.replace("message.content", "message.content | upper"),
    "writes nothing": "a",
}


def make(template, **kwargs):
    tokenizer = build_tokenizer(["user assistant system hello <think>hello</think> Be brief."])
    tokenizer.chat_template = template
    return tokenizer, ChatCodec(tokenizer, eos_token_ids=[tokenizer.eos_token_id], **kwargs)


def rendered_ids(tokenizer, *texts, **kwargs):
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    encoded = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=True, **kwargs
    )
    return encoded["input_ids"]


def codec_ids(codec, *texts):
    ids = codec.encode_start(texts[0])
    for reply, message in zip(texts[1::2], texts[2::2], strict=True):
        reply_ids = codec.encode_reply(reply)
        ids = [*ids, *reply_ids, *codec.encode_next(message, reply_ids=reply_ids)]
    return ids


@pytest.mark.parametrize("template", FAULTY.values(), ids=FAULTY)
def test_codec_template_that_loses_or_repeats_messages_raises(template):
    with pytest.raises(ValueError, match="every message exactly once"):
        make(template)


def test_codec_tokenizer_without_template_raises():
    with pytest.raises(ValueError, match="must have a chat template"):
        make(None)


def test_codec_template_that_strips_reasoning_keeps_it_in_history():
    tokenizer, codec = make(STRIPS_THINK)
    texts = ("a", "<think>hello</think>b", "c")
    assert "hello" not in tokenizer.decode(rendered_ids(tokenizer, *texts))  # the template strips
    plain, plain_codec = make(CHAT_TEMPLATE)
    assert codec_ids(codec, *texts) == codec_ids(plain_codec, *texts)
    assert tokenizer.decode(codec_ids(codec, *texts)) == plain.decode(rendered_ids(plain, *texts))


def test_codec_template_that_trims_messages_trims_them_too():
    tokenizer, codec = make(TRIMS)
    texts = ("\n hello\n a ", "b", " c\t\n", "d", "e")
    assert codec_ids(codec, *texts) == rendered_ids(tokenizer, *texts)
    assert "hello\n a<|im_end|>" in tokenizer.decode(codec.encode_start(texts[0]))


def test_codec_template_that_keeps_whitespace_keeps_it_too():
    tokenizer, codec = make(CHAT_TEMPLATE)
    assert "user\n\n hello\n<|im_end|>" in tokenizer.decode(codec.encode_start("\n hello\n"))


def test_codec_template_with_a_system_message_writes_it_once():
    tokenizer, codec = make(WRITES_SYSTEM)
    texts = ("a", "b", "c", "d", "e")
    ids = codec_ids(codec, *texts)
    assert ids == rendered_ids(tokenizer, *texts)
    assert tokenizer.decode(ids).count("Be brief.") == 1


def test_codec_template_without_end_of_turn_adds_nothing_to_an_ended_reply():
    tokenizer, codec = make(WITHOUT_END)
    cut_ids = tokenizer("hello")["input_ids"]
    ended_ids = [*cut_ids, tokenizer.eos_token_id]
    for reply_ids in (cut_ids, ended_ids):
        next_ids = codec.encode_next("b", reply_ids=reply_ids)
        assert tokenizer.decode(next_ids) == "\nuser: b\nassistant: "
    texts = ("a", "<think>", "b", "<think>hello", "c")
    assert codec_ids(codec, *texts) == rendered_ids(tokenizer, *texts)


def test_codec_template_with_space_before_end_of_turn_writes_one_end():
    tokenizer, codec = make(SPACED_END)
    cut_ids = tokenizer("hello")["input_ids"]
    ended = codec.encode_next("b", reply_ids=[*cut_ids, tokenizer.eos_token_id])
    assert tokenizer.decode(ended) == f"{START}b\n"
    cut = codec.encode_next("b", reply_ids=cut_ids)
    assert tokenizer.decode(cut) == f" {END}{START}b\n"
    assert codec_ids(codec, "a", "hello", "b") == rendered_ids(tokenizer, "a", "hello", "b")


def test_codec_template_arguments_reach_the_template():
    template = CHAT_TEMPLATE + "{% if is_calm %}<think></think>{% endif %}"
    tokenizer, codec = make(template, chat_template_kwargs={"is_calm": True})
    ids = codec.encode_start("a")
    assert ids == rendered_ids(tokenizer, "a", is_calm=True)
    next_ids = codec.encode_next("b", reply_ids=[tokenizer.eos_token_id])
    assert tokenizer.decode(next_ids).endswith("assistant\n<think></think>")
    assert "<think>" not in tokenizer.decode(make(template)[1].encode_start("a"))


@pytest.mark.parametrize(
    ("written", "opens"),
    [("<think>\n", True), ("<think></think>\n", False), ("", False), ("</think><think>", True)],
)
def test_template_that_opens_a_think_block_is_noticed(written, opens):
    template = CHAT_TEMPLATE.replace("assistant\n{% endif", f"assistant\n{written}{{% endif")
    assert make(template)[1].opens_think is opens


def test_template_that_opens_a_think_block_only_if_asked():
    opening = "{% if think is not defined or think %}<think>{% endif %}{% endif"
    template = CHAT_TEMPLATE.replace("{% endif", opening)
    assert make(template)[1].opens_think
    assert not make(template, chat_template_kwargs={"think": False})[1].opens_think
