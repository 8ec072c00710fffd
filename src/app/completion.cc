// baton completion: what a shell can complete, from the commands and flags that there are.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "app/commands.h"

namespace baton::app {
namespace {

struct Flag {
  std::vector<std::string> names{};  // with their dashes
  std::string about{};
  bool takes_value = false;
  std::vector<std::string> words{};  // the values that there are; empty: anything, or files
};

struct Command {
  std::string path{};                                           // "baton config dump"
  std::vector<std::pair<std::string, std::string>> commands{};  // below it: name and what it does
  std::vector<Flag> flags{};
};

// The words of "{a,b,c}", which is how CLI11 shows what may be given.
std::vector<std::string> words_of(const std::string& type) {
  std::vector<std::string> words;
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return words;
  for (size_t begin = open + 1; begin <= close;) {
    const size_t end = std::min(type.find(',', begin), close);
    words.push_back(type.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

void gather(const CLI::App& app, const std::string& path, std::vector<Command>& out) {
  Command c{.path = path};
  for (const CLI::Option* option : app.get_options()) {
    Flag f{.about = option->get_description(), .takes_value = option->get_type_size() != 0, .words = words_of(option->get_type_name())};
    for (const std::string& name : option->get_lnames()) f.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) f.names.push_back("-" + name);
    if (!f.names.empty() && !option->get_group().empty()) c.flags.push_back(std::move(f));
  }
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* s : below) c.commands.emplace_back(s->get_name(), s->get_description());
  out.push_back(std::move(c));
  for (const CLI::App* s : below) gather(*s, path + " " + s->get_name(), out);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}
std::string quoted(const std::string& text) { return "'" + replaced(replaced(text, "\n", " "), "'", R"('\'')") + "'"; }

// The loop that bash and zsh share: which command the words before the cursor have reached.
std::string reached(const std::vector<Command>& all) {
  std::string out = "    case \"$at $word\" in\n";
  for (const Command& c : all)
    for (const auto& [name, about] : c.commands) out += fmt::format("      '{0} {1}') at='{0} {1}' ;;\n", c.path, name);
  return out + "    esac\n";
}

// For each flag with a value: "take" with the words that there are, or without for files.
std::string values(const std::vector<Command>& all, std::string_view take, std::string_view files) {
  std::string out;
  for (const Command& c : all)
    for (const Flag& f : c.flags) {
      if (!f.takes_value) continue;
      std::string pattern;
      for (const std::string& name : f.names) pattern += fmt::format("{}'{} {}'", pattern.empty() ? "" : "|", c.path, name);
      const std::string words = fmt::format("{}", fmt::join(f.words, " "));
      out += fmt::format("    {}) {}; return ;;\n", pattern, f.words.empty() ? std::string(files) : fmt::format(fmt::runtime(take), words));
    }
  return out;
}

std::string bash(const std::vector<Command>& all) {
  std::string out =
      "# Completion of baton for bash: source <(baton completion bash)\n"
      "_baton() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} at=baton words='' word\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD - 1}\"; do\n" +
      reached(all) + "  done\n  COMPREPLY=()\n  case \"$at $before\" in\n" +
      values(all, "mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$current\")", ":") + "  esac\n  case $at in\n";
  for (const Command& c : all) {
    std::vector<std::string> words;
    for (const auto& [name, about] : c.commands) words.push_back(name);
    for (const Flag& f : c.flags) words.insert(words.end(), f.names.begin(), f.names.end());
    out += fmt::format("    '{}') words='{}' ;;\n", c.path, fmt::join(words, " "));
  }
  return out +
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "}\n"
         "complete -o default -F _baton baton\n";
}

std::string zsh(const std::vector<Command>& all) {
  std::string out =
      "#compdef baton\n"
      "# Completion of baton for zsh: source <(baton completion zsh), or a file _baton in a folder of $fpath\n"
      "_baton() {\n"
      "  local at=baton word i\n"
      "  local -a names flags\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    word=${words[i]}\n" +
      reached(all) + "  done\n  case \"$at ${words[CURRENT - 1]}\" in\n" + values(all, "compadd {}", "_files") + "  esac\n  case $at in\n";
  for (const Command& c : all) {
    out += fmt::format("    '{}')\n", c.path);
    const auto entry = [](const std::string& name, const std::string& about) {
      return quoted(replaced(name, ":", R"(\:)") + ":" + replaced(about, ":", R"(\:)"));
    };
    for (const auto& [name, about] : c.commands) out += fmt::format("      names+=({})\n", entry(name, about));
    for (const Flag& f : c.flags)
      for (const std::string& name : f.names) out += fmt::format("      flags+=({})\n", entry(name, f.about));
    out += "      ;;\n";
  }
  return out +
         "  esac\n"
         "  ((${#names})) && _describe command names\n"
         "  if [[ $PREFIX == -* ]]; then _describe -o flag flags; else _files; fi\n"
         "}\n"
         "if [[ ${funcstack[1]} == _baton ]]; then _baton \"$@\"; else compdef _baton baton; fi\n";
}

std::string fish(const std::vector<Command>& all) {
  std::string out = "# Completion of baton for fish: baton completion fish | source\n";
  for (const Command& c : all) {
    std::string seen, none;
    for (size_t begin = c.path.find(' '); begin != std::string::npos;) {
      const size_t end = std::min(c.path.find(' ', begin + 1), c.path.size());
      seen += fmt::format("{}__fish_seen_subcommand_from {}", seen.empty() ? "" : "; and ", c.path.substr(begin + 1, end - begin - 1));
      begin = end < c.path.size() ? end : std::string::npos;
    }
    for (const auto& [name, about] : c.commands) none += " " + name;
    const std::string here = seen.empty() ? "__fish_use_subcommand" : seen;
    const std::string first = none.empty() || seen.empty() ? here : here + "; and not __fish_seen_subcommand_from" + none;
    for (const auto& [name, about] : c.commands)
      out += fmt::format("complete -c baton -n {} -f -a {} -d {}\n", quoted(first), name, quoted(about));
    for (const Flag& f : c.flags) {
      std::string line = fmt::format("complete -c baton -n {}", quoted(here));
      for (const std::string& name : f.names)
        line += name.starts_with("--") ? fmt::format(" -l {}", name.substr(2)) : fmt::format(" -s {}", name.substr(1));
      if (f.takes_value) line += f.words.empty() ? " -r" : fmt::format(" -x -a {}", quoted(fmt::format("{}", fmt::join(f.words, " "))));
      out += fmt::format("{} -d {}\n", line, quoted(f.about));
    }
  }
  return out;
}

}  // namespace

void add_completion(CLI::App& app, int& exit_code) {
  CLI::App* c = app.add_subcommand("completion", "Print what completes commands and flags in a shell");
  auto shell = std::make_shared<std::string>();
  c->add_option("shell", *shell, "Which shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  c->callback([&app, shell, &exit_code] {
    std::vector<Command> all;
    gather(app, "baton", all);
    const std::string text = *shell == "bash" ? bash(all) : *shell == "zsh" ? zsh(all) : fish(all);
    std::fwrite(text.data(), 1, text.size(), stdout);
    exit_code = 0;
  });
}

}  // namespace baton::app
