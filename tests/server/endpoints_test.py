#!/usr/bin/env python3
"""The endpoints beside chats: completions, Anthropic's messages, responses, native, tokenising, and those of operation."""
import json
import os
import socket
import unittest
import urllib.error
import urllib.request

import harness
import openai

CALL = "<tool_call>weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"


class Endpoints(harness.ServerTest):
    def post(self, path, body, headers=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.server.url + path, data, {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, dict(e.headers), e.read().decode()

    def get(self, path):
        with urllib.request.urlopen(self.server.url + path, timeout=10) as answer:
            return answer.read().decode()

    def test_times_are_in_the_usage_where_they_are_asked_for(self):
        self.assertNotIn("timing", self.say("a</think>b").usage.model_extra)
        asked = {"extra_headers": {"x-timing": "1"}}
        usage = [self.say("a</think>0123456789", **asked).usage,
                 [c for c in self.say("a</think>0123456789", stream=True, stream_options={"include_usage": True}, **asked)][-1].usage,
                 self.client.completions.create(model=self.model, prompt=["abcdef", "abc"], max_tokens=4, **asked).usage,
                 self.client.responses.create(model=self.model, input="a</think>b", **asked).usage,
                 self.server.anthropic().messages.create(model=self.model, max_tokens=20, **asked, messages=[
                     {"role": "user", "content": "a</think>b"}]).usage]
        for u in usage:
            times = u.model_extra["timing"]
            self.assertEqual(set(times), {"queue_s", "prefill_s", "decode_s"})
            self.assertTrue(all(0 <= t < 600 for t in times.values()), times)
            self.assertGreater(times["prefill_s"], 0)

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], ["scripted"])
        self.assertEqual(self.client.models.retrieve("scripted").id, "scripted")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")
        self.assertEqual(json.loads(self.get("/v1/models/%73cript%65d"))["id"], "scripted")

    def test_completions(self):
        answer = self.client.completions.create(model="scripted", prompt="abc", max_tokens=10)
        self.assertEqual(answer.choices[0].text, "abc")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.completion_tokens, 4)
        many = self.client.completions.create(model="scripted", prompt=["ab", "cd"], n=2, echo=True, max_tokens=10)
        self.assertEqual([(c.index, c.text) for c in many.choices], [(0, "abab"), (1, "abab"), (2, "cdcd"), (3, "cdcd")])
        ids = self.client.completions.create(model="scripted", prompt=[120, 121], max_tokens=10)
        self.assertEqual(ids.choices[0].text, "xy")
        texts = {}
        for chunk in self.client.completions.create(model="scripted", prompt=["ab", "cde"], stream=True, max_tokens=10):
            for c in chunk.choices:
                texts[c.index] = texts.get(c.index, "") + c.text
        self.assertEqual(texts, {0: "ab", 1: "cde"})
        with_logprobs = self.client.completions.create(model="scripted", prompt="abc", max_tokens=10, logprobs=1)
        self.assertEqual("".join(with_logprobs.choices[0].logprobs.tokens[:3]), "abc")

    def test_messages(self):
        client = self.server.anthropic()
        tools = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
        answer = client.messages.create(model="scripted", max_tokens=200, system="Be brief.", tools=tools,
                                        messages=[{"role": "user", "content": "Hm.</think>I look." + CALL}])
        kinds = {b.type: b for b in answer.content}
        self.assertEqual(kinds["text"].text, "I look.")
        self.assertEqual(kinds["tool_use"].input, {"city": "Paris"})
        self.assertEqual(answer.stop_reason, "tool_use")
        self.assertGreater(answer.usage.output_tokens, 10)
        with client.messages.stream(model="scripted", max_tokens=200, tools=tools,
                                    messages=[{"role": "user", "content": "Hm.</think>I look." + CALL}]) as stream:
            final = stream.get_final_message()
        self.assertEqual([b.type for b in final.content], [b.type for b in answer.content])
        self.assertEqual(final.content[-1].input, {"city": "Paris"})
        counted = client.messages.count_tokens(model="scripted", messages=[{"role": "user", "content": "abc"}])
        whole = client.messages.create(model="scripted", max_tokens=5, messages=[{"role": "user", "content": "abc"}])
        self.assertEqual(counted.input_tokens, whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0))
        self.assertEqual(whole.stop_reason, "max_tokens" if whole.usage.output_tokens == 5 else "end_turn")

    def test_responses(self):
        answer = self.client.responses.create(model="scripted", input="Hm.</think>Hello there.")
        self.assertEqual(answer.output_text, "Hello there.")
        self.assertEqual(answer.status, "completed")
        events = list(self.client.responses.create(model="scripted", input="Hm.</think>Hello there.", stream=True))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), "Hello there.")
        self.assertEqual(events[-1].type, "response.completed")
        self.assertEqual(events[-1].response.output_text, "Hello there.")

    def test_generate(self):
        status, _, body = self.post("/generate", {"text": "abc", "sampling_params": {"max_new_tokens": 10}})
        self.assertEqual(status, 200, body)
        answer = json.loads(body)
        self.assertEqual(answer["text"], "abc")
        self.assertEqual(answer["meta_info"]["completion_tokens"], 4)
        status, _, body = self.post("/generate", {"input_ids": [[97], [98, 99]], "sampling_params": {"max_new_tokens": 10}})
        self.assertEqual([a["text"] for a in json.loads(body)], ["a", "bc"])
        status, _, body = self.post("/generate", {"text": "abc", "stream": True})
        events = [line[6:] for line in body.split("\n") if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(json.loads(events[-2])["text"], "abc")

        status, _, body = self.post("/generate", {"text": "abc", "model": "other"})
        self.assertEqual((status, json.loads(body)["error"]["code"]), (404, "model_not_found"))

    def test_special_tokens_count_in_raw_prompts_alone(self):
        _, _, body = self.post("/tokenize", {"prompt": "<|user|></think>"})
        self.assertEqual(json.loads(body)["count"], 2)
        answer = self.client.completions.create(model="scripted", prompt="<|user|></think>", max_tokens=1)
        self.assertEqual(answer.usage.prompt_tokens, 2)
        _, _, body = self.post("/tokenize", {"messages": [{"role": "user", "content": "<|user|></think>"}]})
        self.assertGreater(json.loads(body)["count"], 16)

    def test_prompt_logprobs(self):
        status, _, body = self.post("/v1/completions", {"prompt": "abc", "prompt_logprobs": 1, "max_tokens": 2})
        self.assertEqual(status, 200, body)
        self.assertEqual(len(json.loads(body)["choices"][0]["prompt_logprobs"]), 3)

    def test_tokenize(self):
        _, _, body = self.post("/tokenize", {"prompt": "aé"})
        tokens = json.loads(body)
        self.assertEqual((tokens["tokens"], tokens["count"]), ([97, 195, 169], 3))
        _, _, body = self.post("/detokenize", {"tokens": [97, 195, 169]})
        self.assertEqual(json.loads(body)["prompt"], "aé")
        _, _, body = self.post("/render", {"messages": [{"role": "user", "content": "<think>"}]})
        rendered = json.loads(body)
        self.assertIn("<|user|><think><|assistant|>", rendered["prompt"])

    def test_operation(self):
        for path in ("/livez", "/readyz", "/health", "/health_generate"):
            self.assertEqual(json.loads(self.get(path))["status"], "ok", path)
        self.assertEqual(json.loads(self.get("/server_info"))["model"], "scripted")
        self.assertEqual(json.loads(self.get("/version"))["version"], "scripted")
        self.wait_until_idle()
        status, _, body = self.post("/flush_cache", {})
        self.assertEqual(status, 200, body)
        before = self.server.metrics()
        self.say("a</think>bc")
        self.wait_until_idle()
        after = self.server.metrics()
        name = "baton_generation_tokens_total"
        self.assertEqual(after[name] - before[name], 5)
        count = "baton_time_to_first_token_seconds_count"
        self.assertEqual(after[count] - before[count], 1)

    def test_ids(self):
        trace = "0af7651916cd43dd8448eb211c80319c"
        _, headers, _ = self.post("/tokenize", {"prompt": "a"}, {"X-Request-Id": "mine", "traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        self.assertEqual(headers["x-request-id"], "mine")
        self.assertEqual(headers["traceparent"].split("-")[1], trace)
        self.assertNotEqual(headers["traceparent"].split("-")[2], "b7ad6b7169203331")
        self.wait_for(lambda: "mine" in [e["request_id"] for e in self.server.requests()], "not logged")

    @unittest.skipUnless(os.path.isdir(os.environ.get("BATON_XGRAMMAR", "")), "structured output is not available")
    def test_what_the_official_client_makes_of_streams_and_types(self):
        import pydantic

        class Town(pydantic.BaseModel):
            name: str
            people: int
        told, town = 'a</think>{"name": "Bern", "people": 3}', Town(name="Bern", people=3)
        asked = {"model": self.model, "messages": [{"role": "user", "content": told}], "response_format": Town}
        self.assertEqual(self.client.chat.completions.parse(**asked).choices[0].message.parsed, town)
        with self.client.chat.completions.stream(**asked) as stream:
            self.assertIn("content.done", [event.type for event in stream])
            self.assertEqual(stream.get_final_completion().choices[0].message.parsed, town)
        self.assertEqual(self.client.responses.parse(model=self.model, input=told, text_format=Town).output_parsed, town)
        with self.client.responses.stream(model=self.model, input="a</think>hi there") as stream:
            self.assertIn("response.output_text.done", [event.type for event in stream])
            self.assertEqual(stream.get_final_response().output_text, "hi there")

    def test_what_is_no_request(self):
        for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"model": 1}', b'{"messages": "a"}', b"[" * 100000, b'{"a":' * 5000):
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/generate", "/tokenize", "/render"):
                status, _, text = self.post(path, body)
                self.assertEqual(status, 400, (path, body[:20], text))
                self.assertTrue(json.loads(text)["error"]["message"])
        self.assertEqual(self.post("/v1/nothing", {})[0], 404)
        status, headers, _ = self.post("/v1/models", {})
        self.assertEqual((status, headers["allow"]), (405, "GET, HEAD"))
        with self.assertRaises(urllib.error.HTTPError) as e:
            self.get("/v1/messages")
        self.assertEqual((e.exception.code, e.exception.headers["allow"]), (405, "POST"))

    def test_what_http_refuses_is_in_the_shape_of_the_api(self):
        refused = ((b"POST %s HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\nContent-Length: %d\r\n\r\n", 413, "request_too_large"),
                   (b"POST %s HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\nContent-Length: x%d\r\n\r\n", 400, "bad_http"),
                   (b"POST %s HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\nExpect: %d\r\n\r\n", 417, "bad_http"),
                   (b"PUT %s HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\nX: %d\r\nConnection: close\r\n\r\n", 405, "method_not_allowed"))
        for path in (b"/v1/messages", b"/v1/messages/count_tokens", b"/v1/chat/completions", b"/generate", b"/tokenize"):
            for head, status, code in refused:
                with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as s:
                    s.sendall(head % (path, 17 << 20))
                    answer = b"".join(iter(lambda: s.recv(4096), b"")).decode()  # noqa: B023
                head_text, body = answer.split("\r\n\r\n", 1)
                self.assertIn(f" {status} ", head_text.split("\r\n")[0], (path, answer))
                self.assertIn("x-request-id: mine", head_text, (path, answer))
                error = json.loads(body)
                if path.startswith(b"/v1/messages"):
                    self.assertEqual((error["type"], error["request_id"]), ("error", "mine"), (path, answer))
                else:
                    self.assertEqual(error["error"]["code"], code, (path, answer))

    def test_compressed_bodies_are_refused_by_name(self):
        for path in ("/v1/messages", "/v1/chat/completions", "/generate", "/tokenize"):
            status, _, body = self.post(path, b"\x1f\x8b\x08", {"Content-Encoding": "gzip"})
            self.assertEqual(status, 415, body)
            self.assertIn("Content-Encoding: gzip", json.loads(body)["error"]["message"])
        self.assertEqual(self.post("/tokenize", {"prompt": "a"}, {"Content-Encoding": "identity"})[0], 200)

    @unittest.skipUnless(os.path.isdir(os.environ.get("BATON_XGRAMMAR", "")), "structured output is not available")
    def test_what_is_wrong_with_a_form_begins_with_its_field(self):
        forms = {"guided_regex": ["(", "[z-a]", "a{3,1}"], "guided_grammar": ["x", "root ::= y", "root ::= Token(99999999)"],
                 "structural_tag": ["1", "[]", "{}", {}, {"type": "structural_tag", "format": {"type": "zz"}}],
                 "guided_json": [{"type": "string", "pattern": "("}, {"not": {}}]}
        for field, wrong in forms.items():
            for form in wrong:
                for path, named, body in (("/v1/completions", field, {"prompt": "a", field: form}),
                                          ("/generate", "sampling_params." + field, {"text": "a", "sampling_params": {field: form}})):
                    status, _, text = self.post(path, body)
                    error = json.loads(text)["error"]
                    self.assertEqual((status, error["param"]), (400, named), (form, text))
                    self.assertTrue(error["message"].startswith(named + ": "), text)
                    self.assertNotIn("Check failed", text)


if __name__ == "__main__":
    harness.main()
