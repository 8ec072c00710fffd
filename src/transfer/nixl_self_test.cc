#include "transfer/nixl_self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "transfer/nixl_agent.h"

namespace baton::transfer {
namespace {

constexpr int64_t kPage = 4096;
constexpr int kPages = 3;
constexpr std::chrono::seconds kLimit{30};

using Pages = std::vector<std::byte>;

std::vector<NixlAgent::Piece> pieces(const Pages& pages) {
  std::vector<NixlAgent::Piece> all;
  for (int i = 0; i < kPages; ++i) all.push_back({reinterpret_cast<uint64_t>(pages.data()) + static_cast<uint64_t>(i * kPage), kPage});
  return all;
}

// What went wrong, or nothing.
Result<std::string> write_a_page(NixlAgent& from, const Pages& source, NixlAgent& to, Pages& target) {
  BATON_TRY(from.add_memory({}, pieces(source)));
  BATON_TRY(to.add_memory({}, pieces(target)));
  BATON_ASSIGN(const auto address, to.address());
  BATON_ASSIGN(const std::string peer, from.add_peer(address));
  BATON_ASSIGN(const NixlHandle own, from.prepare({}, {}, pieces(source)));
  BATON_ASSIGN(const NixlHandle remote, from.prepare(peer, {}, pieces(target)));
  const std::vector<std::byte> sent = {std::byte{3}, std::byte{0}, std::byte{1}};
  std::vector<std::byte> came;
  Pages when_it_came;
  const int last[] = {2}, middle[] = {1};
  NixlHandle request = nullptr;
  auto progress = from.write(own, last, remote, middle, sent, request);
  const auto ends = std::chrono::steady_clock::now() + kLimit;
  while ((progress == NixlAgent::Progress::kUnderWay || came.empty()) && std::chrono::steady_clock::now() < ends) {
    if (progress == NixlAgent::Progress::kFailed) break;
    to.poll([&](std::span<const std::byte> notice) {
      came.assign(notice.begin(), notice.end());
      when_it_came = target;
    });
    from.poll([](auto) {});
    if (progress == NixlAgent::Progress::kUnderWay) progress = from.status(request);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  const bool over = from.release_request(request);
  if (!over) return std::string("a write does not end");
  from.release_list(own);
  from.release_list(remote);
  from.drop_peer(peer);
  if (progress != NixlAgent::Progress::kDone) return std::string("a write fails");
  if (came != sent) return std::string("a notice does not come, or is another one");
  Pages wanted(target.size(), std::byte{0xEE});
  std::copy_n(source.begin() + 2 * kPage, kPage, wanted.begin() + kPage);
  if (when_it_came != wanted) return std::string("other bytes are there than were written");
  return std::string();
}

Status run(const NixlFunctions& library) {
  std::random_device random;
  const std::string unique = fmt::format("baton-self-test-{:08x}{:08x}", random(), random());
  Pages source(kPages * kPage), target(kPages * kPage, std::byte{0xEE});
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 256);
  BATON_ASSIGN(auto from, NixlAgent::make(library, unique + "-a"));
  BATON_ASSIGN(auto to, NixlAgent::make(library, unique + "-b"));
  const Result<std::string> problem = write_a_page(*from, source, *to, target);
  if (problem.ok() && problem->empty()) return {};
  // They are in an unknown state.
  NixlAgent::abandon(std::move(from));
  NixlAgent::abandon(std::move(to));
  return Error{Error::Kind::kUnsupported,
               fmt::format("writing into other processes is not available: NIXL does not do on this machine what it should: {}. "
                           "NIXL_LOG_LEVEL=INFO and UCX_LOG_LEVEL=info in the environment say more",
                           problem.ok() ? *problem : problem.error().message)};
}

}  // namespace

Status nixl_self_test(const NixlFunctions& library) {
  static std::mutex mutex;
  static std::optional<Status> result;
  const std::lock_guard lock(mutex);
  if (!result) result = run(library);
  return *result;
}

}  // namespace baton::transfer
