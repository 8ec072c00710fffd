#include "sim/fault.h"

#include <algorithm>

#include "sim/random.h"

namespace baton::sim {
namespace {

constexpr std::array<const char*, kFaultKinds> kNames = {"loss",      "double", "delay",    "late-write",    "write-error",
                                                         "corrupt",   "cancel", "deadline", "crash-prefill", "crash-decode",
                                                         "partition", "hang",   "slow",     "skew",          "device"};

bool left_out(uint32_t without, Fault f) { return (without >> static_cast<uint32_t>(f) & 1U) != 0; }

}  // namespace

const char* name(Fault fault) { return kNames[static_cast<size_t>(fault)]; }

bool fault_bit(const std::string& name, uint32_t& bits) {
  for (size_t i = 0; i < kFaultKinds; ++i)
    if (name == kNames[i]) {
      bits |= 1U << i;
      return true;
    }
  return false;
}

Climate climate(uint64_t seed, uint32_t without) {
  Random r(seed, 1);
  Climate c;
  c.decodes = static_cast<int32_t>(r.between(1, 3));
  c.prefills = static_cast<int32_t>(r.between(1, 3));
  c.decode_slots = static_cast<int32_t>(r.between(3, 8));
  c.decode_pages = static_cast<int32_t>(r.between(8, 8 + 5 * c.decode_slots));
  c.host_slots = static_cast<int32_t>(r.below(2) * r.between(1, 3));
  c.prefill_slots = static_cast<int32_t>(r.between(1, 4));
  c.prefill_pages = static_cast<int32_t>(r.between(8, 40));
  c.snapshots = static_cast<int32_t>(r.between(0, 5));
  c.prefill_tokens = r.chance(0.1) ? 50 : 64 * r.between(1, 6);
  c.growth_tokens = r.between(1, 64);
  c.requests_per_hour = static_cast<double>(r.between(2000, 12'000));
  c.calm = r.chance(0.08);
  const double bad = c.calm ? 0 : r.unit();
  const auto set = [&](Fault f, double most) {
    const double chance = r.chance(0.8) ? bad * r.unit() * most : 0;  // some worlds know nothing of some faults
    if (!left_out(without, f)) c.chance[static_cast<size_t>(f)] = chance;
  };
  set(Fault::kLoss, 0.1);
  set(Fault::kDouble, 0.1);
  set(Fault::kDelay, 0.05);
  set(Fault::kLateWrite, 0.1);
  set(Fault::kWriteError, 0.02);
  set(Fault::kCorrupt, 0.01);
  set(Fault::kCancel, 0.3);
  set(Fault::kDeadline, 0.4);
  c.mishaps_per_hour = c.calm ? 0 : 200 * r.unit() * r.unit();
  return c;
}

// Every mishap is drawn whether or not its kind is left out, so that leaving one kind out leaves the others where they are.
std::vector<Mishap> mishaps(uint64_t seed, const Climate& c, Time length, uint32_t without) {
  Random r(seed, 2);
  std::vector<Mishap> all;
  const auto count = static_cast<int64_t>(c.mishaps_per_hour * static_cast<double>(length) / static_cast<double>(3600 * kSecond));
  const int32_t instances = c.decodes + c.prefills;
  for (int64_t i = 0; i < count; ++i) {
    Mishap m{.kind = static_cast<Fault>(r.between(static_cast<int64_t>(Fault::kCrashPrefill), static_cast<int64_t>(Fault::kSlow)))};
    m.at = r.below(length);
    m.lasts = r.chance(0.2) ? r.between(20, 120) * kSecond : r.between(10, 20'000) * kMillisecond;
    const auto decode = static_cast<int32_t>(r.below(c.decodes));
    const auto prefill = c.decodes + static_cast<int32_t>(r.below(c.prefills));
    const auto any = static_cast<int32_t>(r.below(instances));
    m.victim = m.kind == Fault::kCrashPrefill ? prefill : m.kind == Fault::kCrashDecode || m.kind == Fault::kPartition ? decode : any;
    m.other = prefill;
    m.told = r.chance(0.3);
    all.push_back(m);
  }
  Random devices(seed, 7);
  for (int64_t i = 0; i < count / 2; ++i) {
    Mishap m{.kind = Fault::kDevice};
    m.at = devices.below(length);
    m.victim = static_cast<int32_t>(devices.below(instances));
    all.push_back(m);
  }
  std::erase_if(all, [without](const Mishap& m) { return left_out(without, m.kind); });
  std::sort(all.begin(), all.end(), [](const Mishap& a, const Mishap& b) { return a.at < b.at; });
  return all;
}

}  // namespace baton::sim
