// Threads that take grammars from a queue, the workers that try them out, and the cache.
#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/log.h"
#include "text/grammar.h"
#include "text/grammar/compiled.h"
#include "text/grammar/spec_check.h"
#include "text/grammar/stack_thread.h"
#include "text/grammar/worker.h"

namespace baton::text {
namespace {

using Compiled = GrammarCompiler::Compiled;

constexpr size_t kEntryBytes = 256;  // what an entry of the cache takes beside its texts

std::string key_of(const GrammarSpec& spec) { return std::string(1, static_cast<char>('0' + static_cast<int>(spec.kind))) + spec.text; }

GrammarCompiler::Future ready(Result<Compiled> result) {
  std::promise<Result<Compiled>> promise;
  promise.set_value(std::move(result));
  return promise.get_future().share();
}

}  // namespace

struct GrammarCompiler::State {
  struct Job {
    std::string key;
    GrammarSpec spec;
    std::promise<Result<Compiled>> promise;
  };
  struct Entry {
    Future future;
    size_t bytes = 0;                      // 0 while it is being compiled: then it stays
    std::list<std::string>::iterator use;  // its place in `uses`
  };

  GrammarCompilerOptions options;
  std::shared_ptr<const GrammarBackend> backend;
  std::string worker_setup;

  mutable std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  std::deque<Job> waiting;
  std::unordered_map<std::string, Entry> cache;
  std::list<std::string> uses;  // keys, the last used first
  Counters counters;
  std::vector<StackThread> threads;

  bool stops() const {
    const std::scoped_lock lock(mutex);
    return stopping;
  }

  void run() {
    std::unique_ptr<GrammarWorker> worker;
    if (auto started = start_worker(); started.ok())
      worker = std::move(*started);
    else if (!stops())
      log_warning("{}", started.error().message);
    while (true) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return stopping || !waiting.empty(); });
      if (stopping) return;
      Job job = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      auto result = make(job.spec, worker);
      finish(job, std::move(result));
    }
  }

  Result<std::unique_ptr<GrammarWorker>> start_worker() {
    return GrammarWorker::start(options.worker_command, worker_setup, [this] { return stops(); });
  }

  Result<Compiled> make(const GrammarSpec& spec, std::unique_ptr<GrammarWorker>& worker) {
    BATON_TRY(check_grammar_spec(spec, options.limits));
    // A worker may have ended since the last grammar: another try with a fresh one.
    for (int attempt = 0;; ++attempt) {
      if (worker == nullptr) {
        BATON_ASSIGN(worker, start_worker());
      }
      const Status tried = worker->try_out(spec, options.limits);
      if (!worker->alive()) {
        worker.reset();
        const std::scoped_lock lock(mutex);
        ++counters.workers_killed;
      }
      if (tried.ok()) break;
      if (tried.error().kind != Error::Kind::kIo || attempt > 0) return tried.error();
    }
    auto state = std::make_unique<CompiledGrammar::State>();
    state->backend = backend;
    state->mask_us = options.limits.mask_us;
    BATON_ASSIGN(state->grammar, backend->compile(spec));
    BATON_ASSIGN(state->bytes, backend->bytes(state->grammar));
    return Compiled(std::make_shared<const CompiledGrammar>(std::move(state)));
  }

  void finish(Job& job, Result<Compiled> result) {
    {
      const std::scoped_lock lock(mutex);
      ++(result.ok() ? counters.compiled : counters.refused);
      const auto entry = cache.find(job.key);
      // What is wrong stays wrong; what took too long may have had bad luck.
      const bool lasting = result.ok() || result.error().kind == Error::Kind::kInvalid || result.error().kind == Error::Kind::kUnsupported;
      if (lasting) {
        entry->second.bytes = kEntryBytes + 2 * job.key.size() + (result.ok() ? (*result)->bytes() : result.error().message.size());
        counters.cached_bytes += entry->second.bytes;
        make_room();
      } else {
        uses.erase(entry->second.use);
        cache.erase(entry);
      }
    }
    job.promise.set_value(std::move(result));
  }

  void make_room() {
    for (auto at = uses.end(); counters.cached_bytes > options.cache_bytes && at != uses.begin();) {
      --at;
      const auto entry = cache.find(*at);
      if (entry->second.bytes == 0) continue;
      counters.cached_bytes -= entry->second.bytes;
      cache.erase(entry);
      at = uses.erase(at);
    }
  }
};

GrammarCompiler::GrammarCompiler(std::unique_ptr<State> state) : state_(std::move(state)) {}

Result<std::unique_ptr<GrammarCompiler>> GrammarCompiler::start(GrammarVocabulary vocabulary, GrammarCompilerOptions options) {
  auto state = std::make_unique<State>();
  BATON_ASSIGN(state->backend, GrammarBackend::create(vocabulary, options.library_folder));
  state->worker_setup = GrammarWorker::setup_of(vocabulary, options.library_folder);
  state->options = std::move(options);
  std::unique_ptr<GrammarCompiler> compiler(new GrammarCompiler(std::move(state)));
  State* shared = compiler->state_.get();
  for (int i = 0; i < shared->options.workers; ++i) {
    Result<StackThread> thread = StackThread::start(kCompileStackBytes, [shared] { shared->run(); });
    if (!thread.ok() && i == 0) return thread.error();
    if (!thread.ok()) break;  // those that there are do
    shared->threads.push_back(std::move(*thread));
  }
  return compiler;
}

GrammarCompiler::~GrammarCompiler() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->threads.clear();
  for (State::Job& job : state_->waiting) job.promise.set_value(Error{Error::Kind::kIo, "the server is stopping"});
}

GrammarCompiler::Future GrammarCompiler::compile(GrammarSpec spec) {
  State& s = *state_;
  // Checked here as well, so that nothing larger is ever held.
  if (spec.text.size() > s.options.limits.spec_bytes) {
    const Status status = check_grammar_spec(spec, s.options.limits);
    const std::scoped_lock lock(s.mutex);
    ++s.counters.refused;
    return ready(status.error());
  }
  std::string key = key_of(spec);
  const std::scoped_lock lock(s.mutex);
  if (const auto entry = s.cache.find(key); entry != s.cache.end()) {
    ++s.counters.cache_hits;
    s.uses.splice(s.uses.begin(), s.uses, entry->second.use);
    return entry->second.future;
  }
  if (s.waiting.size() >= s.options.most_waiting) {
    ++s.counters.busy;
    return ready(Error{Error::Kind::kIo, fmt::format("{} grammars are waiting to be compiled; try again later", s.waiting.size())});
  }
  State::Job job{key, std::move(spec), {}};
  Future future = job.promise.get_future().share();
  s.uses.push_front(key);
  s.cache.emplace(std::move(key), State::Entry{future, 0, s.uses.begin()});
  s.waiting.push_back(std::move(job));
  s.changed.notify_one();
  return future;
}

GrammarCompiler::Counters GrammarCompiler::counters() const {
  const std::scoped_lock lock(state_->mutex);
  Counters counters = state_->counters;
  counters.waiting = state_->waiting.size();
  return counters;
}

}  // namespace baton::text
