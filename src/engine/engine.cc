#include "engine/engine.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/check.h"
#include "base/log.h"

namespace baton::engine {
namespace {

sched::Time now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Processor time of the calling thread.
int64_t thread_cpu() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<CycleExecutor> executor, const EngineOptions& options,
                                               std::unique_ptr<Role> role) {
  BATON_ASSIGN(auto scheduler, sched::Scheduler::create(options.scheduler));
  std::unique_ptr<Engine> engine(new Engine(std::move(executor), options, std::move(scheduler), std::move(role)));
  Engine* e = engine.get();
  if (e->role_) BATON_TRY(e->role_->start(*e->scheduler_, [e] { e->wake(); }));
  e->executor_->on_result([e] {
    {
      const std::lock_guard lock(e->mutex_);
      e->result_there_ = true;
    }
    e->mailed_.notify_one();
  });
  e->thread_ = std::thread([e] { e->run(); });
  return engine;
}

Engine::Engine(std::unique_ptr<CycleExecutor> executor, const EngineOptions& options, std::unique_ptr<sched::Scheduler> scheduler,
               std::unique_ptr<Role> role)
    : options_(options), executor_(std::move(executor)), scheduler_(std::move(scheduler)), role_(std::move(role)) {
  published_.scheduler = scheduler_->metrics();
  steps_.reserve(sched::kCyclesInFlight);
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  mailed_.notify_one();
  if (thread_.joinable()) thread_.join();  // it is not where the system refused a thread
  role_.reset();                           // before the memory that others write into
  executor_.reset();                       // before what its notification uses
}

Result<sched::RequestId> Engine::submit(sched::RequestSpec spec, Sink& sink, std::unique_ptr<Constraint> constraint) {
  if (role_) BATON_TRY(role_->check(spec));
  BATON_TRY(sched::Scheduler::check(spec, options_.scheduler));  // here, since a long prompt takes a while to look through
  Constraints constraints;
  if (constraint) {
    if (const int64_t words = (options_.scheduler.vocabulary + 31) / 32; static_cast<int64_t>(constraint->mask_words()) < words)
      return Error{Error::Kind::kInvalid, fmt::format("the constraint's masks have {} words; {} tokens need {}", constraint->mask_words(),
                                                      options_.scheduler.vocabulary, words)};
    for (int32_t c = 1; c < spec.choices; ++c) {
      BATON_ASSIGN(auto other, constraint->fork());
      constraints.push_back(std::move(other));
    }
    constraints.push_back(std::move(constraint));
  }
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_ && static_cast<int32_t>(mail_.size()) < options_.max_mail) {
      const sched::RequestId id = next_id_++;
      mail_.emplace_back(Submit{id, std::move(spec), &sink, std::move(constraints)});
      mailed_.notify_one();
      return id;
    }
  }
  return Error{Error::Kind::kExhausted, fmt::format("{} messages wait for the engine, as many as may; try again later", options_.max_mail)};
}

// Messages about requests that were taken are never turned away: there are at most a few for each.
void Engine::cancel(sched::RequestId id) {
  const std::lock_guard lock(mutex_);
  mail_.emplace_back(Cancel{id});
  mailed_.notify_one();
}

void Engine::stop(sched::RequestId id, int32_t choice) {
  const std::lock_guard lock(mutex_);
  mail_.emplace_back(Stop{id, choice});
  mailed_.notify_one();
}

void Engine::deliver(std::span<const std::byte> message) {
  const std::lock_guard lock(mutex_);
  if (static_cast<int32_t>(mail_.size()) >= options_.max_mail) return;
  mail_.emplace_back(Delivered{{message.begin(), message.end()}});
  mailed_.notify_one();
}

// There are few of these, and they count only once each.
void Engine::set_prefills(std::vector<pd::InstanceId> instances) {
  const std::lock_guard lock(mutex_);
  mail_.emplace_back(Prefills{std::move(instances)});
  mailed_.notify_one();
}

void Engine::gone(pd::Process process) {
  const std::lock_guard lock(mutex_);
  mail_.emplace_back(Gone{process});
  mailed_.notify_one();
}

void Engine::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  mailed_.notify_one();
}

