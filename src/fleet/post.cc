#include "fleet/post.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "api/json_text.h"
#include "base/log.h"
#include "http/secret.h"

namespace baton::fleet {
namespace {

constexpr size_t kMostWork = 64;
constexpr size_t kMostEndpoints = 4 * kMostPeers;
constexpr std::chrono::seconds kMessagesTimeout(3), kMeetingTimeout(15);
constexpr TimeMs kRefusedPause = 1000;  // from one that does not want to be met

std::string name_of(pd::Process p) { return fmt::format("{:08x}.{}", p.instance, p.epoch); }

}  // namespace

pd::Process this_process(const std::string& host, uint16_t port) {
  char machine[256] = {};
  ::gethostname(machine, sizeof machine - 1);
  std::string name = fmt::format("{} {} {}", machine, host, port);
  if (port == 0) name += fmt::format(" {:x}{:x}", std::random_device()(), std::random_device()());
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return {.instance = std::max<pd::InstanceId>(1, static_cast<pd::InstanceId>(XXH3_64bits(name.data(), name.size()))),
          .epoch = static_cast<pd::Epoch>(std::chrono::duration_cast<std::chrono::nanoseconds>(since_1970).count())};
}

// Hears how a call went.
class Post::Hearing final : public http::Receiver {
 public:
  Hearing(Post& post, PeerId peer) : post_(post), peer_(peer) {}
  void on_head(int status, const http::HeaderList&) override { status_ = status; }
  void on_body(std::string_view bytes) override {
    constexpr size_t kMost = 4096;
    body_ += bytes.substr(0, kMost - std::min(kMost, body_.size()));
  }
  void on_end(const http::CallEnd& end) override { post_.over(peer_, status_, body_, end); }

 private:
  Post& post_;
  PeerId peer_;
  int status_ = 0;
  std::string body_;
};

TimeMs Post::now() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Result<std::unique_ptr<Post>> Post::create(PostOptions options, transfer::RemoteTransport& transport) {
  std::unique_ptr<Post> post(new Post(std::move(options), transport));
  for (const std::string& url : post->options_.prefills) BATON_TRY(post->add(url, true));
  BATON_ASSIGN(post->loop_, http::ClientLoop::start({.tls = post->options_.tls}));
  return post;
}

Post::~Post() { close(); }

void Post::open(engine::Engine& engine, uint16_t port, bool tls) {
  meeting_ =
      encode(Meeting{.from = options_.self, .url = options_.own_url, .port = port, .tls = tls, .introduction = transport_.introduction()});
  {
    const std::lock_guard lock(mutex_);
    engine_ = &engine;
  }
  worker_ = std::thread([this] { work(); });
  loop_->post([this] { loop_->on_tick([this] { make_calls(); }); });
}

void Post::close() {
  {
    const std::lock_guard lock(mutex_);
    engine_ = nullptr;
  }
  if (loop_ != nullptr) loop_->stop();
  {
    const std::lock_guard lock(work_mutex_);
    stopping_ = true;
  }
  working_.notify_all();
  if (worker_.joinable()) worker_.join();
}

// --- messages

void Post::send(pd::Process to, std::span<const std::byte> message) {
  {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) return;
    peers_.queue(to, message);
  }
  wake();
}

// Many messages wake the loop once.
void Post::wake() {
  if (woken_.exchange(true)) return;
  loop_->post([this] {
    woken_ = false;
    make_calls();
  });
}

// On the loop's thread.
void Post::make_calls() {
  struct Ready {
    Peers::Call call;
    http::Endpoint endpoint;
  };
  std::vector<Ready> ready;
  {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) return;
    for (Peers::Call& call : peers_.calls(now())) {
      const auto endpoint = endpoints_.find(peers_.all().at(call.peer).url);
      if (endpoint != endpoints_.end())
        ready.push_back({std::move(call), endpoint->second});
      else
        peers_.failed(call.peer, false, "its name is not known", now());
    }
    settle();
  }
  for (const Ready& r : ready) {
    Batch batch{.from = options_.self, .to = r.call.to};
    batch.messages.assign(r.call.messages.begin(), r.call.messages.end());
    const auto body = std::make_shared<const std::string>(r.call.meet ? meeting_ : encode(batch));
    http::HeaderList headers{{"content-type", "application/octet-stream"}};
    if (!options_.secret.empty()) headers.emplace_back(http::kFleetSecretHeader, options_.secret);
    loop_->call({.endpoint = r.endpoint,
                 .method = "POST",
                 .target = r.call.meet ? "/fleet/meet" : "/fleet/messages",
                 .headers = std::move(headers),
                 .body = *body,
                 .held = body,
                 .silence_timeout = r.call.meet ? kMeetingTimeout : kMessagesTimeout},
                std::make_shared<Hearing>(*this, r.call.peer));
  }
}

