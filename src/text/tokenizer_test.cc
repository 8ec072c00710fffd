// Encoding and decoding beyond the recorded cases: untrusted text, random bytes, threads, files that are refused.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/file.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

namespace baton::text {
namespace {

const std::string kData = BATON_TEST_DATA "/tokenizers/";

Tokenizer load(const std::string& name) {
  auto t = Tokenizer::load(kData + name + ".json");
  EXPECT_TRUE(t.ok()) << t.error().message;
  return std::move(*t);
}

std::vector<int32_t> encode(const Tokenizer& t, std::string_view text, EncodeOptions options = {}, std::vector<TextRange> untrusted = {}) {
  auto ids = t.encode(text, options, untrusted);
  EXPECT_TRUE(ids.ok()) << ids.error().message;
  return ids.ok() ? *ids : std::vector<int32_t>{};
}

class EveryTokenizer : public ::testing::TestWithParam<const char*> {
 protected:
  Tokenizer tokenizer_ = load(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Text, EveryTokenizer, ::testing::Values("glm-like", "llama3-like", "qwen-like"));

std::string random_bytes(std::mt19937_64& random) {
  static const std::vector<std::string> kPieces = {"<|user|>", "<think>",    "Ångström", "e\xCC\x81", "각",  "日本",
                                                   "  ",       "\n\n\n\n\n", "'s",       "12345",     "<N>", " two words "};
  std::string text;
  for (size_t n = random() % 24; n > 0; --n) {
    switch (random() % 4) {
      case 0: text += static_cast<char>(random()); break;
      case 1: text += static_cast<char>(random() % 128); break;
      case 2: append_utf8(text, static_cast<char32_t>(random() % 0xD800)); break;
      default: text += kPieces[random() % kPieces.size()]; break;
    }
  }
  return text;
}

TEST_P(EveryTokenizer, DecodesWhatItEncoded) {
  std::mt19937_64 random(1);
  // Added tokens may swallow spaces, and normalizers change text; without both, text comes back.
  if (std::string_view(GetParam()) == "qwen-like") return;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = random_bytes(random);
    std::string repaired;
    append_lossy(repaired, text);
    EXPECT_EQ(tokenizer_.decode(encode(tokenizer_, text, {.added_tokens = AddedTokens::kNone})), repaired) << i;
  }
}

TEST_P(EveryTokenizer, AgreesWithThePattern) {
  Tokenizer by_pattern = load(GetParam());
  by_pattern.use_pattern_only();
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_bytes(random);
    EXPECT_EQ(encode(tokenizer_, text), encode(by_pattern, text)) << i;
  }
}

TEST_P(EveryTokenizer, DetokenizerEqualsDecode) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::vector<int32_t> ids;
    for (size_t n = random() % 30; n > 0; --n)
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(random() % 2 ? 300 : tokenizer_.id_limit() + 5)) - 1);
    const bool skip = random() % 2 == 0;
    Detokenizer stream(tokenizer_, skip);
    std::string joined;
    for (const int32_t id : ids) {
      std::string piece;
      stream.add(id, piece);
      EXPECT_TRUE(valid_utf8(piece));
      EXPECT_LE(stream.pending().size(), 3U);
      joined += piece;
    }
    stream.finish(joined);
    EXPECT_EQ(joined, tokenizer_.decode(ids, skip)) << i;
  }
}

TEST_P(EveryTokenizer, UntrustedTextNeverBecomesAnAddedToken) {
  std::mt19937_64 random(4);
  const auto added = [&](const std::vector<int32_t>& ids) {
    return std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer_.is_added(id); });
  };
  for (const int32_t id : tokenizer_.added_ids()) {
    const std::string token(*tokenizer_.token(id));
    const std::string text = "a " + token + " b";
    EXPECT_FALSE(added(encode(tokenizer_, text, {}, {{0, text.size()}}))) << token;
    // Any single byte of it untrusted, and it is none, unless a shorter token remains.
    for (size_t cut = 0; cut < token.size(); ++cut) {
      const auto ids = encode(tokenizer_, token, {}, {{cut, cut + 1}});
      EXPECT_EQ(std::count(ids.begin(), ids.end(), id), 0) << token << " at " << cut;
    }
  }
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_bytes(random);
    EXPECT_FALSE(added(encode(tokenizer_, text, {}, {{0, text.size()}}))) << i;
    EXPECT_EQ(encode(tokenizer_, text, {}, {{0, text.size()}}), encode(tokenizer_, text, {.added_tokens = AddedTokens::kNone})) << i;
    if (!valid_utf8(text)) continue;
    EXPECT_EQ(encode(tokenizer_, text, {}, {{0, 0}, {text.size(), text.size()}}), encode(tokenizer_, text)) << i;
  }
}

