// baton tokenize: text to token ids and back.
#include <fmt/format.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <cstring>
#include <memory>

#include "app/commands.h"
#include "app/id_list.h"
#include "base/file.h"
#include "text/tokenizer.h"

namespace baton::app {
namespace {

constexpr auto kMostInputBytes = static_cast<int64_t>(text::Tokenizer::kMostTextBytes);

struct Arguments {
  std::string tokenizer;
  std::string text;
  std::string file;
  bool has_text = false;
  bool decode = false;
  bool no_special = false;
  bool add_special = false;
  bool json = false;
};

Result<std::string> read_stdin() {
  std::string content;
  char part[1 << 16];
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{Error::Kind::kIo, fmt::format("cannot read standard input: {}", std::strerror(errno))};
    if (n == 0) return content;
    content.append(part, static_cast<size_t>(n));
    if (static_cast<int64_t>(content.size()) > kMostInputBytes)
      return Error{Error::Kind::kExhausted, fmt::format("standard input is larger than the {} bytes that are accepted", kMostInputBytes)};
  }
}

Result<std::string> read_input(const Arguments& a) {
  if (a.has_text) return a.text;
  if (!a.file.empty()) return read_file(a.file, kMostInputBytes);
  return read_stdin();
}

void write(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Status decode(const Arguments& a, const text::Tokenizer& tokenizer, std::string_view input) {
  const std::string where = a.has_text ? "--text" : a.file.empty() ? "standard input" : a.file;
  BATON_ASSIGN(const std::vector<int32_t> ids, parse_id_list(input, where));
  const std::string text = tokenizer.decode(ids, a.no_special);
  if (a.json)
    write(boost::json::serialize(boost::json::object{{"text", text}}) + "\n");
  else
    write(text);  // as it is: without a line end of our own
  return {};
}

Status encode(const Arguments& a, const text::Tokenizer& tokenizer, std::string_view input) {
  const text::EncodeOptions options{.added_tokens = a.no_special ? text::AddedTokens::kNone : text::AddedTokens::kAll,
                                    .add_special_tokens = a.add_special};
  BATON_ASSIGN(const std::vector<int32_t> ids, tokenizer.encode(input, options));
  if (!a.json) {
    std::string line;
    for (const int32_t id : ids) fmt::format_to(std::back_inserter(line), "{}{}", line.empty() ? "" : ",", id);
    write(line + "\n");
    return {};
  }
  boost::json::array id_list, tokens;
  for (const int32_t id : ids) {
    id_list.push_back(id);
    tokens.emplace_back(tokenizer.token(id).value_or(""));
  }
  write(boost::json::serialize(boost::json::object{{"ids", std::move(id_list)}, {"tokens", std::move(tokens)}}) + "\n");
  return {};
}

Status tokenize(const Arguments& a) {
  BATON_ASSIGN(const text::Tokenizer tokenizer, text::Tokenizer::load(a.tokenizer));
  BATON_ASSIGN(const std::string input, read_input(a));
  return a.decode ? decode(a, tokenizer, input) : encode(a, tokenizer, input);
}

}  // namespace

void add_tokenize(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("tokenize", "Turn text into token ids, or ids into text");
  c->add_option("--tokenizer", a->tokenizer, "tokenizer.json, or a folder that holds one")->required();
  CLI::Option* text = c->add_option("--text", a->text, "The input; without --text and --file it is read from standard input");
  c->add_option("--file", a->file, "File with the input")->excludes(text);
  c->add_flag("--decode", a->decode, "The input is token ids, separated by commas or white space");
  c->add_flag("--no-special", a->no_special, "Encoding: added tokens in the text stay text. Decoding: special tokens are left out");
  c->add_flag("--add-special", a->add_special, "Encoding: add what the tokenizer's post-processor puts around a text");
  c->add_flag("--json", a->json, "Print JSON: ids and their tokens, or the text");
  c->callback([a, text, &exit_code] {
    a->has_text = text->count() > 0;
    exit_code = finish(tokenize(*a));
  });
}

}  // namespace baton::app
