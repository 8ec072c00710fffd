// baton: command line front. Usage errors exit with 2, failures with 1 and one message on stderr.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "app/commands.h"

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
  add_inspect(app, exit_code);
  add_synth(app, exit_code);
  add_tokenize(app, exit_code);
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

}  // namespace

int finish(const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "baton: {}\n", status.error().message);
  return kFailure;
}

}  // namespace baton::app

int main(int argc, char** argv) {
  // A write beyond a limit then fails like any other write, and is reported.
  std::signal(SIGXFSZ, SIG_IGN);
  // Nothing here throws on purpose; what is left is the standard library out of memory.
  try {
    return baton::app::run(argc, argv);
  } catch (const std::exception& e) {
    return baton::app::finish(baton::Error{baton::Error::Kind::kExhausted, fmt::format("stopped: {}", e.what())});
  }
}
