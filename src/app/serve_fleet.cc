#include "app/serve_fleet.h"

#include <fmt/format.h>

#include "base/log.h"
#include "http/secret.h"
#include "transfer/nixl.h"
#include "transfer/nixl_library.h"
#include "transfer/same_host.h"

namespace baton::app {
namespace {

constexpr pd::Time kSecond = 1'000'000'000;

Result<std::unique_ptr<transfer::RemoteTransport>> open_transport(const std::string& name) {
  const auto library = name == "same-host" ? Result<const transfer::NixlFunctions*>(nullptr) : transfer::load_nixl();
  if (name == "nixl" && !library.ok()) return library.error();
  if (name == "nixl" || (name == "auto" && library.ok()))
    return std::unique_ptr<transfer::RemoteTransport>(std::make_unique<transfer::Nixl>());
  if (name == "auto") log_info("pages travel by copies within this machine: {}", library.error().message);
  return std::unique_ptr<transfer::RemoteTransport>(std::make_unique<transfer::SameHost>());
}

}  // namespace

Result<FleetParts> join_fleet(const server::Settings& s, engine::LocalOptions& o) {
  const bool prefill = s.role == "prefill", decode = s.role == "decode";
  if (!decode && !s.prefills.empty())
    return Error{Error::Kind::kInvalid, fmt::format("--prefill names prefill instances to a decode instance, and this one is {}", s.role)};
  if (s.fleet_certificate.empty() != s.fleet_key.empty())
    return Error{Error::Kind::kInvalid, "--fleet-certfile and --fleet-keyfile belong together; give both or none"};
  FleetParts parts;
  if (!prefill && !decode) return parts;
  fleet::PostOptions post{.self = fleet::this_process(s.host, static_cast<uint16_t>(s.port)),
                          .prefill = prefill,
                          .prefills = s.prefills,
                          .own_url = s.own_url,
                          .secret = {},
                          .tls = {.ca_file = s.fleet_ca, .certificate = s.fleet_certificate, .key = s.fleet_key}};
  if (!s.own_url.empty()) BATON_TRY(http::Url::parse(s.own_url));
  if (!s.fleet_secret_file.empty()) {
    BATON_ASSIGN(post.secret, http::read_secret(s.fleet_secret_file));
  }
  BATON_ASSIGN(parts.transport, open_transport(s.transfer_backend));
  BATON_ASSIGN(parts.post, fleet::Post::create(post, *parts.transport));
  o.hand_over.role = prefill ? engine::RoleKind::kPrefill : engine::RoleKind::kDecode;
  o.hand_over.links = {.self = post.self, .transport = parts.transport.get(), .messenger = parts.post.get()};
  // On a CPU a long prompt takes minutes; that an instance is silent, or that none is there, is noticed sooner.
  o.hand_over.waits.order_limit = 900 * kSecond;
  o.hand_over.waits.most_wait = 900 * kSecond;
  o.hand_over.waits.patience = o.hand_over.waits.most_alone = s.prefill_timeout_ms * (kSecond / 1000);
  return parts;
}

}  // namespace baton::app
