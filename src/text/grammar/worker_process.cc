// The child's side of worker.h.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <random>

#include "base/log.h"
#include "text/grammar/backend.h"
#include "text/grammar/stack_thread.h"
#include "text/grammar/worker.h"
#include "text/grammar/worker_channel.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BATON_SHADOW_MEMORY 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BATON_SHADOW_MEMORY 1
#endif

namespace baton::text {
namespace {

constexpr int kWorkerSocket = 3;
constexpr int kWalks = 4;
constexpr int kMostSteps = 256;
constexpr int64_t kMostWalkingMs = 300;

int64_t cpu_us() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// Address space that this process may have: what it has now, and `more`. The sanitizers' shadows do not count in any sensible way.
void limit_memory([[maybe_unused]] size_t more) {
#ifndef BATON_SHADOW_MEMORY
  size_t pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%zu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  const rlim_t bytes = pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE)) + more;
  const rlimit limit{bytes, RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

// A backstop for when the parent is gone and nobody kills this process.
void limit_time(int64_t more_ms) {
  const auto seconds = static_cast<rlim_t>(cpu_us() / 1000000 + more_ms / 1000 + 2);
  const rlimit limit{seconds, RLIM_INFINITY};
  ::setrlimit(RLIMIT_CPU, &limit);
}

// What the library says on stderr: it warns there of parts of a grammar that it ignores.
class Warnings {
 public:
  Warnings() : file_(::memfd_create("warnings", MFD_CLOEXEC)) {
    if (file_ >= 0) ::dup2(file_, STDERR_FILENO);
  }
  std::string take() {
    std::fflush(stderr);
    const off_t size = file_ < 0 ? 0 : ::lseek(file_, 0, SEEK_CUR);
    std::string text(static_cast<size_t>(std::max<off_t>(size, 0)), '\0');
    if (size > 0 && ::pread(file_, text.data(), text.size(), 0) < 0) text.clear();
    if (file_ >= 0 && ::ftruncate(file_, 0) == 0) ::lseek(file_, 0, SEEK_SET);
    return text;
  }

 private:
  int file_;
};

// The message without the library's own "[time] file:line: Warning: " before it.
std::string plain(std::string_view message) {
  if (const size_t line = message.find(".cc:"); message.starts_with('[') && line != std::string_view::npos)
    if (const size_t end = message.find(": ", line); end != std::string_view::npos) message.remove_prefix(end + 2);
  if (message.starts_with("Warning: ")) message.remove_prefix(9);
  message = message.substr(0, message.find('\n'));
  return std::string(message.substr(0, 400));
}

struct Job {
  GrammarSpec spec;
  GrammarLimits limits;
};

int32_t random_token(std::span<const int32_t> row, std::mt19937& random) {
  int64_t allowed = 0;
  for (const int32_t word : row) allowed += std::popcount(static_cast<uint32_t>(word));
  if (allowed == 0) return -1;
  int64_t skip = static_cast<int64_t>(random() % static_cast<uint64_t>(allowed));
  for (size_t i = 0; i < row.size(); ++i) {
    auto word = static_cast<uint32_t>(row[i]);
    if (skip >= std::popcount(word)) {
      skip -= std::popcount(word);
      continue;
    }
    for (; skip > 0; --skip) word &= word - 1;
    return static_cast<int32_t>(i * 32) + std::countr_zero(word);
  }
  return -1;
}

// Random output under the grammar: shows masks that take long, and places from which nothing leads on.
Status walk_through(const GrammarBackend& backend, const FfiValue& grammar, const GrammarLimits& limits) {
  std::mt19937 random(1);
  std::vector<int32_t> row(backend.row_words());
  const int64_t end = cpu_us() + std::min(limits.compile_ms / 2, kMostWalkingMs) * 1000;
  for (int walk = 0; walk < kWalks; ++walk) {
    BATON_ASSIGN(const FfiValue matcher, backend.matcher(grammar));
    for (int step = 0; step < kMostSteps && cpu_us() < end; ++step) {
      const int64_t begin = cpu_us();
      BATON_ASSIGN([[maybe_unused]] const bool restricts, backend.fill(matcher, row));
      const int32_t token = random_token(row, random);
      if (token < 0) return Error{Error::Kind::kInvalid, "the grammar has no complete output: it leads to where nothing may follow"};
      BATON_ASSIGN(const bool accepted, backend.accept(matcher, token));
      const int64_t took = cpu_us() - begin;
      if (took > limits.mask_us)
        return Error{Error::Kind::kExhausted,
                     fmt::format("the grammar is too ambiguous: a token takes {} us, and may take {}", took, limits.mask_us)};
      if (!accepted) return Error{Error::Kind::kInvalid, "the grammar library contradicts itself on this grammar"};
      BATON_ASSIGN(const bool ended, backend.terminated(matcher));
      if (ended) break;
    }
  }
  return {};
}

Status try_out(const GrammarBackend& backend, const Job& job, Warnings& warnings) {
  try {
    auto grammar = backend.compile(job.spec);
    const std::string warning = warnings.take();
    if (!grammar.ok()) {
      if (grammar.error().message.find("bad_alloc") != std::string::npos) throw std::bad_alloc();
      return Error{Error::Kind::kInvalid, plain(grammar.error().message)};
    }
    // Where `oneOf` cannot be told from `anyOf`, the latter is what a model gets; anything else that is ignored would be a broken promise.
    if (!warning.empty() && warning.find("oneOf") == std::string::npos) return Error{Error::Kind::kUnsupported, plain(warning)};
    BATON_ASSIGN(const size_t bytes, backend.bytes(*grammar));
    if (bytes > job.limits.grammar_bytes)
      return Error{Error::Kind::kExhausted,
                   fmt::format("the compiled grammar has {} bytes, and may have {}; simplify it", bytes, job.limits.grammar_bytes)};
    return walk_through(backend, *grammar, job.limits);
  } catch (const std::bad_alloc&) {
    return Error{Error::Kind::kExhausted, fmt::format("compiling this grammar takes more than the {} bytes that it may take; simplify it",
                                                      job.limits.compile_bytes)};
  }
}

Job read_job(std::string_view bytes) {
  MessageReader reader(bytes);
  Job job;
  job.spec.kind = static_cast<GrammarSpec::Kind>(reader.number());
  job.limits.compile_ms = reader.number();
  job.limits.compile_bytes = static_cast<size_t>(reader.number());
  job.limits.mask_us = reader.number();
  job.limits.grammar_bytes = static_cast<size_t>(reader.number());
  job.spec.text = reader.string();
  return job;
}

}  // namespace

namespace {

int serve() {
  const auto setup = receive_message(kWorkerSocket);
  if (!setup) {
    log_error("grammar-worker is how baton starts itself, with a socket; it is no command to type");
    return 1;
  }
  MessageReader reader(*setup);
  const std::string folder(reader.string());
  GrammarVocabulary vocabulary;
  for (int64_t n = reader.number(); n > 0; --n) vocabulary.stop_ids.push_back(static_cast<int32_t>(reader.number()));
  for (int64_t n = reader.number(); n > 0; --n) vocabulary.tokens.emplace_back(reader.string());
  const auto backend = GrammarBackend::create(vocabulary, folder);
  if (!send_message(kWorkerSocket, backend.ok() ? "" : backend.error().message) || !backend.ok()) return 1;

  Warnings warnings;
  while (const auto message = receive_message(kWorkerSocket)) {
    const Job job = read_job(*message);
    limit_memory(job.limits.compile_bytes);
    limit_time(job.limits.compile_ms);
    warnings.take();
    const Status status = try_out(**backend, job, warnings);
    MessageWriter reply;
    reply.number(status.ok() ? -1 : static_cast<int64_t>(status.error().kind));
    reply.string(status.ok() ? "" : status.error().message);
    if (!send_message(kWorkerSocket, reply.bytes())) break;
  }
  return 0;
}

}  // namespace

int run_grammar_worker() {
  ::setpriority(PRIO_PROCESS, 0, 10);
  int code = 1;
  {
    const Result<StackThread> thread = StackThread::start(kTrialStackBytes, [&code] { code = serve(); });
  }
  return code;
}

}  // namespace baton::text
