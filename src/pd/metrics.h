// What both ends of the hand-over count.
#pragma once

#include <cstdint>

namespace baton::pd {

struct DecodeMetrics {
  int64_t submitted = 0, refused = 0, landed = 0, cancelled = 0, expired = 0, failed = 0;  // requests
  int64_t orders = 0, repeated_orders = 0, retried = 0;
  int64_t waiting = 0, open = 0, quarantined = 0;  // now
  int64_t quarantined_pages = 0;                   // now
  int64_t pages_ordered = 0, pages_matched = 0;
  int64_t hand_over_ns = 0;    // from an order to its landing, of all that landed together
  int64_t mismatches = 0;      // of checksums
  int64_t contradictions = 0;  // answers that cannot be true, such as parts that do not make up what was ordered
  int64_t stray_messages = 0;  // of other processes or tickets than an order is about; late ones, mostly
  int64_t peers_restarted = 0;
};

struct PrefillMetrics {
  int64_t orders = 0, repeated_orders = 0, done = 0, revoked = 0, expired = 0, failed = 0;
  int64_t active = 0;      // jobs that have not ended
  int64_t remembered = 0;  // jobs that have
  int64_t writes = 0, pages_written = 0, writes_in_flight = 0;
  int64_t stray_messages = 0;
  int64_t contradictions = 0;  // orders that cannot be meant, or beyond the grant
};

}  // namespace baton::pd
