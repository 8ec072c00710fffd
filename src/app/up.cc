// baton up: a whole fleet on this machine, as processes of this program: instances, and a router in front of them.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>

#include "app/commands.h"
#include "app/console.h"

namespace baton::app {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostLineBytes = 64 << 10;  // a longer line of a log is shown in pieces
constexpr std::chrono::seconds kStartLimit(600);
constexpr std::chrono::seconds kEndLimit(40);  // a little more than what the children give their requests

struct Child {
  std::string name, role;
  pid_t pid = -1;
  int log = -1;      // its standard error
  std::string line;  // what has come of the next one
  int port = 0;      // once it has said that it is ready
  bool ended = false;
};

struct UpFlags {
  int unified = 0, prefill = 0, decode = 0;
  int instances() const { return unified + prefill + decode; }
  std::string model;
  int port = 8080;
  int threads = 0;
  std::vector<std::string> serve;  // further flags of the instances
};

class Fleet {
 public:
  explicit Fleet(UpFlags flags) : flags_(std::move(flags)) {}
  ~Fleet() { stop(); }
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  Status run();

 private:
  Status start(const std::string& name, const std::string& role, const std::vector<std::string>& arguments);
  // Reads logs until `done`; fails when a child ends or time is up. An error without text: the program was told to end.
  Status follow(const std::function<bool()>& done, Clock::time_point deadline);
  void read_log(Child& child);
  void show(Child& child, std::string_view line);
  void stop();

  const UpFlags flags_;
  int signals_ = -1;
  std::vector<std::unique_ptr<Child>> children_;
  bool told_ = false;
};

Status Fleet::start(const std::string& name, const std::string& role, const std::vector<std::string>& arguments) {
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return Error{Error::Kind::kExhausted, fmt::format("no pipe for {}", name)};
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Error{Error::Kind::kExhausted, fmt::format("the system starts no process for {}", name)};
  if (pid == 0) {
    // A group of its own, so that Ctrl-C comes to this program alone, which then ends them in order; and nobody stays when it dies.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::dup2(pipe_ends[1], STDERR_FILENO);
    ::execv("/proc/self/exe", argv.data());
    ::_exit(127);
  }
  ::close(pipe_ends[1]);
  auto child = std::make_unique<Child>();
  child->name = name;
  child->role = role;
  child->pid = pid;
  child->log = pipe_ends[0];
  children_.push_back(std::move(child));
  return {};
}

// A line of JSON as `name | message field=value ...`; any other as it is.
void Fleet::show(Child& child, std::string_view line) {
  json::error_code error;
  const json::value parsed = json::parse(json::string_view(line.data(), line.size()), error);
  std::string text(line);
  if (const json::object* entry = error ? nullptr : parsed.if_object()) {
    const json::value* message = entry->if_contains("message");
    text = message != nullptr && message->is_string() ? std::string(message->get_string()) : std::string();
    for (const auto& [key, value] : *entry) {
      if (key == "time" || key == "message") continue;
      if (key == "level" && value == "info") continue;
      text += fmt::format(" {}={}", std::string_view(key), value.is_string() ? std::string(value.get_string()) : json::serialize(value));
    }
    const json::value* port = entry->if_contains("port");
    if (message != nullptr && *message == "ready" && port != nullptr && port->is_int64()) child.port = static_cast<int>(port->get_int64());
  }
  print_error(fmt::format("{:8}| {}\n", child.name, text));
}

void Fleet::read_log(Child& child) {
  char bytes[16384];
  const ssize_t n = ::read(child.log, bytes, sizeof bytes);
  if (n < 0 && errno == EINTR) return;
  if (n <= 0) {
    if (!child.line.empty()) show(child, child.line);
    ::close(std::exchange(child.log, -1));
    return;
  }
  child.line.append(bytes, static_cast<size_t>(n));
  for (size_t end = child.line.find('\n'); end != std::string::npos || child.line.size() > kMostLineBytes; end = child.line.find('\n')) {
    const size_t length = std::min(end, kMostLineBytes);
    show(child, std::string_view(child.line).substr(0, length));
    child.line.erase(0, length == end ? length + 1 : length);
  }
}

Status Fleet::follow(const std::function<bool()>& done, Clock::time_point deadline) {
  while (!done()) {
    if (Clock::now() >= deadline) return Error{Error::Kind::kIo, "the fleet was not ready in time"};
    std::vector<pollfd> polled{{.fd = signals_, .events = POLLIN, .revents = 0}};
    for (const auto& child : children_) polled.push_back({.fd = child->log, .events = POLLIN, .revents = 0});  // -1 is passed over
    constexpr int kGlanceMs = 100;
    ::poll(polled.data(), polled.size(), kGlanceMs);
    if ((polled[0].revents & POLLIN) != 0) {
      signalfd_siginfo info{};
      [[maybe_unused]] const ssize_t n = ::read(signals_, &info, sizeof info);
      told_ = true;
      return {};
    }
    for (size_t i = 0; i < children_.size(); ++i)
      if (polled[i + 1].revents != 0) read_log(*children_[i]);
    for (const auto& child : children_) {
      int status = 0;
      if (child->ended || ::waitpid(child->pid, &status, WNOHANG) != child->pid) continue;
      child->ended = true;
      while (child->log >= 0) read_log(*child);
      return Error{Error::Kind::kIo, WIFSIGNALED(status)
                                         ? fmt::format("{} was killed by signal {}", child->name, WTERMSIG(status))
                                         : fmt::format("{} ended with {}; its last lines above say why", child->name, WEXITSTATUS(status))};
    }
  }
  return {};
}

Status Fleet::run() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT}) sigaddset(&set, s);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int threads = flags_.threads > 0 ? flags_.threads : std::max(1, cores / flags_.instances());
  const std::pair<const char*, int> roles[] = {{"unified", flags_.unified}, {"prefill", flags_.prefill}, {"decode", flags_.decode}};
  for (const auto& [role, count] : roles)
    for (int i = 0; i < count; ++i) {
      std::vector<std::string> arguments{"baton",        "serve",  "--model", flags_.model, "--role",
                                         role,           "--port", "0",       "--threads",  fmt::format("{}", threads),
                                         "--no-web-page"};
      arguments.insert(arguments.end(), flags_.serve.begin(), flags_.serve.end());
      BATON_TRY(start(fmt::format("{}{}", role[0], i), role, arguments));
    }
  const auto all_ready = [&] { return std::all_of(children_.begin(), children_.end(), [](const auto& c) { return c->port > 0; }); };
  BATON_TRY(follow(all_ready, Clock::now() + kStartLimit));
  if (told_) return {};
  std::vector<std::string> arguments{"baton", "router", "--port", fmt::format("{}", flags_.port)};
  for (const auto& child : children_) arguments.push_back(fmt::format("--{}=http://127.0.0.1:{}", child->role, child->port));
  BATON_TRY(start("router", "router", arguments));
  BATON_TRY(follow(all_ready, Clock::now() + kStartLimit));
  if (told_) return {};
  print_error(fmt::format("{:8}| the fleet answers at http://127.0.0.1:{} ; its page is there, too. Ctrl-C ends it.\n", "up",
                          children_.back()->port));
  return follow([] { return false; }, Clock::time_point::max());
}

