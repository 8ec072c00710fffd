#!/usr/bin/env python3
"""`baton serve` with a real, small model: what only a model shows."""
import itertools
import json
import os
import unittest

import harness
import openai


class Model(harness.ServerTest):
    scripted = False

    def token(self, text):
        found = self.client.post(self.server.url + "/tokenize", cast_to=object, body={"prompt": text})
        self.assertEqual(found["count"], 1, found)
        return str(found["tokens"][0])

    def test_ready_within_a_second(self):
        log = next(e for e in self.server.log if e["message"] == "ready")
        self.assertLess(log["seconds"], 1)

    def test_the_same_seed_gives_the_same_text(self):
        texts = {self.say("hello", seed=7, max_completion_tokens=20).choices[0].message.reasoning_content for _ in range(3)}
        self.assertEqual(len(texts), 1)
        zero = {self.say("hello", temperature=0, max_completion_tokens=20).choices[0].message.reasoning_content for _ in range(3)}
        self.assertEqual(len(zero), 1)

    def test_cached_tokens(self):
        text = "a long beginning " * 20
        first = self.say(text, max_completion_tokens=2).usage
        again = self.say(text, max_completion_tokens=2).usage
        self.assertEqual(first.prompt_tokens, again.prompt_tokens)
        self.assertGreater(again.prompt_tokens_details.cached_tokens, 64)
        self.assertLess(again.prompt_tokens_details.cached_tokens, again.prompt_tokens)

    def test_a_short_system_prompt_is_cached(self):
        # 90 tokens in common: one page. The second request shows where the two part, and leaves a state there for the third.
        cached = []
        for tail in ("first " * 15, "other " * 15, "third " * 15):
            messages = [{"role": "system", "content": "a system prompt of ours, " * 3}, {"role": "user", "content": tail}]
            answer = self.client.chat.completions.create(model=self.model, messages=messages, max_completion_tokens=2)
            cached.append(answer.usage.prompt_tokens_details.cached_tokens)
        self.assertEqual(cached[0], 0)
        self.assertGreaterEqual(cached[2], 64)

    def test_logprobs_are_those_of_the_draw(self):
        answer = self.say("hello", temperature=0, max_completion_tokens=8, logprobs=True, top_logprobs=20)
        entries = answer.choices[0].logprobs.content
        self.assertEqual(len(entries), answer.usage.completion_tokens)
        for e in entries:
            # Random weights may like columns best that no token belongs to: those are neither drawn nor listed.
            self.assertTrue(all(t.bytes for t in e.top_logprobs), e)
            best = max(t.logprob for t in e.top_logprobs)
            self.assertAlmostEqual(e.logprob, best, places=5)

    def test_prompt_logprobs(self):
        answer = self.client.completions.create(model="small", prompt="hello", max_tokens=2, temperature=0,
                                                extra_body={"prompt_logprobs": 1})
        entries = answer.choices[0].model_extra["prompt_logprobs"]
        self.assertEqual(len(entries), 5)
        self.assertIsNone(entries[0])
        self.assertTrue(all(next(iter(e.values()))["logprob"] < 0 for e in entries[1:]))

    def test_thinking_budget(self):
        # Also of a model that would think forever, and one that would think again as soon as it has ended.
        think = self.token("<think>")
        for bias in ({}, {self.token("</think>"): -100}, {think: 100}, {think: 100, self.token("</think>"): 100}):
            answer = self.say("hello", seed=1, max_completion_tokens=30, logit_bias=bias, extra_body={"thinking_token_budget": 5})
            self.assertLessEqual(answer.usage.completion_tokens_details.reasoning_tokens, 6, bias)

    @unittest.skipUnless(os.path.isdir(os.environ.get("BATON_XGRAMMAR", "")), "structured output is not available")
    def test_structured_output(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 2, 3]}}, "required": ["ok", "n"],
                  "additionalProperties": False}
        for seed in range(5):
            answer = self.say("hello", seed=seed, max_completion_tokens=400, extra_body={"thinking_token_budget": 3}, response_format={
                "type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": True}})
            choice = answer.choices[0]
            if choice.finish_reason == "length":  # white space may go on
                continue
            value = json.loads(choice.message.content)
            self.assertIn(value["n"], (1, 2, 3))
            self.assertIsInstance(value["ok"], bool)

    FORMS = ({"guided_choice": ["green", "red"]}, {"guided_regex": "green|red"}, {"ebnf": 'root ::= "green" | "red"'},
             {"guided_json": {"enum": ["green", "red"]}})

    def formed(self, form, **sampling):
        """The text of an answer with this form, as every endpoint that takes one gives it."""
        post, url, usual = self.client.post, self.server.url, {"temperature": 1, "seed": 3, **form, **sampling}
        yield post(url + "/v1/completions", cast_to=object, body={"prompt": "hello", "max_tokens": 60, **usual})["choices"][0]["text"]
        yield post(url + "/generate", cast_to=object, body={"text": "hello", "sampling_params": {"max_new_tokens": 60, **usual}})["text"]
        yield self.say("hello", max_completion_tokens=60, extra_body={"thinking_token_budget": 3, **usual}).choices[0].message.content

    @unittest.skipUnless(os.path.isdir(os.environ.get("BATON_XGRAMMAR", "")), "structured output is not available")
    def test_an_output_of_a_form_is_the_form_and_nothing_else(self):
        for form in self.FORMS:
            for ignore, skip, include in itertools.product((False, True), repeat=3):
                for text in self.formed(form, ignore_eos=ignore, skip_special_tokens=skip, include_stop_str_in_output=include):
                    self.assertIn(text.strip('"'), ("green", "red"), (form, ignore, skip, include))

    @unittest.skipUnless(os.path.isdir(os.environ.get("BATON_XGRAMMAR", "")), "structured output is not available")
    def test_a_form_that_ends_before_min_tokens_is_refused(self):
        tools = [{"type": "function", "function": {"name": "pick", "parameters": {"type": "object", "additionalProperties": False}}}]
        for ignore in (False, True):
            for form in self.FORMS:
                answers = self.formed(form, ignore_eos=ignore, min_tokens=50)
                with self.assertRaises(openai.BadRequestError):
                    next(answers)
            with self.assertRaises(openai.BadRequestError):
                self.say("hello", seed=1, max_completion_tokens=90, tools=tools, tool_choice="required", parallel_tool_calls=False,
                         extra_body={"thinking_token_budget": 3, "ignore_eos": ignore, "min_tokens": 80})

    @unittest.skipUnless(os.path.isdir(os.environ.get("BATON_XGRAMMAR", "")), "structured output is not available")
    def test_a_forced_call(self):
        tools = [{"type": "function", "function": {"name": "pick", "parameters": {
            "type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}}}]
        answer = self.say("hello", seed=1, max_completion_tokens=200, tools=tools, tool_choice="required", parallel_tool_calls=False,
                          extra_body={"thinking_token_budget": 3})
        call = answer.choices[0].message.tool_calls[0]
        self.assertEqual(call.function.name, "pick")
        self.assertIn(json.loads(call.function.arguments)["n"], (1, 2))


if __name__ == "__main__":
    harness.main()