void Post::over(PeerId peer, int status, const std::string& body, const http::CallEnd& end) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.all().find(peer);
  if (found == peers_.all().end()) return;
  const bool was_met = found->second.met;
  const std::string before = found->second.why, url = found->second.url;
  if (!end.complete) {
    peers_.failed(peer, end.refused, end.problem, now());
  } else if (status != 200) {
    constexpr size_t kMostShown = 300;
    peers_.failed(peer, false, fmt::format("it answered {}: {}", status, body.substr(0, kMostShown)), now(), kRefusedPause);
  } else if (const auto reply = read_reply(body); !reply.ok()) {
    peers_.failed(peer, false, reply.error().message, now(), kRefusedPause);
  } else {
    peers_.answered(peer, *reply, now());
  }
  settle();
  const auto after = peers_.all().find(peer);
  if (after == peers_.all().end()) return;
  const Peer& p = after->second;
  if (p.met != was_met)
    log_info("instance {} ({}) {}", url, name_of(p.process), p.met ? "was met" : "is not there any more");
  else if (p.why != before && !p.why.empty())
    log_warning("instance {} cannot be {}: {}", url, p.met ? "told anything" : "met", p.why);
  wake();
}

// What has changed is told to the engine and to the transport.
void Post::settle() {
  for (const pd::Process p : peers_.take_gone()) {
    ++gone_;
    transport_.part_with({p.instance, p.epoch});
    if (engine_ != nullptr) engine_->gone(p);
  }
  if (options_.prefill) return;
  std::vector<pd::InstanceId> there = peers_.prefills(now());
  there_.store(std::ssize(there), std::memory_order_relaxed);
  if (there == told_ || engine_ == nullptr) return;
  told_ = there;
  engine_->set_prefills(std::move(there));
}

void Post::messages(std::string_view body, const Answer& answer) {
  const auto batch = read_batch(body);
  if (!batch.ok()) return answer(400, batch.error().message);
  Reply reply{.self = options_.self, .known = false, .ready = !draining_};
  {
    const std::lock_guard lock(mutex_);
    reply.known = engine_ != nullptr && peers_.knows(batch->from);
    if (reply.known && batch->to == options_.self) {
      received_ += std::ssize(batch->messages);
      for (const std::span<const std::byte> m : batch->messages) engine_->deliver(m);
    }
  }
  answer(200, encode(reply));
}

// --- meetings

void Post::meet(std::string_view body, const std::string& peer, Answer answer) {
  if (!options_.prefill) return answer(409, "this is a decode instance; decode instances introduce themselves to prefill instances");
  auto meeting = read_meeting(body);
  if (!meeting.ok()) return answer(400, meeting.error().message);
  const auto work = [this, peer, answer, m = std::make_shared<const Meeting>(std::move(*meeting))] { meet_now(*m, peer, answer); };
  if (!later(work)) answer(503, "as many instances wait to be met as may");
}

// On the worker's thread, since the transport may wait.
void Post::meet_now(const Meeting& m, const std::string& peer, const Answer& answer) {
  const Result<std::string> url = url_of(m, peer);
  if (!url.ok()) return answer(400, url.error().message);
  const auto endpoint = http::Endpoint::resolve(*http::Url::parse(*url));
  if (!endpoint.ok()) return answer(400, endpoint.error().message);
  const auto met = transport_.meet(m.introduction);
  if (!met.ok()) return answer(met.error().kind == Error::Kind::kIo ? 503 : 409, met.error().message);
  if (*met != transfer::Agent{m.from.instance, m.from.epoch}) {
    transport_.part_with(*met);
    return answer(400, "the introduction is of another process than its sender");
  }
  const std::lock_guard lock(mutex_);
  const bool room = engine_ != nullptr && endpoints_.size() < kMostEndpoints && peers_.introduced(m.from, *url, now());
  if (room) endpoints_[*url] = *endpoint;
  settle();
  std::erase_if(endpoints_, [this](const auto& e) {
    return std::ranges::none_of(peers_.all(), [&e](const auto& p) { return p.second.url == e.first; });
  });
  if (!room) {
    transport_.part_with(*met);
    return answer(503, "as many instances are known as may be, or a later process of this one is");
  }
  log_info("decode instance {} ({}) was met", *url, name_of(m.from));
  answer(200, encode(Reply{.self = options_.self, .known = true, .ready = !draining_}));
}

