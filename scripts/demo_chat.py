"""A chat with a server on this machine through the official openai client, streamed: what `make demo` shows."""
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
stream = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "Say something."}], max_tokens=48, seed=1,
                                        stream=True, stream_options={"include_usage": True})
for chunk in stream:
    for choice in chunk.choices:
        delta = choice.delta
        print(getattr(delta, "reasoning_content", None) or delta.content or "", end="", flush=True)
    if chunk.usage:
        print(f"\n[{chunk.usage.prompt_tokens} tokens of prompt, {chunk.usage.completion_tokens} of answer]")
