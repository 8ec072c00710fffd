// Lines that somebody types, with editing and a history, or that come through a pipe.
#pragma once

#include <optional>
#include <string>

namespace baton::app {

class LineReader {
 public:
  LineReader();
  // Standard input and output are a terminal.
  bool interactive() const { return interactive_; }
  // Without its end; nothing at the end of the input. The prompt shows on a terminal alone.
  std::optional<std::string> next(const std::string& prompt);

 private:
  bool interactive_;
};

}  // namespace baton::app
