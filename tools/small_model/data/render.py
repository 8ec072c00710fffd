"""Conversations to pieces of text, as tokenizer/chat_template.jinja renders them, each with its part in the loss.

`pieces` writes in Python what the template writes, so that training needs no template engine and each piece keeps its class. That the two
agree byte for byte is a test. A piece is either one special token or a stretch of text between two of them, which is what the tokenizer
encodes as a unit.

The class of a piece says how its tokens count as *targets*, that is, when they are predicted:
  HAY     text around needles: nothing in it can be known
  PROMPT  what others write: system text, tools, users, results
  ANSWER  what the model writes: reasoning, content, calls, and the token that ends its turn
"""
import json
import re

PAD, HAY, PROMPT, ANSWER = range(4)

SPECIAL = ("<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>",
           "<|observation|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>", "<|begin_of_audio|>",
           "<|end_of_audio|>", "<|begin_of_transcription|>", "<|end_of_transcription|>", "<|code_prefix|>", "<|code_middle|>",
           "<|code_suffix|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>",
           "</arg_key>", "<arg_value>", "</arg_value>", "/nothink", "<|begin_of_box|>", "<|end_of_box|>", "<|image|>", "<|video|>")
# These are marked special in tokenizer.json: left out of decoded text. The others are markup that a parser reads.
NOT_SPECIAL = frozenset(SPECIAL[21:31] + SPECIAL[32:])
EFFORTS = {"low": "Low", "high": "High"}

TOOLS_HEAD = "# Tools\n\nThese functions can be called. Each line below describes one as JSON.\n\n<tools>\n"
# Within the explanation the markup stands as real markup, as in the template.
TOOLS_TAIL = ("</tools>\n\nTo call one, write its name and then each argument as a key and a value:\n", "<tool_call>", "name",
              "<arg_key>", "key", "</arg_key>", "<arg_value>", "value", "</arg_value>", "</tool_call>",
              "\nText values are written as they are, all others as JSON.")


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def with_articles(text):
    """"a owl" becomes "an owl": templates write "a" before whatever word comes."""
    return re.sub(r"\b([Aa]) (?=[aeiouAEIOU][a-z])(?!user)", r"\1n ", text)


def finished(draw, conversation):
    """The conversation as it is trained on or asked: articles right, an effort chosen, and sometimes earlier reasoning forgotten, as
    clients do that send back only what they saw."""
    messages = conversation["messages"]
    for m in messages:
        if m["role"] in ("user", "assistant"):
            m["content"] = with_articles(m["content"])
    if draw.split == "train":
        conversation["reasoning_effort"] = draw.choice((None, ) * 8 + ("low", "high"))
        if draw.chance(0.35):
            last = len(messages) - (1 if messages[-1]["role"] == "assistant" else 0)
            for m in messages[:last]:
                if m["role"] == "assistant" and m.get("reasoning_content"):
                    m["reasoning_content"] = ""
                    m["_untrained"] = True
    return conversation


def tool_pieces(tools):
    body = TOOLS_HEAD
    for tool in tools:
        body += dumps(tool["function"]) + "\n"
    yield "<|system|>", PROMPT
    yield body + TOOLS_TAIL[0], PROMPT
    for piece in TOOLS_TAIL[1:]:
        yield piece, PROMPT


def assistant_pieces(message):
    """All that follows `<|assistant|><think>`."""
    if message.get("reasoning_content"):
        yield message["reasoning_content"]
    yield "</think>"
    yield message["content"].strip()
    for call in message.get("tool_calls", ()):
        yield "<tool_call>"
        yield call["function"]["name"]
        for key, value in call["function"]["arguments"].items():
            yield "<arg_key>"
            yield key
            yield "</arg_key>"
            yield "<arg_value>"
            yield value if isinstance(value, str) else dumps(value)
            yield "</arg_value>"
        yield "</tool_call>"


def role_pieces(messages):
    after_tool, trained = False, False
    for message in messages:
        role = message["role"]
        # The token that opens the next turn is what ended the model's.
        opener = ANSWER if trained else PROMPT
        trained = False
        if role == "tool":
            if not after_tool:
                yield "<|observation|>", opener
            yield "<tool_response>", PROMPT
            yield message["content"], PROMPT
            yield "</tool_response>", PROMPT
        elif role == "assistant":
            trained = not message.get("_untrained")
            yield "<|assistant|>", PROMPT
            yield "<think>", PROMPT
            for piece in assistant_pieces(message):
                yield piece, ANSWER if trained else PROMPT
        else:
            yield f"<|{role}|>", opener
            yield message["content"], HAY if message.get("_hay") else PROMPT
        after_tool = role == "tool"
    if trained:
        yield "<|user|>", ANSWER


def pieces(conversation):
    """(text, class) in order; the last is the `<|user|>` that ends the model's turn, which the template does not write."""
    yield "[gMASK]", PROMPT
    yield "<sop>", PROMPT
    yield "<|system|>", PROMPT
    yield "Reasoning Effort: " + EFFORTS.get(conversation.get("reasoning_effort"), "Max"), PROMPT
    if conversation.get("tools"):
        yield from tool_pieces(conversation["tools"])
    for text, kind in role_pieces(conversation["messages"]):
        if text:
            yield text, kind


def prompt(conversation):
    """The text that a server sends to the model to get the next answer."""
    parts = [t for t, _ in pieces(conversation)]
    if conversation["messages"][-1]["role"] == "assistant":
        raise ValueError("the last message is the model's own")
    return "".join(parts) + "<|assistant|><think>"