int32_t Engine::flush_cache() {
  int32_t pages = 0;
  bool done = false;
  std::unique_lock lock(mutex_);
  mail_.emplace_back(Flush{&pages, &done});
  mailed_.notify_one();
  settled_.wait(lock, [&done] { return done; });
  return pages;
}

void Engine::wait_idle() {
  std::unique_lock lock(mutex_);
  settled_.wait(lock, [this] { return idle_ && mail_.empty(); });
}

EngineMetrics Engine::metrics() const {
  const std::lock_guard lock(mutex_);
  EngineMetrics m = published_;
  m.mail = static_cast<int64_t>(mail_.size());
  return m;
}

void Engine::run() {
  const int32_t ahead = options_.plan_ahead ? sched::kCyclesInFlight : 1;
  while (true) {
    const sched::Time begin = now();
    if (!read_mail()) break;
    do {
      if (has_role()) role_->advance(now());
      while (scheduler_->in_flight() < ahead && plan()) {
      }
      tell(nullptr);  // deadlines and cancellations
    } while (has_role() && role_->busy());
    step_ns_ += now() - begin;
    publish();
    wait();
    sched::Time start = now();
    while (const CycleResult* result = executor_->poll()) {
      finish(*result);
      const sched::Time end = now();
      const int64_t cpu = thread_cpu();
      steps_.push_back({step_ns_ + end - start, cpu - cpu_ns_});
      step_ns_ = 0;
      cpu_ns_ = cpu;
      start = end;
    }
  }
}

// Takes what has arrived; false when the engine is to stop and nothing is left to end.
bool Engine::read_mail() {
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    reading_.swap(mail_);
    if (!reading_.empty()) idle_ = false;
    stopping = stopping_;
  }
  for (Message& m : reading_) std::visit([this](auto& message) { handle(message); }, m);
  reading_.clear();
  return !stopping || !stop_now();
}

// Ends what is left; whether nothing is.
bool Engine::stop_now() {
  for (const auto& [id, listener] : listeners_) cancel_now(id);
  if (has_role()) {
    role_->advance(now());
    tell(nullptr);
    role_->stop();
    role_stopped_ = true;
  }
  tell(nullptr);
  return scheduler_->idle();
}

void Engine::cancel_now(sched::RequestId id) { has_role() ? role_->cancel(id, now()) : scheduler_->cancel(id); }

void Engine::handle(const Delivered& m) {
  if (has_role()) role_->receive(m.message, now());
}

void Engine::handle(const Prefills& m) {
  if (has_role()) role_->set_prefills(m.instances);
}

void Engine::handle(const Gone& m) {
  if (has_role()) role_->gone(m.process, now());
}

void Engine::handle(Submit& m) {
  const int32_t logprobs = m.spec.sampling.logprobs;
  const Status taken = has_role() ? role_->submit(m.id, std::move(m.spec), now()) : scheduler_->submit(m.id, std::move(m.spec), now());
  if (!taken.ok()) return m.sink->on_refused(taken.error());
  listeners_.emplace(m.id, Listener{m.sink, logprobs});
  if (!m.constraints.empty()) constraints_.emplace(m.id, std::move(m.constraints));
}

void Engine::handle(const Flush& m) {
  const int32_t pages = scheduler_->flush_cache();
  {
    const std::lock_guard lock(mutex_);
    *m.pages = pages;
    *m.done = true;
  }
  settled_.notify_all();
}

bool Engine::plan() {
  if (!scheduler_->plan(now(), cycle_)) return false;
  bound_.clear();
  for (const sched::Bind& b : cycle_.binds) {
    const auto constraints = constraints_.find(b.request);
    Constraint* constraint = constraints == constraints_.end() ? nullptr : constraints->second[static_cast<size_t>(b.choice)].get();
    bound_.push_back({scheduler_->find(b.request), constraint});
  }
  const auto decodes = [](const sched::Rows& r) { return r.ids_begin == sched::kDrawnToken; };
  const int64_t sequences = std::count_if(cycle_.rows.begin(), cycle_.rows.end(), decodes);
  launched_.push_back({sequences, sequences < std::ssize(cycle_.rows)});
  executor_->launch(cycle_, bound_);
  return true;
}