Result<std::string> Post::url_of(const Meeting& m, const std::string& peer) const {
  if (!m.url.empty()) {
    BATON_ASSIGN(const http::Url url, http::Url::parse(m.url));
    return fmt::format("{}://{}", url.tls ? "https" : "http", http::Endpoint{.host = url.host, .port = url.port}.authority());
  }
  const size_t colon = peer.rfind(':');
  const std::string address = peer.substr(0, colon);
  const std::string text =
      fmt::format("{}://{}:{}", m.tls ? "https" : "http",
                  address.find(':') != std::string::npos && !address.starts_with('[') ? "[" + address + "]" : address, m.port);
  BATON_TRY(http::Url::parse(text));
  return text;
}

// --- lists

// May wait for the system's resolver. With no lock held where the work may wait.
Status Post::add(const std::string& text, bool fixed) {
  BATON_ASSIGN(const http::Url url, http::Url::parse(text));
  if (!url.path.empty() && url.path != "/")
    return Error{.message = fmt::format("the instance {} is given with a path; write scheme, host and port alone", text)};
  BATON_ASSIGN(const http::Endpoint endpoint, http::Endpoint::resolve(url));
  const std::string name = fmt::format("{}://{}", url.tls ? "https" : "http", endpoint.authority());
  const std::lock_guard lock(mutex_);
  if (endpoints_.size() >= kMostEndpoints && !endpoints_.contains(name)) return {};
  endpoints_[name] = endpoint;
  peers_.list(name, fixed, now());
  return {};
}

void Post::list(std::string_view urls) {
  if (options_.prefill) return;
  std::vector<std::string> all;
  bool known = true;
  for (std::string_view rest = urls; !rest.empty() && all.size() < kMostPeers;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view url = rest.substr(0, comma);
    while (url.starts_with(' ')) url.remove_prefix(1);
    while (url.ends_with(' ')) url.remove_suffix(1);
    if (!url.empty()) all.emplace_back(url);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  {
    const std::lock_guard lock(mutex_);
    // Those that are known are named again and again; others have to be looked up first.
    for (const std::string& url : all) {
      const bool there =
          endpoints_.contains(url) && std::ranges::any_of(peers_.all(), [&url](const auto& p) { return p.second.url == url; });
      if (there) peers_.list(url, false, now());
      known = known && there;
    }
    std::erase_if(endpoints_, [this](const auto& e) {
      return std::ranges::none_of(peers_.all(), [&e](const auto& p) { return p.second.url == e.first; });
    });
    if (known || std::exchange(listed_, std::string(urls)) == urls) return;
  }
  later([this, all = std::move(all)] {
    for (const std::string& url : all)
      if (const Status s = add(url, false); !s.ok()) log_warning("of the router's list: {}", s.error().message);
    const std::lock_guard lock(mutex_);
    listed_.clear();
  });
}

// --- the worker

bool Post::later(std::function<void()> task) {
  {
    const std::lock_guard lock(work_mutex_);
    if (stopping_ || work_.size() >= kMostWork) return false;
    work_.push_back(std::move(task));
  }
  working_.notify_one();
  return true;
}

void Post::work() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(work_mutex_);
      working_.wait(lock, [this] { return stopping_ || !work_.empty(); });
      if (stopping_) return;
      task = std::move(work_.front());
      work_.pop_front();
    }
    task();
  }
}

// --- what is seen of it

Post::Totals Post::totals() const {
  const std::lock_guard lock(mutex_);
  Totals t{.peers = std::ssize(peers_.all()),
           .prefills_there = prefills_there(),
           .received = received_,
           .dropped = peers_.stray(),
           .gone = gone_};
  for (const auto& [id, p] : peers_.all()) {
    t.met += p.met ? 1 : 0;
    t.sent += p.sent;
    t.dropped += p.dropped;
    t.failed_calls += p.failed_calls;
  }
  return t;
}

std::string Post::json() const {
  std::string out = fmt::format(R"("role":"{}","instance":"{}","ready_prefills":{},"peers":[)", options_.prefill ? "prefill" : "decode",
                                name_of(options_.self), prefills_there());
  const std::lock_guard lock(mutex_);
  bool first = true;
  for (const auto& [id, p] : peers_.all()) {
    out += std::exchange(first, false) ? R"({"url":)" : R"(,{"url":)";
    api::append_string(out, p.url);
    out += R"(,"process":)";
    api::append_string(out, p.process.epoch == 0 ? "" : name_of(p.process));
    out += fmt::format(R"(,"met":{},"ready":{},"why":)", p.met, p.ready);
    api::append_string(out, p.why);
    out += fmt::format(R"(,"queued":{},"sent":{},"dropped":{},"failed_calls":{}}})", p.queue.size(), p.sent, p.dropped, p.failed_calls);
  }
  return out + "]";
}

}  // namespace baton::fleet