TEST(Tokenizer, TrustedTextBetweenUntrustedKeepsItsTokens) {
  const Tokenizer t = load("glm-like");
  const std::string text = "<|user|>say <|user|> twice<|assistant|><think>";
  const auto ids = encode(t, text, {}, {{8, 26}});
  const auto user = *t.id_of("<|user|>");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), user), 1);
  EXPECT_EQ(ids.front(), user);
  EXPECT_EQ(ids.back(), *t.id_of("<think>"));
  EXPECT_EQ(t.decode(ids), text);
  // An edge between ordinary characters changes nothing.
  EXPECT_EQ(encode(t, "hello world", {}, {{2, 8}}), encode(t, "hello world"));
}

TEST(Tokenizer, TokensSwallowTrustedSpacesOnly) {
  const Tokenizer t = load("llama3-like");
  const int32_t both = *t.id_of("<both>");
  EXPECT_EQ(encode(t, "a  <both>  b"), (std::vector<int32_t>{*t.id_of("a"), both, *t.id_of("b")}));
  EXPECT_EQ(t.decode(encode(t, "a  <both>  b", {}, {{0, 3}, {9, 12}})), "a  <both>  b");
}

TEST(Tokenizer, RefusesRangesOutsideTheText) {
  const Tokenizer t = load("glm-like");
  for (const std::vector<TextRange>& bad : {std::vector<TextRange>{{0, 4}}, {{2, 1}}, {{1, 2}, {0, 1}}})
    EXPECT_FALSE(t.encode("abc", {}, bad).ok());
  // Through the middle of a character: both halves are broken, nothing else happens.
  EXPECT_EQ(t.decode(encode(t, "aéb", {}, {{2, 4}})),
            "a\xEF\xBF\xBD\xEF\xBF\xBD"
            "b");
}

TEST(Tokenizer, SpecialTokensAreKnown) {
  const Tokenizer t = load("glm-like");
  const int32_t user = *t.id_of("<|user|>"), think = *t.id_of("<think>");
  EXPECT_TRUE(t.is_special(user));
  EXPECT_FALSE(t.is_special(think));
  EXPECT_TRUE(t.is_added(think));
  EXPECT_FALSE(t.is_added(0));
  EXPECT_EQ(t.size(), 12036U);
  EXPECT_EQ(t.id_limit(), 12036);
  EXPECT_FALSE(t.has(-1) || t.has(12036));
  EXPECT_EQ(t.decode(std::vector<int32_t>{user, think, -5, 1 << 30}, true), "<think>");
  EXPECT_EQ(encode(t, "<think>", {.added_tokens = AddedTokens::kNotSpecial}).size(), 1U);
  EXPECT_GT(encode(t, "<|user|>", {.added_tokens = AddedTokens::kNotSpecial}).size(), 1U);
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer t = load("qwen-like");
  std::mt19937_64 random(5);
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 300; ++i) {
    texts.push_back(random_bytes(random));
    expected.push_back(encode(t, texts.back()));
  }
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n)
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(encode(t, texts[i]), expected[i]);
    });
  for (std::thread& thread : threads) thread.join();
}

