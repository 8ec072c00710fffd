// tokenizer_check PATH...: holds the tokenizer against recorded results of the reference; prints a table, exits 1 on a difference.
// A path is a folder or one of its files: cases.jsonl[.gz] (encode, decode, decode_stream), NAME.ids.json beside NAME.txt[.gz] (sums over a
// long text), unicode_classes.json. Tokenizers lie beside them. The formats stand in tests/text/README.md.
#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "text/checker_main.h"
#include "text/detokenizer.h"
#include "text/fixture_file.h"
#include "text/sha256.h"
#include "text/unicode_classes.h"

namespace baton::text {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// Their results depend on which version of Unicode a library was built with.
const std::set<std::string_view> kVersionTags = {"unicode-new", "unassigned", "nonchar", "nfc-version"};
constexpr int kShownDifferences = 20;

struct Row {
  int64_t checks = 0, different = 0, tolerated = 0;
};

class Check {
 public:
  Status run(const fs::path& path) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) return run_file(path);
    std::set<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path, ignored)) files.insert(entry.path());
    int known = 0;
    for (const fs::path& file : files)
      if (is_known(file)) {
        BATON_TRY(run_file(file));
        ++known;
      }
    if (known == 0) return Error{Error::Kind::kNotFound, fmt::format("{}: no fixtures of tokenizers", path.string())};
    return {};
  }

  // The exit code.
  int report() const {
    fmt::print("{:<16}{:<24}{:>10}{:>10}{:>10}\n", "tokenizer", "what", "checks", "different", "tolerated");
    int64_t checks = 0, different = 0;
    for (const auto& [key, row] : rows_) {
      fmt::print("{:<16}{:<24}{:>10}{:>10}{:>10}\n", key.first, key.second, row.checks, row.different, row.tolerated);
      checks += row.checks;
      different += row.different;
    }
    fmt::print("{} checks, {} different\n", checks, different);
    return different == 0 && checks > 0 ? 0 : 1;
  }

 private:
  static bool is_cases(const std::string& name) { return name.starts_with("cases.jsonl"); }
  static bool is_known(const fs::path& file) {
    const std::string name = file.filename().string();
    return is_cases(name) || name.ends_with(".ids.json") || name == "unicode_classes.json";
  }

  Status run_file(const fs::path& file) {
    const std::string name = file.filename().string();
    folder_ = file.parent_path();
    if (name.ends_with(".ids.json")) return check_corpus(file);
    if (name == "unicode_classes.json") return check_classes(file);
    return check_cases(file);
  }

  Result<const Tokenizer*> tokenizer(std::string_view name) {
    const fs::path path = folder_ / fmt::format("{}.json", name);
    auto at = tokenizers_.find(path);
    if (at == tokenizers_.end()) {
      BATON_ASSIGN(Tokenizer loaded, Tokenizer::load(path));
      at = tokenizers_.emplace(path, std::move(loaded)).first;
    }
    return &at->second;
  }

  void count(std::string_view tokenizer, std::string_view what, bool equal, std::string_view id, std::string_view tag,
             const std::string& difference) {
    Row& row = rows_[{std::string(tokenizer), std::string(what)}];
    ++row.checks;
    if (equal) return;
    const bool tolerated = kVersionTags.contains(tag);
    ++(tolerated ? row.tolerated : row.different);
    if (!tolerated && shown_++ < kShownDifferences) fmt::print("{} {} ({}), {}: {}\n", what, id, tag, tokenizer, difference);
  }

  static std::vector<int32_t> ids_of(const json::value& list) { return json::value_to<std::vector<int32_t>>(list); }

  static std::string text_of(const json::object& c) {
    if (const json::value* text = c.if_contains("text")) return std::string(text->as_string());
    std::string text;
    for (const json::value& part : c.at("text_parts").as_array())
      for (int64_t n = part.as_array().at(1).as_int64(); n > 0; --n) text += std::string_view(part.as_array().at(0).as_string());
    return text;
  }

  Status check_cases(const fs::path& file) {
    BATON_ASSIGN(const auto cases, read_json_lines(file));
    for (const json::object& c : cases) {
      const std::string_view kind = c.at("kind").as_string();
      if (kind == "encode")
        BATON_TRY(check_encode(c));
      else if (kind == "decode" || kind == "decode_stream")
        BATON_TRY(check_decode(c, kind));
      else
        return Error{Error::Kind::kUnsupported, fmt::format("{}: cases of the kind '{}' are not known", file.string(), kind)};
    }
    return {};
  }

  Status check_encode(const json::object& c) {
    EncodeOptions options;
    options.add_special_tokens = c.at("add_special_tokens").as_bool();
    if (c.at("special_as_text").as_bool()) options.added_tokens = AddedTokens::kNotSpecial;
    const std::string text = text_of(c);
    std::string raw;  // the same before broken parts were replaced
    if (const json::value* bytes = c.if_contains("bytes_b64")) raw = from_base64(bytes->as_string());
    for (const auto& [name, wanted] : c.at("ids").as_object()) {
      BATON_ASSIGN(const Tokenizer* t, tokenizer(name));
      const std::vector<int32_t> expected = ids_of(wanted);
      const auto compare = [&](std::string_view what, std::string_view input) -> Status {
        BATON_ASSIGN(const std::vector<int32_t> ids, t->encode(input, options));
        count(name, what, ids == expected, c.at("id").as_string(), c.at("tag").as_string(),
              fmt::format("{} ids, expected {}: {}", ids.size(), expected.size(), shown(ids, expected)));
        return {};
      };
      BATON_TRY(compare("encode", text));
      if (!raw.empty()) BATON_TRY(compare("encode, raw bytes", raw));
    }
    return {};
  }

  Status check_decode(const json::object& c, std::string_view kind) {
    const std::string_view name = c.at("tokenizer").as_string();
    BATON_ASSIGN(const Tokenizer* t, tokenizer(name));
    const std::vector<int32_t> ids = ids_of(c.at("ids"));
    const bool skip = c.at("skip_special_tokens").as_bool();
    const std::string_view wanted = c.at("text").as_string();
    const auto compare = [&](std::string_view what, const std::string& text) {
      count(name, what, text == wanted, c.at("id").as_string(), c.at("tag").as_string(), fmt::format("'{}', expected '{}'", text, wanted));
    };
    compare(kind, t->decode(ids, skip));
    Detokenizer stream(*t, skip);
    std::string text;
    for (const int32_t id : ids) stream.add(id, text);
    stream.finish(text);
    compare(fmt::format("{}, by one id", kind), text);
    return {};
  }

  Status check_corpus(const fs::path& file) {
    BATON_ASSIGN(const std::string description, read_fixture(file));
    const json::value value = json::parse(description);
    std::string stem = file.filename().string();
    stem.resize(stem.size() - std::string_view(".ids.json").size());
    fs::path text_path = folder_ / (stem + ".txt");
    if (!fs::exists(text_path)) text_path += ".gz";
    BATON_ASSIGN(const std::string text, read_fixture(text_path));
    for (const auto& [name, sums] : value.at("tokenizers").as_object()) {
      BATON_ASSIGN(const Tokenizer* t, tokenizer(name));
      BATON_ASSIGN(const std::vector<int32_t> whole, t->encode(text));
      compare_sum(name, stem + ", whole", "whole", whole, sums.at("whole"));
      BATON_TRY(check_lines(*t, name, stem, text, sums.at("by_line")));
    }
    return {};
  }

  Status check_lines(const Tokenizer& t, std::string_view name, const std::string& stem, std::string_view text, const json::value& sums) {
    std::vector<std::string_view> lines;
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    std::vector<int32_t> all;
    for (const json::value& block : sums.at("blocks").as_array()) {
      std::vector<int32_t> ids;
      const json::array& range = block.at("lines").as_array();
      for (auto i = static_cast<size_t>(range.at(0).as_int64()); i < static_cast<size_t>(range.at(1).as_int64()) && i < lines.size(); ++i) {
        BATON_ASSIGN(const std::vector<int32_t> line, t.encode(lines[i]));
        ids.insert(ids.end(), line.begin(), line.end());
      }
      compare_sum(name, stem + ", lines", fmt::format("lines from {}", range.at(0).as_int64()), ids, block);
      all.insert(all.end(), ids.begin(), ids.end());
    }
    compare_sum(name, stem + ", lines", "all lines", all, sums);
    return {};
  }

  void compare_sum(std::string_view name, const std::string& what, const std::string& id, const std::vector<int32_t>& ids,
                   const json::value& wanted) {
    const bool equal = static_cast<int64_t>(ids.size()) == wanted.at("count").as_int64() &&
                       sha256(std::as_bytes(std::span(ids))) == std::string_view(wanted.at("sha256").as_string());
    count(name, what, equal, id, "corpus", fmt::format("{} ids, expected {}", ids.size(), wanted.at("count").as_int64()));
  }

  Status check_classes(const fs::path& file) {
    BATON_ASSIGN(const std::string content, read_fixture(file));
    const json::value value = json::parse(content);
    constexpr std::array<std::pair<std::string_view, uint8_t>, 4> kClasses = {
        {{"letter", kLetter}, {"number", kNumber}, {"space", kSpace}, {"word", kWordPart}}};
    for (const auto& [name, bit] : kClasses) {
      std::vector<bool> wanted(0x110000);
      for (const json::value& range : value.at(name).as_array())
        for (int64_t c = range.as_array().at(0).as_int64(); c <= range.as_array().at(1).as_int64(); ++c)
          wanted[static_cast<size_t>(c)] = true;
      char32_t first = 0;
      bool equal = true;
      for (char32_t c = 0; c < wanted.size() && equal; ++c) {
        equal = ((UnicodeClasses::get().of(c) & bit) != 0) == wanted[c];
        first = c;
      }
      count("-", "unicode classes", equal, name, "class", fmt::format("U+{:04X}", static_cast<uint32_t>(first)));
    }
    return {};
  }

  static std::string shown(const std::vector<int32_t>& ids, const std::vector<int32_t>& expected) {
    const auto first = static_cast<size_t>(std::mismatch(ids.begin(), ids.end(), expected.begin(), expected.end()).first - ids.begin());
    const auto some = [&](const std::vector<int32_t>& list) {
      std::string text;
      for (size_t i = first; i < std::min(first + 8, list.size()); ++i) text += fmt::format(" {}", list[i]);
      return text;
    };
    return fmt::format("from {} on{}, expected{}", first, some(ids), some(expected));
  }

  static std::string from_base64(std::string_view text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    uint32_t bits = 0;
    int have = 0;
    for (const char c : text) {
      const size_t digit = kDigits.find(c);
      if (digit == std::string_view::npos) break;
      bits = bits << 6 | static_cast<uint32_t>(digit);
      have += 6;
      if (have >= 8) bytes += static_cast<char>(bits >> (have -= 8) & 0xFF);
    }
    return bytes;
  }

  fs::path folder_;
  std::map<fs::path, Tokenizer> tokenizers_;
  std::map<std::pair<std::string, std::string>, Row> rows_;
  int shown_ = 0;
};

}  // namespace
}  // namespace baton::text

int main(int argc, char** argv) { return baton::text::checker_main<baton::text::Check>("tokenizer_check", argc, argv); }
