// How to sample and when to stop: the fields that all generating endpoints know.
#include <algorithm>
#include <charconv>
#include <limits>

#include "api/field_table.h"

namespace baton::api {
namespace {

namespace json = boost::json;

constexpr int32_t kMostInt = std::numeric_limits<int32_t>::max();

void read_top_k(FieldReader& in, Request& out) {
  if (const auto k = in.whole(-1, kMostInt)) out.sampling.top_k = static_cast<int32_t>(std::max<int64_t>(*k, 0));
}

void read_seed(FieldReader& in, Request& out) {
  if (in.value().is_uint64()) {
    out.sampling.seed = in.value().get_uint64();
  } else if (const auto seed = in.whole(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())) {
    out.sampling.seed = static_cast<uint64_t>(*seed);
  }
}

void read_choices(FieldReader& in, Request& out) {
  const auto n = in.whole(1, kMostInt);
  if (!n) return;
  if (*n > in.limits().choices)
    return in.wrong(fmt::format("is {}; {} are the most that this server takes (--max-choices)", *n, in.limits().choices));
  out.sampling.n = static_cast<int32_t>(*n);
}

void read_logit_bias(FieldReader& in, Request& out) {
  constexpr Range kRange{-100, 100};
  const json::object* members = in.object();
  if (members == nullptr) return;
  if (members->size() > in.limits().logit_biases)
    return in.wrong(fmt::format("has {} entries; {} are the most", members->size(), in.limits().logit_biases));
  auto& biases = out.sampling.logit_bias;
  for (const auto& member : *members) {
    const std::string_view key = member.key();
    int32_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole = end.ec == std::errc() && end.ptr == key.data() + key.size();
    if (!whole || id < 0 || (in.limits().vocabulary > 0 && id >= in.limits().vocabulary))
      return in.wrong(fmt::format("has the key {}, which is no token id", shown(json::value(key.substr(0, 64)))));
    const auto bias = in.member(key, member.value()).number(kRange);
    if (!bias) return;
    biases.emplace_back(id, static_cast<float>(*bias));
  }
  std::sort(biases.begin(), biases.end());
  const auto twice = std::adjacent_find(biases.begin(), biases.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != biases.end()) in.wrong(fmt::format("names the token {} twice", twice->first));
}

void read_one_stop(FieldReader in, Request& out) {
  const auto stop = in.text(in.limits().stop_bytes);
  if (!stop) return;
  if (stop->empty()) return in.wrong("is empty; every output would stop at once");
  out.sampling.stop.emplace_back(*stop);
}

void read_stop(FieldReader& in, Request& out) {
  if (in.value().is_string()) return read_one_stop(in, out);
  if (!in.value().is_array()) return in.wrong(fmt::format("is {}; it must be a string or a list of strings", shown(in.value())));
  const json::array* stops = in.array(in.limits().stop_strings);
  if (stops == nullptr) return;
  for (size_t i = 0; i < stops->size(); ++i) read_one_stop(in.item(i, (*stops)[i]), out);
}

void read_stop_token_ids(FieldReader& in, Request& out) {
  const json::array* ids = in.array(in.limits().stop_token_ids);
  if (ids == nullptr) return;
  for (size_t i = 0; i < ids->size(); ++i)
    if (const auto id = in.item(i, (*ids)[i]).token()) out.sampling.stop_token_ids.push_back(*id);
}

void read_budget(FieldReader& in, Request& out) {
  // -1 is how some clients say "no budget".
  if (const auto budget = in.whole(-1, in.limits().max_tokens); budget && *budget >= 0)
    out.thinking_token_budget = static_cast<int32_t>(*budget);
}

constexpr Field kFields[] = {
    {.name = "temperature",
     .type = "number",
     .what = "0: always the most likely token. Not given: what the model's `generation_config.json` says, else 1",
     .range = {0, 100},
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.temperature); }},
    {.name = "top_p",
     .type = "number",
     .what = "of the most likely tokens, the fewest that have this much of the probability together",
     .range = {0, 1, true},
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.top_p); }},
    {.name = "top_k", .type = "integer from -1", .what = "the k most likely tokens; 0 and -1: all", .read = read_top_k},
    {.name = "min_p",
     .type = "number",
     .what = "tokens with at least this share of the probability of the most likely one",
     .range = {0, 1},
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.min_p); }},
    {.name = "frequency_penalty",
     .type = "number",
     .what = "taken from a token's logit for every time that it was generated",
     .range = {-2, 2},
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.frequency_penalty); }},
    {.name = "presence_penalty",
     .type = "number",
     .what = "taken once from the logit of a token that was generated",
     .range = {-2, 2},
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.presence_penalty); }},
    {.name = "repetition_penalty",
     .type = "number",
     .what = "divides the positive logits of tokens seen in prompt or output, and multiplies the negative ones; 1: off",
     .range = {0, 10, true},
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.repetition_penalty); }},
    {.name = "seed",
     .type = "integer of 64 bits",
     .what = "the same seed and prompt give the same output, whatever else the server does",
     .read = read_seed},
    {.name = "sampling_seed", .type = "integer of 64 bits", .what = "SGLang's name of `seed`", .same_as = "seed", .read = read_seed},
    {.name = "logit_bias",
     .type = "object",
     .what = "token ids, as strings, with what is added to their logits, -100 to 100; 4,096 at most",
     .read = read_logit_bias},
    {.name = "stop",
     .type = "string or list",
     .what = "the output ends before the first of these strings; 64 of 1,024 bytes at most",
     .read = read_stop},
    {.name = "stop_token_ids",
     .type = "list of ids",
     .what = "the output ends at these tokens, too; 256 at most",
     .read = read_stop_token_ids},
    {.name = "include_stop_str_in_output",
     .type = "boolean",
     .what =
         "the stop string that ended the output is part of it, and with `skip_special_tokens` false the stop token, unless it ends a form",
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.include_stop_str_in_output); }},
    {.name = "no_stop_trim",
     .type = "boolean",
     .what = "SGLang's name of `include_stop_str_in_output`",
     .same_as = "include_stop_str_in_output",
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.include_stop_str_in_output); }},
    {.name = "ignore_eos",
     .type = "boolean",
     .what = "the model's own end does not end the output; for measurements. An output of a given form, or a forced call, ends with it all "
             "the same",
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.ignore_eos); }},
    {.name = "min_tokens",
     .type = "integer",
     .what = "tokens before which the model's own end and stop tokens do not come",
     .range = {0, 0x1p24},
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.min_tokens); }},
    {.name = "min_new_tokens",
     .type = "integer",
     .what = "SGLang's name of `min_tokens`",
     .range = {0, 0x1p24},
     .same_as = "min_tokens",
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.min_tokens); }},
    {.name = "skip_special_tokens",
     .type = "boolean",
     .what = "false: special tokens of the model show in the text",
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.skip_special_tokens); }},
    {.name = "n",
     .type = "integer from 1",
     .what = "independent answers to one prompt, which is computed once; `--max-choices` (16) is the most. All prompts of a request "
             "together have 256 answers at most, and no more than may run and wait",
     .read = read_choices},
    {.name = "thinking_token_budget",
     .type = "integer from -1",
     .what = "reasoning is closed after so many tokens; -1: no budget",
     .read = read_budget},
    {.name = "thinking_budget",
     .type = "integer from -1",
     .what = "another name of `thinking_token_budget`",
     .same_as = "thinking_token_budget",
     .read = read_budget},
    {.name = "reasoning_budget",
     .type = "integer from -1",
     .what = "llama.cpp's name of `thinking_token_budget`",
     .same_as = "thinking_token_budget",
     .read = read_budget},
    {.name = "priority",
     .type = "integer of 32 bits",
     .what = "which requests go first when not all can; higher ones, unless the server says otherwise",
     .range = {-2147483648.0, 2147483647},
     .read = [](FieldReader& in, Request& out) { in.into(out.priority); }},
    {.name = "cache_salt",
     .type = "string",
     .what = "cached prompts are shared only among requests with the same salt",
     .read = [](FieldReader& in, Request& out) { in.into(out.cache_salt); }},
    {.name = "cache_prompt",
     .type = "boolean",
     .what = "false: the request neither uses nor fills the cache of prompts",
     .read = [](FieldReader& in, Request& out) { in.into(out.cache_prompt); }},
    without_effect("truncation_side", "prompts are never shortened"),
    without_effect("stream_interval", "text is sent as it comes"),
    without_effect("return_cached_tokens_details", "usage always says how many tokens were found in the cache"),
    refused("best_of", "the best of several answers is not chosen here; ask for `n`", "1"),
    refused("use_beam_search", "there is no beam search", "false"),
    refused("length_penalty", "there is no beam search", "1"),
    refused("early_stopping", "there is no beam search", "false"),
    refused("bad_words", "words cannot be banned; `logit_bias` bans tokens", "[]"),
    refused("allowed_token_ids", "output cannot be held to a list of tokens; `structured_outputs` holds it to a grammar", "[]"),
    refused("stop_regex", "output cannot be ended by a pattern; `stop` takes strings", "[]"),
    refused("truncate_prompt_tokens", "prompts are never shortened silently", "-1"),
    refused("spaces_between_special_tokens", "text is put together without added spaces", "true"),
    refused("logits_processors", "code of clients is not run", "[]"),
    refused("custom_logit_processor", "code of clients is not run"),
    refused("vllm_xargs", "the server has no extensions", "{}"),
    refused("repetition_detection", "repetition does not end an output; `repetition_penalty` makes it less likely"),
    refused("watermarking", "output is not marked", "false"),
    refused("logprob_token_ids", "log-probabilities of chosen tokens are not given; `top_logprobs` gives the most likely ones"),
    refused("custom_params", "code of clients is not run", "{}"),
    refused("lora_path", "there are no adapters"),
    refused("lora_request", "there are no adapters"),
    refused("kv_transfer_params", "the transfer of caches is not a client's to direct"),
    refused("ec_transfer_params", "the transfer of caches is not a client's to direct"),
    refused("return_token_ids", "token ids are answered by /generate only", "false"),
    refused("return_prompt_token_ids", "token ids of a prompt are answered by /render and /tokenize", "false"),
    refused("return_prompt_text", "the text of a prompt is answered by /render", "false"),
    refused("return_meta_info", "meta_info is answered by /generate only", "false"),
    refused("return_routed_experts", "the choice of experts is not given out", "false"),
    refused("return_tokens_as_token_ids", "tokens are shown as text", "false"),
    refused("return_hidden_states", "hidden states are not given out", "false"),
    refused("typical_p", "there is no such sampler", "1"),
    refused("top_a", "there is no such sampler", "0"),
    refused("tfs_z", "there is no such sampler", "1"),
    refused("mirostat", "there is no such sampler", "0"),
    refused("dynatemp_range", "there is no such sampler", "0"),
    refused("dry_multiplier", "there is no such sampler", "0"),
    refused("xtc_probability", "there is no such sampler", "0"),
};

}  // namespace

std::span<const Field> sampling_fields() { return kFields; }

}  // namespace baton::api
