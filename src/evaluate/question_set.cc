#include "evaluate/question_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "base/file.h"

namespace baton::evaluate {
namespace {

namespace json = boost::json;

constexpr int64_t kMostFileBytes = int64_t{1} << 30;
constexpr std::array<std::string_view, 6> kCheckNames = {"number", "text", "contains", "json", "tools", "none"};

uint64_t fnv(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

// One line, with what the lines before it defined.
class Line {
 public:
  Line(const json::object& object, std::string where, std::map<std::string, std::string>& texts)
      : object_(object), where_(std::move(where)), texts_(texts) {}

  bool defines_text() const { return object_.contains("text"); }
  Status define() {
    const json::value& name = object_.at("text");
    const json::value* value = object_.if_contains("value");
    if (!name.is_string() || value == nullptr || !value->is_string()) return wrong("\"text\" and \"value\" are not both text");
    texts_[std::string(name.as_string())] = std::string(value->as_string());
    return {};
  }

  Result<Question> question(const std::string& default_task) {
    Question q;
    q.id = where_;
    q.task = default_task;
    BATON_TRY(text("task", q.task));
    BATON_TRY(text("group", q.group));
    if (q.task.empty()) return wrong("\"task\" is empty");
    if (const json::value* length = object_.if_contains("length")) {
      if (!length->is_int64() || length->as_int64() < 0) return wrong("\"length\" is not a whole number of tokens");
      q.length = length->as_int64();
    }
    BATON_TRY(object_.contains("question") ? gsm8k(q) : chat(q));
    q.fingerprint = fnv(json::serialize(q.request) + std::string(name_of(q.check)) + json::serialize(q.answer));
    return q;
  }

 private:
  Error wrong(std::string_view what) const { return {Error::Kind::kInvalid, fmt::format("{}: {}", where_, what)}; }

  Status text(std::string_view key, std::string& out) const {
    const json::value* v = object_.if_contains(key);
    if (v == nullptr) return {};
    if (!v->is_string()) return wrong(fmt::format("\"{}\" is not text", key));
    out = std::string(v->as_string());
    return {};
  }

  Status gsm8k(Question& q) const {
    std::string asked, answer;
    BATON_TRY(text("question", asked));
    BATON_TRY(text("answer", answer));
    const size_t mark = answer.rfind("####");
    if (mark == std::string::npos) return wrong("\"answer\" holds no \"####\" with the number behind it");
    q.check = Check::kNumber;
    q.answer = answer.substr(mark + 4);
    q.request["messages"] = json::array{json::object{{"role", "user"}, {"content", asked}}};
    return {};
  }

  Status chat(Question& q) {
    const json::value* messages = object_.if_contains("messages");
    if (messages == nullptr || !messages->is_array() || messages->as_array().empty())
      return wrong("there is neither a \"question\" nor a list of \"messages\"");
    const json::value* check = object_.if_contains("check");
    if (check == nullptr || !check->is_string()) return wrong("\"check\" is missing: number, text, contains, json, tools or none");
    const auto found = std::find(kCheckNames.begin(), kCheckNames.end(), std::string_view(check->as_string()));
    if (found == kCheckNames.end())
      return wrong(
          fmt::format("\"check\" is \"{}\"; there are number, text, contains, json, tools and none", std::string_view(check->as_string())));
    q.check = static_cast<Check>(found - kCheckNames.begin());
    BATON_TRY(take_answer(q));
    json::array asked;
    for (const json::value& m : messages->as_array()) {
      if (!m.is_object()) return wrong("a message is not an object");
      json::object message = m.as_object();
      BATON_TRY(join_content(message));
      asked.emplace_back(std::move(message));
    }
    q.request["messages"] = std::move(asked);
    if (const json::value* tools = object_.if_contains("tools"); tools != nullptr && !tools->is_null()) {
      if (!tools->is_array()) return wrong("\"tools\" is not a list");
      q.request["tools"] = *tools;
    }
    return {};
  }

  Status take_answer(Question& q) const {
    const json::value* answer = object_.if_contains("answer");
    if (q.check == Check::kNone) return {};
    if (answer == nullptr) return wrong("\"answer\" is missing");
    const bool number = q.check == Check::kNumber && answer->is_number();
    if (q.check <= Check::kContains && !answer->is_string() && !number) return wrong("\"answer\" is not text");
    if (q.check == Check::kTools) {
      if (!answer->is_array()) return wrong("\"answer\" is not a list of calls");
      for (const json::value& call : answer->as_array()) {
        const json::object* o = call.if_object();
        const json::value* name = o != nullptr ? o->if_contains("name") : nullptr;
        const json::value* arguments = o != nullptr ? o->if_contains("arguments") : nullptr;
        if (name == nullptr || !name->is_string() || arguments == nullptr || !arguments->is_object())
          return wrong("\"answer\" holds a call without a \"name\" or an object of \"arguments\"");
      }
    }
    q.answer = number ? json::value(json::serialize(*answer)) : *answer;
    return {};
  }

  // A content made of pieces becomes text; parts of the chat API (objects) stay as they are.
  Status join_content(json::object& message) const {
    json::value* content = message.if_contains("content");
    if (content == nullptr || !content->is_array()) return {};
    std::string joined;
    for (const json::value& piece : content->as_array()) {
      if (piece.is_object()) return {};
      if (piece.is_string()) {
        joined += std::string_view(piece.as_string());
        continue;
      }
      BATON_TRY(append_stretch(piece, joined));
    }
    *content = joined;
    return {};
  }

  Status append_stretch(const json::value& piece, std::string& joined) const {
    const json::array* a = piece.if_array();
    if (a == nullptr || a->size() != 3 || !(*a)[0].is_string() || !(*a)[1].is_int64() || !(*a)[2].is_int64())
      return wrong("a piece of a content is neither text nor [name, begin, end]");
    const auto found = texts_.find(std::string((*a)[0].as_string()));
    if (found == texts_.end()) return wrong(fmt::format("no line before defines the text \"{}\"", std::string_view((*a)[0].as_string())));
    const int64_t begin = (*a)[1].as_int64(), end = (*a)[2].as_int64();
    if (begin < 0 || end < begin || end > static_cast<int64_t>(found->second.size()))
      return wrong(fmt::format("bytes {} to {} lie outside the text \"{}\", which has {}", begin, end, found->first, found->second.size()));
    joined.append(found->second, static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    return {};
  }

  const json::object& object_;
  std::string where_;
  std::map<std::string, std::string>& texts_;
};

}  // namespace

std::string_view name_of(Check check) { return kCheckNames.at(static_cast<size_t>(check)); }

Result<std::vector<Question>> parse_question_set(std::string_view jsonl, const std::string& name) {
  std::vector<Question> questions;
  std::map<std::string, std::string> texts;
  const std::string task = std::filesystem::path(name).stem().string();
  size_t number = 1;
  for (size_t begin = 0; begin < jsonl.size(); ++number) {
    const size_t end = std::min(jsonl.find('\n', begin), jsonl.size());
    const std::string_view row = jsonl.substr(begin, end - begin);
    begin = end + 1;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}:{}", name, number);
    boost::system::error_code failed;
    const json::value value = json::parse(json::string_view(row.data(), row.size()), failed);
    if (failed || !value.is_object())
      return Error{Error::Kind::kInvalid,
                   fmt::format("{}: {}", where, failed ? "is not JSON (" + failed.message() + ")" : std::string("is not a JSON object"))};
    Line line(value.as_object(), where, texts);
    if (line.defines_text()) {
      BATON_TRY(line.define());
      continue;
    }
    BATON_ASSIGN(Question q, line.question(task));
    questions.push_back(std::move(q));
  }
  if (questions.empty()) return Error{Error::Kind::kInvalid, fmt::format("{} holds no question", name)};
  return questions;
}

Result<std::vector<Question>> read_question_sets(const std::vector<std::string>& files, int64_t most) {
  std::vector<Question> all;
  std::set<std::string> names;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename().string();
    if (!names.insert(name).second)
      return Error{Error::Kind::kInvalid, fmt::format("{}: a file named {} was given before; rename one", file, name)};
    BATON_ASSIGN(const std::string text, read_file(file, kMostFileBytes));
    BATON_ASSIGN(std::vector<Question> questions, parse_question_set(text, name));
    const size_t count = most > 0 ? std::min(questions.size(), static_cast<size_t>(most)) : questions.size();
    for (size_t i = 0; i < count; ++i) all.push_back(std::move(questions[i * questions.size() / count]));
  }
  return all;
}

}  // namespace baton::evaluate
