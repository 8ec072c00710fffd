// The process in which grammars are tried out, both ends of it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/grammar.h"

namespace baton::text {

// The whole of the child: serves the socket that it finds as descriptor 3 until that is closed. Returns the exit code.
int run_grammar_worker();

// The parent's end. Belongs to one thread; the destructor ends the process.
class GrammarWorker {
 public:
  // What a worker is told first; made once for all of them.
  static std::string setup_of(const GrammarVocabulary& vocabulary, const std::filesystem::path& library_folder);
  // `stopping` is asked while waiting; when it says true, what is under way ends with an error.
  static Result<std::unique_ptr<GrammarWorker>> start(const std::vector<std::string>& command, const std::string& setup,
                                                      std::function<bool()> stopping);
  ~GrammarWorker();

  // Compiles the grammar and walks through it, within the limits. Afterwards alive() may be false: then this worker is of no more use.
  Status try_out(const GrammarSpec& spec, const GrammarLimits& limits);
  bool alive() const { return process_ > 0; }

 private:
  GrammarWorker(int socket, int process, std::function<bool()> stopping)
      : socket_(socket), process_(process), stopping_(std::move(stopping)) {}
  Result<std::string> receive(std::chrono::milliseconds limit);
  int end();  // kills the process; its status

  int socket_;
  int process_;
  std::function<bool()> stopping_;
};

}  // namespace baton::text
