#include "app/line_reader.h"

#include <editline/readline.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <iostream>

namespace baton::app {

LineReader::LineReader() : interactive_(isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {
  if (!interactive_) return;
  std::setlocale(LC_CTYPE, "");  // what is a character
  rl_initialize();
}

std::optional<std::string> LineReader::next(const std::string& prompt) {
  if (!interactive_) {
    std::string line;
    if (!std::getline(std::cin, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }
  char* typed = readline(prompt.c_str());
  if (typed == nullptr) return std::nullopt;
  if (*typed != '\0') add_history(typed);
  std::string line(typed);
  std::free(typed);
  return line;
}

}  // namespace baton::app
