// baton chat: a conversation in the terminal, with any server that speaks OpenAI's chat completions.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <csignal>
#include <cstdio>
#include <memory>

#include "app/chat_client.h"
#include "app/commands.h"
#include "app/console.h"
#include "app/line_reader.h"
#include "base/file.h"

namespace baton::app {
namespace {

constexpr int64_t kMostFileBytes = int64_t{64} << 20;
constexpr std::string_view kHelp =
    "/system TEXT      what the model is told before all else; without TEXT: nothing\n"
    "/set NAME VALUE   a field of the requests, such as temperature 0.7; without VALUE: the server's default again\n"
    "/again            drop the last answer and ask once more\n"
    "/reset            begin anew\n"
    "/save FILE        write the conversation; /load FILE reads it again\n"
    "/quit             or Ctrl-D; Ctrl-C stops an answer\n"
    "A line that ends with \\ goes on in the next one.\n";

struct Arguments {
  std::string base_url = "http://127.0.0.1:8000/v1";
  std::string model, system;
  std::vector<std::string> fields;  // name=value
  std::vector<std::string> words;
  bool no_reasoning = false;
};

std::atomic<bool> interrupted = false;

// While an answer comes, Ctrl-C stops that and nothing else.
class Interruptible {
 public:
  Interruptible() {
    interrupted = false;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = true; };
    sigaction(SIGINT, &action, &before_);
  }
  ~Interruptible() { sigaction(SIGINT, &before_, nullptr); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  struct sigaction before_ {};
};

// A model must not move the cursor or change the title of a terminal: control characters go, also those of two bytes (U+0080 to U+009F).
std::string harmless(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == 0xC2 && next >= 0x80 && next < 0xA0) {
      ++i;
      out += '?';
    } else {
      out += (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F ? '?' : text[i];
    }
  }
  return out;
}

// What is printed of an answer: its content on standard output, the rest dimmed on standard error, which scripts may drop.
class Screen {
 public:
  explicit Screen(bool reasoning) : reasoning_(reasoning), out_is_terminal_(isatty(1) == 1), err_is_terminal_(isatty(2) == 1) {}

  void piece(const ChatPiece& piece) {
    if (piece.reasoning) {
      if (!reasoning_) return;
      dim(true);
      print_error(harmless(piece.text));
      return;
    }
    if (dim_) print_error("\n\n");
    dim(false);
    const std::string text = out_is_terminal_ ? harmless(piece.text) : std::string(piece.text);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    at_line_end_ = text.ends_with('\n');
  }
  void end(const ChatAnswer& a) {
    finish_line();
    std::string line = fmt::format("{} tokens in{}, {} out", a.prompt_tokens,
                                   a.cached_tokens > 0 ? fmt::format(" ({} cached)", a.cached_tokens) : "", a.completion_tokens);
    if (a.completion_tokens > 1 && a.seconds > a.first_s)
      line += fmt::format(", the first after {:.2f} s, then {:.1f} a second", a.first_s,
                          static_cast<double>(a.completion_tokens - 1) / (a.seconds - a.first_s));
    if (a.finish == "stopped") line = "stopped";
    if (a.finish == "length") line += "; cut at its most tokens";
    if (!err_is_terminal_) return;
    dim(true);
    print_error("[" + line + "]\n");
    dim(false);
  }
  void finish_line() {
    if (dim_) print_error("\n");
    dim(false);
    if (!at_line_end_) std::fputs("\n", stdout);
    std::fflush(stdout);
    at_line_end_ = true;
  }

 private:
  void dim(bool on) {
    if (on != dim_ && err_is_terminal_) print_error(on ? "\x1b[2m" : "\x1b[0m");
    dim_ = on;
  }

  const bool reasoning_, out_is_terminal_, err_is_terminal_;
  bool dim_ = false;  // the reasoning was the last to be printed
  bool at_line_end_ = true;
};

// `value` as JSON where it is, or else as text.
Status set_field(ChatClient& chat, const std::string& name, const std::string& value) {
  if (name.empty() || name == "messages" || name == "stream" || name == "stream_options" || name == "n")
    return Error{Error::Kind::kInvalid, fmt::format("'{}' cannot be set here", name)};
  if (value.empty()) {
    chat.fields().erase(name);
    return {};
  }
  boost::system::error_code failed;
  boost::json::value parsed = boost::json::parse(value, failed);
  chat.fields()[name] = failed ? boost::json::value(value) : std::move(parsed);
  return {};
}

class Conversation {
 public:
  Conversation(ChatClient& chat, bool reasoning) : chat_(chat), reasoning_(reasoning) {}

