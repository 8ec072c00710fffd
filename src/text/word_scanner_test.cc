// The hand-written word rules against the patterns that they stand for.
#include "text/word_scanner.h"

#include <gtest/gtest.h>

#include <random>

#include "text/regex.h"

namespace baton::text {
namespace {

template <WordRule kRule>
std::vector<size_t> scanned(std::string_view text) {
  const WordScanner<kRule> scanner(text);
  std::vector<size_t> ends;
  for (const char* p = text.data(); p < text.data() + text.size();) {
    p = scanner.next(p);
    ends.push_back(static_cast<size_t>(p - text.data()));
  }
  return ends;
}

std::vector<size_t> matched(const Regex& pattern, std::string_view text) {
  std::vector<TextRange> matches;
  EXPECT_TRUE(pattern.find_all(text, matches).ok());
  std::vector<size_t> ends;
  size_t at = 0;
  for (const TextRange& m : matches) {
    EXPECT_EQ(m.begin, at);  // the rules leave no gaps
    ends.push_back(at = m.end);
  }
  EXPECT_EQ(at, text.size());
  return ends;
}

template <WordRule kRule>
void compare(const std::vector<std::string>& texts) {
  auto pattern = Regex::compile(pattern_of(kRule));
  ASSERT_TRUE(pattern.ok()) << pattern.error().message;
  for (const std::string& text : texts) ASSERT_EQ(scanned<kRule>(text), matched(*pattern, text)) << '"' << text << '"';
}

void compare_all(const std::vector<std::string>& texts) {
  compare<WordRule::kTriples>(texts);
  compare<WordRule::kSingles>(texts);
  compare<WordRule::kGpt2>(texts);
}

TEST(WordScanner, EveryShortTextOfCharactersThatMatter) {
  const std::vector<std::string> alphabet = {"a", "S", "'", " ", "\n", "\r", "\t", "1", "!", "l", "é", "ſ", "\xC2\xA0", "\xCC\x81"};
  std::vector<std::string> texts = {""}, longer = {""};
  for (int length = 0; length < 4; ++length) {
    std::vector<std::string> next;
    for (const std::string& text : longer)
      for (const std::string& c : alphabet) next.push_back(text + c);
    texts.insert(texts.end(), next.begin(), next.end());
    longer = std::move(next);
  }
  texts.erase(texts.begin());
  compare_all(texts);
}

TEST(WordScanner, EveryCharacterBetweenOthers) {
  std::vector<std::string> texts;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c == 0xD800) c = 0xE000;
    // Assigned characters lie in the first planes; of the others, some.
    if (c > 0x33480 && c < 0xE0000 && c % 97 != 0) continue;
    if (c > 0xE0200 && c % 997 != 0) continue;
    std::string text = "a";
    for (const char* between : {"'", " ", "1", "\n", "!"}) {
      append_utf8(text, c);
      text += between;
    }
    texts.push_back(std::move(text));
  }
  compare_all(texts);
}

TEST(WordScanner, RandomTexts) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const std::vector<std::string> pieces = {"'ll", "'RE", "'d",     "hello", "WORLD", "  ", "\r\n",        "\n\n",
                                           "12",  "...", "日本語", "Ж",     "٣",     "x",  "\xE2\x80\xA8"};
  std::vector<std::string> texts;
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    // Runs of all lengths, so that every step of the vector loop ends somewhere.
    for (size_t n = 1 + random() % 12; n > 0; --n) {
      const std::string& piece = pieces[random() % pieces.size()];
      for (size_t repeat = random() % 8 == 0 ? random() % 80 : 1; repeat > 0; --repeat) text += piece;
    }
    if (!text.empty()) texts.push_back(std::move(text));
  }
  compare_all(texts);
}

TEST(WordScanner, KnowsItsPatternsOnly) {
  for (const WordRule rule : {WordRule::kTriples, WordRule::kSingles, WordRule::kGpt2}) EXPECT_EQ(word_rule_of(pattern_of(rule)), rule);
  EXPECT_EQ(word_rule_of(R"(\p{L}+)"), std::nullopt);
}

TEST(Regex, FollowsOnigurumasTables) {
  const auto count = [](std::string_view pattern, std::string_view text) {
    auto regex = Regex::compile(pattern);
    EXPECT_TRUE(regex.ok()) << regex.error().message;
    std::vector<TextRange> matches;
    EXPECT_TRUE(regex->find_all(text, matches).ok());
    return matches.size();
  };
  EXPECT_EQ(count(R"(\s)", "\x1C\xC2\x85\xE1\xA0\x8E\xE2\x80\x8B "), 2U);  // U+0085 and the space
  EXPECT_EQ(count(R"([^\S])", "a b"), 1U);
  EXPECT_EQ(count(R"(\p{Letter}|\p{^L})", "a1"), 2U);
  EXPECT_EQ(count(R"(\w+)", "e\xCC\x81_1 x"), 2U);
  EXPECT_EQ(count("^a", "a\na"), 2U);
  EXPECT_EQ(count("x*", "axxb"), 3U);  // in front of a, xx, behind b; directly behind a match an empty one is none
  for (const std::string_view bad : {"[[a]]", "[a&&b]", R"(\h)", R"(\K)", R"(\C)", R"(a\b)", "(", R"(\p{Nonsense})", R"(\pL)", "\\"})
    EXPECT_FALSE(Regex::compile(bad).ok()) << bad;
  EXPECT_FALSE(Regex::compile(std::string(1000, '(') + std::string(1000, ')')).ok());
}

TEST(Regex, StopsAPatternThatTakesTooLong) {
  auto regex = Regex::compile("(a|a)+c");
  ASSERT_TRUE(regex.ok());
  std::vector<TextRange> matches;
  EXPECT_FALSE(regex->find_all(std::string(64, 'a') + "bc", matches).ok());
}

}  // namespace
}  // namespace baton::text
