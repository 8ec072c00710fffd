// The subcommands of the program. Each add_* declares one with its options; when its command line has been read, it runs and sets the exit
// code: 0, or 1 after one message on stderr. Wrong usage ends with 2 before anything runs.
#pragma once

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace baton::app {

void add_bench(CLI::App& app, int& exit_code);
void add_bench_cycle(CLI::App& group, int& exit_code);
void add_bench_prefill(CLI::App& group, int& exit_code);
void add_bench_serve(CLI::App& group, int& exit_code);
void add_bench_speculation(CLI::App& group, int& exit_code);
void add_chat(CLI::App& app, int& exit_code);
void add_completion(CLI::App& app, int& exit_code);
void add_config(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_render(CLI::App& app, int& exit_code);
void add_router(CLI::App& app, int& exit_code);
void add_serve(CLI::App& app, int& exit_code);
void add_simulate(CLI::App& app, int& exit_code);
void add_synth(CLI::App& app, int& exit_code);
void add_tokenize(CLI::App& app, int& exit_code);
void add_up(CLI::App& app, int& exit_code);

// The exit code of a command that ended with `status`; says what went wrong.
int finish(const Status& status);

}  // namespace baton::app
