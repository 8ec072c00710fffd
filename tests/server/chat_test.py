#!/usr/bin/env python3
"""/v1/chat/completions through the official client: what is written is what comes, streamed or not."""
import json

import harness
import openai

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}]
CALL = "<tool_call>weather<arg_key>city</arg_key><arg_value>Paris</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>"


def gather(stream):
    """The whole answer of a stream, and the finish reason, and usage."""
    out = {"content": "", "reasoning": "", "finish": None, "usage": None, "calls": {}, "roles": 0, "logprobs": []}
    for chunk in stream:
        if chunk.usage:
            out["usage"] = chunk.usage
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        assert out["finish"] is None, "a chunk of a choice behind its finish reason"
        delta = choice.delta
        out["roles"] += delta.role is not None
        out["content"] += delta.content or ""
        out["reasoning"] += getattr(delta, "reasoning_content", None) or ""
        if choice.logprobs:
            out["logprobs"] += choice.logprobs.content
        for call in delta.tool_calls or []:
            known = out["calls"].setdefault(call.index, {"name": "", "arguments": "", "id": None})
            known["id"] = known["id"] or call.id
            known["name"] += call.function.name or ""
            known["arguments"] += call.function.arguments or ""
        if choice.finish_reason:
            out["finish"] = choice.finish_reason
    return out


