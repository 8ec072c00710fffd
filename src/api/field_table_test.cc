// Every row of every table, by what it promises; and the page that shows them.
#include "api/field_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "api/chat.h"
#include "api/completion.h"
#include "api/endpoints.h"
#include "api/generate.h"
#include "api/messages.h"
#include "api/reference.h"
#include "api/responses.h"
#include "api/tokenize.h"
#include "base/file.h"

namespace baton::api {
namespace {

struct Endpoint {
  const char* name;
  std::vector<std::span<const Field>> groups;
  std::vector<std::pair<std::string_view, std::string_view>> least;  // members that every body has
  std::string_view before;                                           // and what stands around the field under test
  std::string_view after;
  std::function<std::optional<ApiError>(std::string_view)> parse;
};

template <class F>
auto error_of(F parse) {
  return [parse](std::string_view body) -> std::optional<ApiError> {
    const auto r = parse(body, ParseLimits{});
    if (r.ok()) return {};
    return r.error();
  };
}

std::vector<Endpoint> endpoints() {
  constexpr std::pair<std::string_view, std::string_view> kHello = {"messages", R"([{"role":"user","content":"a"}])"};
  return {{"chat", chat_groups(), {kHello}, "", "", error_of(parse_chat)},
          {"completions", completion_groups(), {{"prompt", "\"a\""}}, "", "", error_of(parse_completion)},
          {"messages", messages_groups(), {{"max_tokens", "5"}, kHello}, "", "", error_of(parse_messages)},
          {"count_tokens", count_tokens_groups(), {kHello}, "", "", error_of(parse_count_tokens)},
          {"responses", responses_groups(), {{"input", "\"a\""}}, "", "", error_of(parse_responses)},
          {"generate", generate_groups(), {{"text", "\"a\""}}, "", "", error_of(parse_generate)},
          {"sampling_params", generate_sampling_groups(), {{"text", "\"a\""}}, R"("sampling_params":{)", "}", error_of(parse_generate)},
          {"tokenize", tokenize_groups(), {{"prompt", "\"a\""}}, "", "", error_of(parse_tokenize)},
          {"detokenize", detokenize_groups(), {{"tokens", "[1]"}}, "", "", error_of(parse_detokenize)}};
}

bool has_least(const Endpoint& e, std::string_view field) {
  return e.before.empty() && std::any_of(e.least.begin(), e.least.end(), [&](const auto& m) { return m.first == field; });
}

// The error of a body with the field set so.
std::optional<ApiError> with(const Endpoint& e, std::string_view field, std::string_view value) {
  std::string body = "{";
  for (const auto& [name, least] : e.least)
    if (name != field || !e.before.empty()) body += fmt::format("\"{}\":{},", name, least);
  return e.parse(fmt::format("{}{}\"{}\":{}{}}}", body, e.before, field, value, e.after));
}

// Calls f(endpoint, field, full name) for the rows that count: the first of a name.
void for_each_field(const std::function<void(const Endpoint&, const Field&, const std::string&)>& f) {
  for (const Endpoint& e : endpoints()) {
    std::vector<std::string_view> names;
    for (const auto group : e.groups)
      for (const Field& field : group) {
        if (std::find(names.begin(), names.end(), field.name) != names.end()) continue;
        names.push_back(field.name);
        const std::string path = fmt::format("{}{}", e.before.empty() ? "" : "sampling_params.", field.name);
        SCOPED_TRACE(fmt::format("{}: {}", e.name, path));
        f(e, field, path);
      }
  }
}

TEST(FieldTable, RowsAreComplete) {
  for_each_field([](const Endpoint&, const Field& field, const std::string&) {
    EXPECT_FALSE(field.what.empty());
    EXPECT_EQ(field.read != nullptr, field.use == Use::kTaken);
    EXPECT_EQ(field.type.empty(), field.use != Use::kTaken);
    EXPECT_TRUE(field.harmless.empty() || field.use == Use::kRefused);
  });
}

TEST(FieldTable, NullIsNotGiven) {
  for_each_field([](const Endpoint& e, const Field& field, const std::string&) {
    if (has_least(e, field.name)) return;
    const auto error = with(e, field.name, "null");
    EXPECT_FALSE(error) << error->message;
  });
}

TEST(FieldTable, WhatIsRefusedIsRefusedByName) {
  int refused_fields = 0;
  for_each_field([&](const Endpoint& e, const Field& field, const std::string& path) {
    if (field.use != Use::kRefused) return;
    ++refused_fields;
    const auto error = with(e, field.name, R"(["something"])");
    ASSERT_TRUE(error);
    EXPECT_EQ(error->param, path);
    EXPECT_EQ(error->code, "unsupported_parameter");
    EXPECT_EQ(error->message, fmt::format("{}: {}", path, field.what));
    if (field.harmless.empty()) return;
    const auto none = with(e, field.name, field.harmless);
    EXPECT_FALSE(none) << none->message;
  });
  EXPECT_GT(refused_fields, 50);
}

TEST(FieldTable, WhatHasNoEffectIsTaken) {
  for_each_field([&](const Endpoint& e, const Field& field, const std::string&) {
    if (field.use != Use::kNoEffect) return;
    const auto error = with(e, field.name, R"({"any":["thing"]})");
    EXPECT_FALSE(error) << error->message;
  });
}

TEST(FieldTable, RangesHold) {
  for_each_field([&](const Endpoint& e, const Field& field, const std::string& path) {
    if (field.use != Use::kTaken || field.range.least >= field.range.most) return;
    const Range r = field.range;
    for (const double wrong : {r.least - 1, r.most + 1, 1e300, -1e300}) {
      const auto error = with(e, field.name, fmt::format("{:.0f}", wrong));
      ASSERT_TRUE(error) << wrong;
      EXPECT_EQ(error->param, path);
    }
    EXPECT_EQ(with(e, field.name, fmt::format("{:.0f}", r.least)).has_value(), r.open);
    // More than max_tokens, where the least body has few.
    if (field.name != "min_tokens" && field.name != "min_new_tokens") {
      EXPECT_FALSE(with(e, field.name, fmt::format("{:.0f}", r.most)));
    }
    for (const char* wrong : {"true", "\"1\"", "[]", "{}", "NaN", "Infinity"}) EXPECT_TRUE(with(e, field.name, wrong)) << wrong;
  });
}

// What is in range as it is written, but not as it is stored.
TEST(FieldTable, WhatUnderflowsIsOutOfAnOpenRange) {
  int fields = 0;
  for_each_field([&](const Endpoint& e, const Field& field, const std::string& path) {
    if (field.use != Use::kTaken || !field.range.open) return;
    ++fields;
    EXPECT_FALSE(with(e, field.name, "1e-45"));
    for (const char* tiny : {"1e-46", "1e-300", "5e-324", "1e-400"}) {
      const auto error = with(e, field.name, tiny);
      ASSERT_TRUE(error) << tiny;
      EXPECT_EQ(error->param, path);
    }
  });
  EXPECT_GE(fields, 8);
}

// What is wrong with two fields together is said of those that the client gave.
TEST(FieldTable, FieldsThatDisagreeAreNamedAsTheyWereGiven) {
  int pairs = 0;
  for (const Endpoint& e : endpoints()) {
    const auto has = [&](std::string_view name) {
      for (const auto group : e.groups)
        for (const Field& field : group)
          if (field.name == name) return field.use == Use::kTaken;
      return false;
    };
    for (const char* least : {"min_tokens", "min_new_tokens"})
      for (const char* most : {"max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens"}) {
        if (!has(least) || !has(most)) continue;
        ++pairs;
        const std::string path = e.before.empty() ? "" : "sampling_params.";
        std::string body = "{";
        for (const auto& [name, value] : e.least)
          if (name != most) body += fmt::format("\"{}\":{},", name, value);
        if (e.name == std::string_view("chat")) body += R"("reasoning":{"max_tokens":7},)";
        const auto error = e.parse(fmt::format("{}{}\"{}\":5,\"{}\":3{}}}", body, e.before, least, most, e.after));
        ASSERT_TRUE(error) << e.name << least << most;
        EXPECT_EQ(error->param, path + least);
        EXPECT_EQ(error->message, fmt::format("{0}{1}: is 5, which is more than {0}{2}, 3", path, least, most));
      }
  }
  EXPECT_GE(pairs, 10);
}

TEST(FieldTable, WrongTypesAreRefusedByName) {
  for_each_field([&](const Endpoint& e, const Field& field, const std::string& path) {
    if (field.use != Use::kTaken) return;
    const bool takes_numbers = field.type.find("integer") != std::string_view::npos || field.type.find("number") != std::string_view::npos;
    const auto error = with(e, field.name, takes_numbers ? "\"x\"" : "7.5");
    ASSERT_TRUE(error);
    EXPECT_EQ(error->param.substr(0, path.size()), path);
    EXPECT_FALSE(error->message.empty());
  });
}

TEST(FieldTable, ThePageShowsTheTables) {
  const std::string path = BATON_DOCS "/api.md";
  const auto page = read_regular_file(path, 1 << 20);
  ASSERT_TRUE(page.ok()) << page.error().message;
  const auto anew = with_reference(*page);
  ASSERT_TRUE(anew.ok()) << anew.error().message;
  if (std::getenv("BATON_WRITE_DOCS") != nullptr) {
    auto file = PendingFile::create(path);
    ASSERT_TRUE(file.ok() && file->write(*anew).ok() && file->commit().ok());
    return;
  }
  EXPECT_TRUE(*page == *anew) << "docs/api.md shows other fields than the tables; BATON_WRITE_DOCS=1 and this test write it anew";
}

}  // namespace
}  // namespace baton::api
