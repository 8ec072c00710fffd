// baton: command line front. Usage errors exit with 2, failures with 1 and one message on stderr.
#include <fcntl.h>
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "app/commands.h"
#include "app/console.h"
#include "text/grammar/worker.h"

namespace baton::app {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

int run(int argc, char** argv) {
  CLI::App app("Baton runs the GLM-5.3-Flash language model (glm5_next).", "baton");
  app.set_version_flag("--version", "baton " BATON_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
  int exit_code = 0;
  add_generate(app, exit_code);
  add_eval(app, exit_code);
  add_inspect(app, exit_code);
  add_bench(app, exit_code);
  add_chat(app, exit_code);
  add_completion(app, exit_code);
  add_config(app, exit_code);
  add_plan(app, exit_code);
  add_render(app, exit_code);
  add_router(app, exit_code);
  add_serve(app, exit_code);
  add_simulate(app, exit_code);
  add_synth(app, exit_code);
  add_tokenize(app, exit_code);
  add_up(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // --help and --version arrive here as well, with exit code 0.
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  // Output that never arrived (a closed pipe, a full disk) is a failure, too.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && exit_code == 0)
    return finish(Error{Error::Kind::kIo, "cannot write to standard output"});
  return exit_code;
}

// Names from files and arguments may hold control characters, which must not reach a terminal.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = c == '\n' ? '\n' : '?';
  return text;
}

// Where one of them is closed, the next file or socket would be opened in its place, and get what is printed. What is opened here instead
// fails like a closed one: it is for the other direction.
void keep_standard_descriptors() {
  for (int wanted = 0; wanted <= 2; ++wanted)
    if (::fcntl(wanted, F_GETFD) < 0) [[maybe_unused]]
      const int opened = ::open("/dev/null", wanted == 0 ? O_WRONLY : O_RDONLY);  // the least one that is free
}

// A mapped file that shrinks raises this signal at the next access to what is gone; nothing can be computed from then on.
void on_bus_error(int) {
  print_error(
      "baton: a checkpoint file became shorter, or its disk failed, while it was being read; copy it again and do not change it "
      "meanwhile\n");
  std::_Exit(kFailure);
}

}  // namespace

int finish(const Status& status) {
  if (status.ok()) return 0;
  print_error(fmt::format("baton: {}\n", printable(status.error().message)));
  return kFailure;
}

}  // namespace baton::app

int main(int argc, char** argv) {
  // Not a command of its own: how this program runs itself to try grammars out.
  if (argc == 2 && std::string_view(argv[1]) == "grammar-worker") return baton::text::run_grammar_worker();
  baton::app::keep_standard_descriptors();
  // A write beyond a limit then fails like any other write, and is reported.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGBUS, baton::app::on_bus_error);
  // Nothing here throws on purpose; what is left is the standard library out of memory.
  try {
    return baton::app::run(argc, argv);
  } catch (const std::system_error& e) {
    return baton::app::finish(
        baton::Error{baton::Error::Kind::kExhausted, fmt::format("the system refused a resource ({}); try fewer --threads", e.what())});
  } catch (const std::bad_alloc&) {
    return baton::app::finish(baton::Error{baton::Error::Kind::kExhausted, "out of memory; try fewer --threads or a smaller --chunk"});
  } catch (const std::exception& e) {
    return baton::app::finish(baton::Error{baton::Error::Kind::kExhausted, fmt::format("stopped: {}", e.what())});
  }
}