// Doubling the text must not quadruple the time; with room for a busy machine.
TEST_P(EveryTokenizer, TakesLinearTime) {
  for (const std::string part : {"a", " ", "\n", "1", "'", "é", "日", "\xCC\x81", "e\xCC\x81", "a ", "<", "\xFF", "<|", "ab"}) {
    const auto seconds = [&](size_t bytes) {
      std::string text;
      while (text.size() < bytes) text += part;
      const auto start = std::chrono::steady_clock::now();
      encode(tokenizer_, text);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const double small = seconds(100'000), large = seconds(800'000);
    EXPECT_LT(large, 40 * small + 0.2) << part;
  }
}

std::string with(std::string_view key, std::string_view value) {
  std::string json =
      R"({"added_tokens":[],"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]},"decoder":{"type":"ByteLevel"},)";
  if (key != "pre_tokenizer") json += R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)";
  if (const size_t at = json.find('"' + std::string(key) + "\":"); at != std::string::npos) json.replace(at, key.size() + 2, "\"unused\"");
  return json + '"' + std::string(key) + "\":" + std::string(value) + "}";
}

TEST(TokenizerJson, RefusesWhatItDoesNotKnow) {
  const struct {
    std::string_view key, value, message;
  } kCases[] = {
      {"normalizer", R"({"type":"Nmt"})", "normalizer: the normalizer 'Nmt' is not supported"},
      {"normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"X"}]})", "normalizer.normalizers[1]: the normalizer 'X'"},
      {"pre_tokenizer", R"({"type":"Metaspace"})", "pre_tokenizer: the pre-tokenizer 'Metaspace' is not supported"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"a(("},"behavior":"Isolated"})", "pre_tokenizer.pattern: the pattern 'a(('"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated"})", "'&&' inside a class"},
      {"pre_tokenizer", "null", "no ByteLevel step"},
      {"post_processor", R"({"type":"Odd"})", "post_processor: the post-processor 'Odd' is not supported"},
      {"decoder", R"({"type":"WordPiece"})", "decoder: the decoder 'WordPiece' is not supported"},
      {"model", R"({"type":"Unigram"})", "model: the model 'Unigram' is not supported"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":[["a","b"]]})", "model.merges[0]: the token 'b' is not in the vocabulary"},
      {"model", R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})", "share the id 0"},
      {"model", R"({"type":"BPE","vocab":{"a":-1},"merges":[]})", "model.vocab: an id from 0"},
      {"model", R"({"type":"BPE","vocab":{"a":99999999},"merges":[]})", "model.vocab: an id from 0"},
      {"model", R"({"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1})", "model.dropout: only null"},
      {"added_tokens", R"([{"id":3}])", "added_tokens[0].content: a string is expected"},
      {"added_tokens", "7", "added_tokens: a list is expected"},
  };
  for (const auto& c : kCases) {
    const auto t = Tokenizer::parse(with(c.key, c.value), "test.json");
    ASSERT_FALSE(t.ok()) << c.message;
    EXPECT_NE(t.error().message.find(c.message), std::string::npos) << t.error().message;
    EXPECT_EQ(t.error().message.find("test.json: "), 0U);
  }
  EXPECT_TRUE(Tokenizer::parse(with("normalizer", "null"), "test.json").ok());
  EXPECT_FALSE(Tokenizer::parse(std::string(1000, '['), "test.json").ok());
  EXPECT_FALSE(Tokenizer::parse("", "test.json").ok());
  EXPECT_FALSE(Tokenizer::load("/does/not/exist").ok());
}

TEST(TokenizerJson, BytesThatTheVocabularyLacksVanishOrAreUnknown) {
  const auto without = Tokenizer::parse(with("normalizer", "null"), "t");
  EXPECT_EQ(encode(*without, "axbab"), (std::vector<int32_t>{2, 2}));  // what is left stands side by side
  const auto unknown = Tokenizer::parse(with("model", R"({"vocab":{"a":0,"b":1,"ab":2,"?":3},"merges":["a b"],"unk_token":"?"})"), "t");
  ASSERT_TRUE(unknown.ok()) << unknown.error().message;
  EXPECT_EQ(encode(*unknown, "axyb"), (std::vector<int32_t>{0, 3, 3, 1}));
}

}  // namespace
}  // namespace baton::text