class Chat(harness.ServerTest):
    def test_whole(self):
        answer = self.say("Thinking.</think>The answer — naïve 日本 <b>.")
        message = answer.choices[0].message
        self.assertEqual(message.content, "The answer — naïve 日本 <b>.")
        self.assertEqual(message.reasoning_content, "Thinking.")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.model, "scripted")
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertEqual(usage.completion_tokens_details.reasoning_tokens, len("Thinking.") + 1)
        self.assertEqual(usage.completion_tokens, len("Thinking.") + 1 + len("The answer — naïve 日本 <b>.".encode()) + 1)

    def test_streamed_is_the_same(self):
        text = "I think so.</think>Yes: “quotes”, \\ and \n lines.\tEnd 🙂"
        whole = self.say(text)
        got = gather(self.say(text, stream=True, stream_options={"include_usage": True}))
        self.assertEqual(got["content"], whole.choices[0].message.content)
        self.assertEqual(got["reasoning"], "I think so.")
        self.assertEqual(got["finish"], "stop")
        self.assertEqual(got["roles"], 1)
        self.assertEqual(got["usage"].completion_tokens, whole.usage.completion_tokens)
        self.assertLess(got["usage"].prompt_tokens_details.cached_tokens, got["usage"].prompt_tokens)

    def test_no_usage_unless_asked(self):
        self.assertIsNone(gather(self.say("a</think>b", stream=True))["usage"])

    def test_tools(self):
        for stream in (False, True):
            answer = self.say("Look.</think>I ask." + CALL + CALL, tools=TOOLS, stream=stream)
            if stream:
                got = gather(answer)
                calls = [got["calls"][i] for i in sorted(got["calls"])]
                content, finish = got["content"], got["finish"]
            else:
                message = answer.choices[0].message
                calls = [{"id": c.id, "name": c.function.name, "arguments": c.function.arguments} for c in message.tool_calls]
                content, finish = message.content, answer.choices[0].finish_reason
            self.assertEqual([c["name"] for c in calls], ["weather", "weather"])
            for call in calls:
                self.assertEqual(json.loads(call["arguments"]), {"city": "Paris", "days": 3})
            self.assertNotEqual(calls[0]["id"], calls[1]["id"])
            self.assertEqual(content, "I ask.")
            self.assertEqual(finish, "tool_calls")

    def test_without_tools_markup_is_text(self):
        answer = self.say("a</think>" + CALL)
        self.assertIsNone(answer.choices[0].message.tool_calls)
        self.assertIn("<tool_call>weather", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_tool_results_go_back(self):
        answer = self.client.chat.completions.create(model=self.model, tools=TOOLS, messages=[
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Paris\"}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            {"role": "user", "content": "ok</think>It rains."}])
        self.assertEqual(answer.choices[0].message.content, "It rains.")

    def test_length(self):
        answer = self.say("a</think>0123456789", max_completion_tokens=6)
        self.assertEqual(answer.choices[0].message.content, "0123")
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 6)

    def test_choices(self):
        answer = self.say("a</think>same", n=3)
        self.assertEqual([c.message.content for c in answer.choices], ["same"] * 3)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
        self.assertEqual(answer.usage.completion_tokens, 3 * (2 + 4 + 1))
        seen = {0: "", 1: ""}
        ends = set()
        for chunk in self.say("a</think>same", n=2, stream=True):
            for choice in chunk.choices:
                seen[choice.index] += choice.delta.content or ""
                if choice.finish_reason:
                    ends.add(choice.index)
        self.assertEqual((seen, ends), ({0: "same", 1: "same"}, {0, 1}))

    def test_stop_at_every_offset(self):
        text = "ab é日cd</x> end"
        for begin in range(len(text)):
            for length in (1, 2, 5):
                stop = text[begin:begin + length]
                if not stop.strip() or stop in "r</think>":  # that would end the reasoning already
                    continue
                expected = text[:text.index(stop)]
                where = f"stop {stop!r}"
                answer = self.say("r</think>" + text, stop=[stop])
                # White space at the end of a block is layout.
                self.assertEqual((answer.choices[0].message.content or "").rstrip(" "), expected.rstrip(" "), where)
                self.assertEqual(answer.choices[0].finish_reason, "stop")
                complete = (expected + stop).encode()
                self.assertEqual(answer.usage.completion_tokens, 2 + len(complete), where)  # none behind the stop
                got = gather(self.say("r</think>" + text, stop=[stop], stream=True))
                self.assertEqual(got["content"].rstrip(" "), expected.rstrip(" "), where)

    def test_logprobs(self):
        for stream in (False, True):
            answer = self.say("r</think>abc", logprobs=True, top_logprobs=2, stream=stream,
                              **({"stream_options": {"include_usage": True}} if stream else {}))
            got = gather(answer) if stream else None
            entries = got["logprobs"] if stream else answer.choices[0].logprobs.content
            count = got["usage"].completion_tokens if stream else answer.usage.completion_tokens
            self.assertEqual(len(entries), count)
            self.assertEqual("".join(e.token for e in entries[2:5]), "abc")
            self.assertEqual([len(e.top_logprobs) for e in entries], [2] * count)
            self.assertEqual(bytes(entries[2].bytes), b"a")

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as e:
            self.client.chat.completions.create(model="other", messages=[{"role": "user", "content": "a"}])
        self.assertEqual(e.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as e:
            self.say("x" * 9000)
        self.assertEqual(e.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError) as e:
            self.say("a", max_completion_tokens=9000)
        with self.assertRaises(openai.BadRequestError) as e:
            self.say("a", temperature=-1)
        self.assertEqual(e.exception.param, "temperature")
        with self.assertRaises(openai.BadRequestError):
            self.client.chat.completions.create(model=self.model, messages=[])
        with self.assertRaises(openai.BadRequestError):
            self.client.chat.completions.create(model=self.model, messages=[{"role": "king", "content": "a"}])

    def test_unknown_fields_are_named(self):
        raw = self.client.chat.completions.with_raw_response.create(
            model=self.model, messages=[{"role": "user", "content": "a</think>b"}], extra_body={"frobnicate": 1})
        self.assertEqual(raw.headers["x-ignored-fields"], "frobnicate")

    def test_the_device_fails(self):
        with self.assertRaises(openai.InternalServerError):
            self.say("#fail 0 abc</think>def")
        with self.assertRaises(openai.APIError) as e:
            gather(self.say("#fail 5 abc</think>def", stream=True))
        self.assertIn("device failed", str(e.exception))
        self.assertEqual(self.say("a</think>still there").choices[0].message.content, "still there")


if __name__ == "__main__":
    harness.main()