void Engine::finish(const CycleResult& result) {
  const Launched launched = launched_.front();
  launched_.pop_front();
  device_.add(result.times);
  if (!launched.prompts) {
    decoding_.add(result.times);
    ++decoding_cycles_;
    decoding_sequences_ += launched.sequences;
    const auto drafts = std::accumulate(result.drafted.begin(), result.drafted.end(), int64_t{0});
    costs_.observe(launched.sequences, drafts, static_cast<double>(result.times.all) * 1e-9);
    if (options_.scheduler.adaptive_drafts) scheduler_->set_cycle_costs(costs_);
  }
  if (result.failed) {
    log_error("a cycle failed, and all requests that have run end: {}", result.error);
    if (has_role()) role_->device_failed(now());
    scheduler_->fail();
  } else {
    scheduler_->complete({result.tokens, result.ends, result.drafted});
  }
  tell(&result);
}

void Engine::tell(const CycleResult* result) {
  for (const sched::Event& e : scheduler_->events())
    if (role_ == nullptr || !role_->takes(e, now())) tell(e, result);
  scheduler_->clear_events();
  if (role_) {
    for (const sched::Event& e : role_->events()) {
      const auto found = listeners_.find(e.request);
      if (e.reason == sched::FinishReason::kFailed && found != listeners_.end())
        found->second.sink->on_problem(e.choice, {Error::Kind::kIo, "no prefill instance has computed this prompt in time"});
      tell(e, nullptr);
    }
    role_->clear_events();
  }
  drop_constraints();
}

void Engine::tell(const sched::Event& e, const CycleResult* result) {
  const auto found = listeners_.find(e.request);
  BATON_CHECK(found != listeners_.end());
  const Listener listener = found->second;
  if (e.score >= 0) {
    BATON_CHECK(static_cast<size_t>(e.score) < result->scores.size());
    const CycleResult::Score& score = result->scores[static_cast<size_t>(e.score)];
    listener.sink->on_prompt_logprobs(score.position, score.logprobs, score.top);
    return;
  }
  float logprob = 0;
  std::span<const ops::TokenLogprob> top;
  if (e.token >= 0 && e.draw >= 0 && listener.logprobs >= 0) {  // others of the cycle may have asked for more, or for none
    logprob = result->logprobs[static_cast<size_t>(e.draw)];
    top = result->top_of(e.draw).first(static_cast<size_t>(listener.logprobs));
  }
  if (e.reason == sched::FinishReason::kConstraint) {
    const auto problem = std::find_if(result->problems.begin(), result->problems.end(), [&e](const auto& p) { return p.draw == e.draw; });
    BATON_CHECK(problem != result->problems.end());
    listener.sink->on_problem(e.choice, problem->error);
  }
  if (e.last) {
    if (constraints_.contains(e.request)) told_.push_back(e.request);
    listeners_.erase(found);
  }
  listener.sink->on_event(e, logprob, top);
}

void Engine::drop_constraints() {
  std::erase_if(told_, [this](sched::RequestId id) {
    const bool forgotten = scheduler_->find(id) == nullptr;
    if (forgotten) constraints_.erase(id);
    return forgotten;
  });
}

// Until there is a result, mail, or a deadline while nothing runs.
void Engine::wait() {
  std::unique_lock lock(mutex_);
  const bool running = scheduler_->in_flight() > 0;
  const auto something = [&] { return result_there_ || woken_ || !mail_.empty() || (stopping_ && !running); };
  sched::Time until = running ? sched::kNever : scheduler_->next_deadline();
  if (has_role()) until = std::min(until, role_->next_wake());
  if (until == sched::kNever)
    mailed_.wait(lock, something);
  else
    mailed_.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(until)), something);
  result_there_ = woken_ = false;
}

void Engine::publish() {
  {
    const std::lock_guard lock(mutex_);
    published_.scheduler = scheduler_->metrics();
    published_.device = device_;
    published_.decoding = decoding_;
    published_.decoding_cycles = decoding_cycles_;
    published_.decoding_sequences = decoding_sequences_;
    for (const Step& s : steps_) {
      published_.host_time.add(s.time_ns);
      published_.host_cpu.add(s.cpu_ns);
    }
    if (role_) published_.role = role_->metrics();
    idle_ = scheduler_->idle() && (!has_role() || role_->idle());
  }
  steps_.clear();
  settled_.notify_all();
}

}  // namespace baton::engine
