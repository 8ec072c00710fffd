#include "transfer/nixl_test_support.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "transfer/nixl_library.h"

namespace baton::transfer {
namespace {

constexpr int kWatchdogMs = 240'000;

}  // namespace

std::string nixl_lacking() {
  const Result<const NixlFunctions*> library = load_nixl();
  if (library.ok()) return {};
  std::printf("%s\n", library.error().message.c_str());
  return library.error().message;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

std::vector<std::byte> unhex(std::string_view text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  return bytes;
}

Memory peer_memory(std::vector<std::byte>& pages, int64_t page_bytes, int32_t count) {
  BATON_CHECK(std::ssize(pages) == page_bytes * count);
  return {
      .pages = {pages.data(), page_bytes, count}, .slots = {}, .page_runs = {{0, 0, page_bytes, 0}}, .slot_runs = {}, .fingerprint = 42};
}

Part peer_part(Agent to, int64_t i, int32_t n, int32_t pages) {
  const int32_t half = pages / 2;
  const auto first = static_cast<int32_t>(i * n % (half - n + 1));
  Part part{.to = to, .from_pages = std::vector<int32_t>(static_cast<size_t>(n)), .notice = std::vector<std::byte>(8)};
  std::iota(part.from_pages.begin(), part.from_pages.end(), first);
  for (const int32_t page : part.from_pages) part.to_pages.push_back(half + page);
  std::memcpy(part.notice.data(), part.to_pages.data(), 4);
  std::memcpy(part.notice.data() + 4, &n, 4);
  return part;
}

std::vector<int32_t> noticed_pages(const Arrival& arrival) {
  int32_t first = 0, count = 0;
  BATON_CHECK(arrival.notice.size() == 8);
  std::memcpy(&first, arrival.notice.data(), 4);
  std::memcpy(&count, arrival.notice.data() + 4, 4);
  std::vector<int32_t> pages(static_cast<size_t>(count));
  std::iota(pages.begin(), pages.end(), first);
  return pages;
}

PeerProcess::PeerProcess(const char* program, const std::vector<std::string>& arguments) {
  int to[2], from[2];
  BATON_CHECK(::pipe2(to, O_CLOEXEC) == 0 && ::pipe2(from, O_CLOEXEC) == 0);
  std::vector<char*> argv = {const_cast<char*>(program)};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  BATON_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::dup2(to[0], 0);
    ::dup2(from[1], 1);
    ::execv(program, argv.data());
    ::_exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
  to_ = to[1];
  from_ = from[0];
  introduction = unhex(hear());
}

PeerProcess::~PeerProcess() {
  kill();
  ::close(to_);
  ::close(from_);
}

void PeerProcess::say(const std::string& line) {
  const std::string whole = line + "\n";
  BATON_CHECK(::write(to_, whole.data(), whole.size()) == static_cast<ssize_t>(whole.size()));
}

std::string PeerProcess::hear() {
  while (true) {
    if (const size_t end = heard_.find('\n'); end != std::string::npos) {
      std::string line = heard_.substr(0, end);
      heard_.erase(0, end + 1);
      return line;
    }
    pollfd waiting{from_, POLLIN, 0};
    char buffer[4096];
    const int ready = ::poll(&waiting, 1, kWatchdogMs);
    const ssize_t n = ready > 0 ? ::read(from_, buffer, sizeof buffer) : 0;
    BATON_CHECK_MSG(n > 0, "nixl_peer says nothing, or has ended");
    heard_.append(buffer, static_cast<size_t>(n));
  }
}

void PeerProcess::signal(int number) { ::kill(pid_, number); }

void PeerProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace baton::transfer
