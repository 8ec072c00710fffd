#include "text/grammar/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "text/grammar/worker_channel.h"

extern char** environ;

namespace baton::text {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kWorkerSocket = 3;
constexpr milliseconds kStartLimit{30000};  // a cold disk, a large vocabulary
constexpr milliseconds kAskEvery{50};

Error failure(const std::string& what) {
  return {Error::Kind::kIo, fmt::format("the process that tries grammars out {}; no grammar can be compiled now", what)};
}

}  // namespace

std::string GrammarWorker::setup_of(const GrammarVocabulary& vocabulary, const std::filesystem::path& library_folder) {
  MessageWriter message;
  message.string(library_folder.string());
  message.number(static_cast<int64_t>(vocabulary.stop_ids.size()));
  for (const int32_t id : vocabulary.stop_ids) message.number(id);
  message.number(static_cast<int64_t>(vocabulary.tokens.size()));
  for (const std::string& token : vocabulary.tokens) message.string(token);
  return message.bytes();
}

Result<std::unique_ptr<GrammarWorker>> GrammarWorker::start(const std::vector<std::string>& command, const std::string& setup,
                                                            std::function<bool()> stopping) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return failure(fmt::format("cannot be reached: {}", std::strerror(errno)));
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, sockets[1], kWorkerSocket);
  ::posix_spawn_file_actions_addclosefrom_np(&files, kWorkerSocket + 1);
  pid_t process = -1;
  const int failed = ::posix_spawn(&process, arguments[0], &files, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(sockets[1]);
  if (failed != 0) {
    ::close(sockets[0]);
    return failure(fmt::format("({}) cannot be started: {}", command[0], std::strerror(failed)));
  }
  std::unique_ptr<GrammarWorker> worker(new GrammarWorker(sockets[0], process, std::move(stopping)));
  if (!send_message(sockets[0], setup)) return failure("ended while it started");
  const auto reply = worker->receive(kStartLimit);
  if (!reply.ok()) return failure(fmt::format("({}) does not start", command[0]));
  if (!reply->empty()) return failure(fmt::format("does not start: {}", *reply));
  return worker;
}

GrammarWorker::~GrammarWorker() {
  end();
  ::close(socket_);
}

int GrammarWorker::end() {
  int status = 0;
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  process_ = -1;
  return status;
}

// The next message; an error once the process is gone, the time is up, or the parent stops.
Result<std::string> GrammarWorker::receive(milliseconds limit) {
  const auto deadline = steady_clock::now() + limit;
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0 || stopping_()) {
      end();
      if (left.count() > 0) return Error{Error::Kind::kIo, "the server is stopping"};
      return Error{Error::Kind::kExhausted,
                   fmt::format("compiling this grammar takes longer than the {} ms that one may take; simplify it", limit.count())};
    }
    pollfd waiting{socket_, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(std::min(left, kAskEvery).count())) <= 0) continue;
    // What follows is short and comes at once: replies are a status and a message.
    if (auto message = receive_message(socket_)) return std::move(*message);
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
      return Error{Error::Kind::kExhausted,
                   fmt::format("compiling this grammar takes longer than the {} ms that one may take; simplify it", limit.count())};
    return Error{Error::Kind::kInvalid, "the grammar library cannot deal with this grammar: it ended while compiling it"};
  }
}

Status GrammarWorker::try_out(const GrammarSpec& spec, const GrammarLimits& limits) {
  MessageWriter job;
  job.number(static_cast<int64_t>(spec.kind));
  job.number(limits.compile_ms);
  job.number(static_cast<int64_t>(limits.compile_bytes));
  job.number(limits.mask_us);
  job.number(static_cast<int64_t>(limits.grammar_bytes));
  job.string(spec.text);
  if (!send_message(socket_, job.bytes())) {
    end();
    return failure("has ended");
  }
  BATON_ASSIGN(const std::string reply, receive(milliseconds(limits.compile_ms)));
  MessageReader reader(reply);
  const int64_t outcome = reader.number();
  if (outcome < 0) return {};
  if (outcome == static_cast<int64_t>(Error::Kind::kExhausted)) end();  // out of memory, perhaps: a fresh one next time
  return Error{static_cast<Error::Kind>(outcome), std::string(reader.string())};
}

}  // namespace baton::text