  Status ask(const std::string& question) {
    Screen screen(reasoning_);
    const Interruptible scope;
    const auto answer = chat_.ask(
        question, [&](const ChatPiece& p) { screen.piece(p); }, [] { return !interrupted.load(); });
    if (!answer.ok()) {
      screen.finish_line();
      return answer.error();
    }
    screen.end(*answer);
    return {};
  }

  // A line that begins with '/'. False: it is the end.
  Result<bool> command(const std::string& line) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space);
    const std::string rest = space < line.size() ? line.substr(line.find_last_of(' ', line.find_first_not_of(' ', space)) + 1) : "";
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/help") {
      print_error(kHelp);
    } else if (name == "/reset") {
      chat_.forget();
    } else if (name == "/system") {
      chat_.set_system(rest);
    } else if (name == "/set") {
      const size_t end = std::min(rest.find(' '), rest.size());
      BATON_TRY(set_field(chat_, rest.substr(0, end), end < rest.size() ? rest.substr(end + 1) : ""));
    } else if (name == "/again") {
      const std::string question = chat_.take_back();
      if (question.empty()) return Error{Error::Kind::kInvalid, "there is no answer to drop"};
      BATON_TRY(ask(question));
    } else if (name == "/save" || name == "/load") {
      if (rest.empty()) return Error{Error::Kind::kInvalid, name + " needs the name of a file"};
      if (name == "/save") {
        BATON_ASSIGN(PendingFile file, PendingFile::create(rest));
        BATON_TRY(file.write(chat_.text()));
        BATON_TRY(file.commit());
      } else {
        BATON_ASSIGN(const std::string text, read_file(rest, kMostFileBytes));
        BATON_TRY(chat_.read(text, rest));
      }
    } else {
      return Error{Error::Kind::kInvalid, name + " is no command; /help lists them"};
    }
    return true;
  }

  Status run() {
    LineReader reader;
    if (reader.interactive()) print_error("/help lists the commands; Ctrl-D ends.\n");
    while (true) {
      auto line = reader.next("> ");
      while (line && line->ends_with('\\')) {
        line->back() = '\n';
        const auto more = reader.next("... ");
        if (!more) break;
        *line += *more;
      }
      if (!line) return {};
      if (line->find_first_not_of(" \n\t") == std::string::npos) continue;
      Status status;
      if (line->starts_with('/')) {
        const auto goes_on = command(*line);
        if (goes_on.ok() && !*goes_on) return {};
        if (!goes_on.ok()) status = goes_on.error();
      } else {
        status = ask(*line);
      }
      if (status.ok()) continue;
      if (!reader.interactive()) return status;  // a script should not go on
      finish(status);
    }
  }

 private:
  ChatClient& chat_;
  const bool reasoning_;
};

Status chat(const Arguments& a) {
  BATON_ASSIGN(const ChatEndpoint endpoint, ChatEndpoint::at(a.base_url, key_of_environment()));
  const auto first = endpoint.first_model();
  if (!first.ok() && (a.model.empty() || first.error().kind == Error::Kind::kIo)) return first.error();
  ChatClient client(endpoint, a.model.empty() ? *first : a.model);
  client.set_system(a.system);
  for (const std::string& field : a.fields) {
    const size_t sign = std::min(field.find('='), field.size());
    BATON_TRY(set_field(client, field.substr(0, sign), sign < field.size() ? field.substr(sign + 1) : ""));
  }
  Conversation conversation(client, !a.no_reasoning);
  if (a.words.empty()) return conversation.run();
  return conversation.ask(fmt::format("{}", fmt::join(a.words, " ")));
}

}  // namespace

void add_chat(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("chat", "Talk to a server in the terminal");
  c->add_option("--base-url", a->base_url, "Server, its key in BATON_API_KEY or OPENAI_API_KEY")->capture_default_str();
  c->add_option("--model", a->model, "The model's name there (default: the first that it lists)");
  c->add_option("--system", a->system, "System message");
  c->add_option("--set", a->fields, "A field of the requests, such as temperature=0.7; may be given again")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  c->add_flag("--no-reasoning", a->no_reasoning, "Do not show what the model thinks");
  c->add_option("message", a->words, "Ask this alone, and end; without it lines are read until they end")->type_name("TEXT");
  c->callback([a, &exit_code] { exit_code = finish(chat(*a)); });
}

}  // namespace baton::app
