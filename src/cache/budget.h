// The budget: who gets how much of the memory, decided once at start from one table that is printed and served.
//
// What is asked for is either met in full or refused with the number to change; nothing is scaled down silently.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace baton::cache {

inline constexpr int32_t kAutomatic = -1;

struct BudgetRequest {
  int64_t memory_bytes = 0;  // of the device, all that may be used
  int64_t weight_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t graph_bytes = 0;
  int64_t page_bytes = 0;
  int64_t slot_bytes = 0;  // replay ring included
  int64_t ring_bytes = 0;  // of which replay ring
  int64_t snapshot_bytes = 0;
  // The same model without a drafter; 0: there is none.
  int64_t plain_slot_bytes = 0;
  int64_t plain_page_bytes = 0;
  int64_t drafter_bytes = 0;         // what a drafter has of weights and workspace
  int64_t context_tokens = 0;        // longest sequence that must fit when it runs alone
  int32_t running = 1;               // requests that run at once: slots
  int64_t pool_tokens = kAutomatic;  // tokens of all pages together; automatic: what is left
  int32_t snapshots = kAutomatic;    // automatic: an eighth of what pages and snapshots share, at least one
  int64_t host_bytes = 0;            // host memory for retracted requests
  // What the user set these by, for messages.
  std::string context_flag = "--context";
  std::string running_flag = "--max-running";
};

struct BudgetLine {
  std::string name;
  int64_t count = 1;
  int64_t bytes_each = 0;
  int64_t bytes() const { return count * bytes_each; }
};

// Requests of the whole context that run at once, each with its slot and all its pages.
struct Occupancy {
  int64_t bytes_each = 0;
  int64_t fit = 0;  // in the memory, beside what is fixed; snapshots give way
};

struct Budget {
  int32_t slots = 0;
  int32_t pages = 0;
  int32_t snapshots = 0;
  int32_t host_slots = 0;
  int32_t host_pages = 0;
  std::vector<BudgetLine> device;  // what is used; `unused_bytes` is the rest
  std::vector<BudgetLine> host;
  int64_t memory_bytes = 0;
  int64_t unused_bytes = 0;
  int64_t context_tokens = 0;
  Occupancy requests;
  Occupancy without_drafter;  // the same where there is none

  std::string table() const;  // for people: a line each
};

// Errors name the flags --memory, --pool-tokens, --snapshots and those of the request.
Result<Budget> solve_budget(const BudgetRequest& request);

}  // namespace baton::cache