// The router first, whose requests then have their instances until their end.
void Fleet::stop() {
  for (auto it = children_.rbegin(); it != children_.rend(); ++it) {
    Child& child = **it;
    if (!child.ended) ::kill(child.pid, SIGTERM);
    const Clock::time_point deadline = Clock::now() + kEndLimit;
    while (!child.ended) {
      pollfd p{.fd = child.log, .events = POLLIN, .revents = 0};
      constexpr int kGlanceMs = 20;
      if (::poll(&p, 1, kGlanceMs) > 0 && child.log >= 0) read_log(child);
      int status = 0;
      child.ended = ::waitpid(child.pid, &status, WNOHANG) == child.pid;
      pollfd again{.fd = signals_, .events = POLLIN, .revents = 0};
      if (child.ended || (Clock::now() < deadline && ::poll(&again, 1, 0) <= 0)) continue;
      ::kill(child.pid, SIGKILL);  // told twice, or it does not end
      ::waitpid(child.pid, &status, 0);
      child.ended = true;
    }
    while (child.log >= 0) read_log(child);
  }
  if (signals_ >= 0) ::close(std::exchange(signals_, -1));
}

}  // namespace

void add_up(CLI::App& app, int& exit_code) {
  CLI::App* c = app.add_subcommand("up", "A fleet on this machine: instances of one model and a router in front of them");
  const auto flags = std::make_shared<UpFlags>();
  c->add_option("--unified", flags->unified, "Instances that do prefill and decode")->check(CLI::Range(0, 64));
  c->add_option("--prefill", flags->prefill, "Instances that compute prompts, for those of --decode")->check(CLI::Range(0, 64));
  c->add_option("--decode", flags->decode, "Instances that answer, with prompts from those of --prefill")->check(CLI::Range(0, 64));
  c->add_option("--model", flags->model, "Folder of the model")->required();
  c->add_option("--port", flags->port, "Port of the router; 0: any free one [8080]")->check(CLI::Range(0, 65535));
  c->add_option("--threads", flags->threads, "CPU threads of each instance; 0: the machine's, shared out")->check(CLI::Range(0, 1024));
  c->allow_extras();
  c->footer("Any other flag goes to every instance as a flag of serve.");
  c->callback([flags, c, &exit_code] {
    for (std::string& flag : c->remaining())
      if (flag != "--") flags->serve.push_back(std::move(flag));
    constexpr int kMost = 64;  // that a router holds
    if (flags->unified + flags->decode == 0) throw CLI::ValidationError("give --unified N, or --prefill N and --decode M");
    if ((flags->prefill > 0) != (flags->decode > 0))
      throw CLI::ValidationError("--prefill and --decode belong together; give both or none");
    if (flags->instances() > kMost) throw CLI::ValidationError(fmt::format("at most {} instances in all", kMost));
    Status status;
    {
      Fleet fleet(*flags);
      status = fleet.run();
    }
    exit_code = finish(status);
  });
}

}  // namespace baton::app
