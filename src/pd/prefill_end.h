// Prefill's end of the hand-over: which orders run, what is written where and when, and when an order's writes are over.
//
// A plain state machine. Messages, the progress of the own scheduler, completed writes and the time go in; actions come out: jobs to start
// and to stop, writes to post, messages to send.
//
// * Each decode process may have as many orders open as it was granted: `credits` more than are closed. A grant is a total, so that
//   messages may be lost or overtake each other.
// * A job's pages are written chunk by chunk as they are computed, those that were cached at once, those that decode has never. The slot
//   goes last, when the whole prompt is in it, and goes always.
// * A job keeps its memory until its last write is over, however it ends: nobody else's data is ever read for it. The answer is given
//   then, and not before: whoever hears it knows that nothing lands any more.
// * What has ended is remembered until decode says that it needs no answer any more; doubled orders and cancels find it there.
//
// Threads: one at a time.
#pragma once

#include <map>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "pd/message.h"
#include "pd/metrics.h"
#include "pd/states.h"

namespace baton::pd {

using JobId = uint64_t;  // of a prefill process, from 1 up

struct PrefillOptions {
  Process self;
  int32_t credits = 1;         // of each decode process: free slots, shared among them, and one
  int64_t context_tokens = 0;  // longer prompts are refused
};

// Parts of a slot that travel; everything that a sequence has beyond its pages.
namespace slot_part {
inline constexpr uint32_t kState = 1;    // recurrent state and convolution window
inline constexpr uint32_t kTail = 2;     // keys and gates of the open pool of each indexer
inline constexpr uint32_t kHidden = 4;   // last hidden row, which decode's first draw is from
inline constexpr uint32_t kDrafter = 8;  // what a drafter keeps of a sequence beyond its pages
inline constexpr uint32_t kAll = kState | kTail | kHidden | kDrafter;
}  // namespace slot_part

// Compute this prompt, draw nothing, keep the memory until StopJob. Progress is told to computed(), a failure to failed().
struct StartJob {
  JobId job;
  Tokens tokens;
  uint64_t salt;
  bool cache;
};
// The job's memory is free; no more is to be computed for it.
struct StopJob {
  JobId job;
};
// Copies pages from_pages[i] into to_pages[i] of another process, or a slot; then delivers the notice there. When it is over, written()
// is told.
struct Write {
  JobId job;
  Process to;
  std::vector<int32_t> from_pages = {};
  std::vector<int32_t> to_pages = {};
  int32_t from_slot = -1;  // -1: pages only
  int32_t to_slot = -1;
  uint32_t slot_parts = 0;
  PartLanded notice = {};
};
struct SendReply {
  Envelope envelope;
};
using PrefillAction = std::variant<StartJob, StopJob, Write, SendReply>;

class PrefillEnd {
 public:
  explicit PrefillEnd(const PrefillOptions& options);

  void receive(const Envelope& envelope, Time now);
  // A decode process is known to be gone: nobody waits for its jobs.
  void gone(Process process);

  // The job's sequence has positions 0 ... tokens - 1 in these pages; when that is the whole prompt, its state is in `slot`.
  // `reused_tokens` of them were cached.
  void computed(JobId job, int64_t tokens, int64_t reused_tokens, std::span<const int32_t> pages, int32_t slot);
  // The scheduler refused the job, or gave it up: it has no memory any more.
  void failed(JobId job);
  // A write is over; `ok`: everything arrived. The checksum is that of the source when it was written.
  void written(JobId job, int32_t part, bool ok, uint64_t checksum);

  void advance(Time now);
  Time next_wake() const;

  std::span<PrefillAction> actions() { return actions_; }
  std::span<const PrefillAction> actions() const { return actions_; }
  void clear_actions() { actions_.clear(); }

  bool idle() const { return metrics_.active == 0; }
  const PrefillMetrics& metrics() const { return metrics_; }
  const Transitions<JobState>& transitions() const { return transitions_; }
  void check_invariants() const;

 private:
  struct Client {
    Process process;
    Ticket low_water = 0;
    int64_t taken = 0;
    int64_t closed = 0;
    int64_t granted = 0;
    bool gone = false;  // known to be; until the next epoch
    std::map<Ticket, JobId> jobs = {};
  };
  struct Job {
    JobState state = JobState::kNone;
    Process client;
    Order order;
    Time deadline = kNever;
    JobState ending = JobState::kRevoked;  // of kRevoking
    bool stopped = false;                  // it holds no memory
    bool orphan = false;                   // its client is gone: nobody is told
    int32_t sent_pages = 0;                // pages before this one are with decode or on the way there
    int32_t reused_pages = 0;
    int32_t in_flight = 0;
    bool write_failed = false;
    std::vector<PartLanded> parts;
    std::vector<uint64_t> checksums;
  };

  void handle(Client& c, const Order& m, Time now);
  void handle(Client& c, const Cancel& m, Time now);
  void handle(Client& c, const Ping& m, Time now);
  bool meant(const Order& m) const;
  Job& add(Client& c, const Order& m, JobId& id);
  void forget(Client& c);
  void revoke(JobId id, Job& j, JobState ending);
  void settle_if_over(JobId id, Job& j);
  void end(JobId id, Job& j, JobState state);
  void stop(JobId id, Job& j);
  void post(JobId id, Job& j, int32_t first, int32_t count, std::span<const int32_t> pages);
  void post_slot(JobId id, Job& j, int32_t slot);
  void post(JobId id, Job& j, Write write);
  void answer(const Job& j);
  void repeat(const Job& j);
  void grant(Client& c);
  void reply(Process to, Body body);

  PrefillOptions options_;
  std::unordered_map<InstanceId, Client> clients_;
  std::unordered_map<JobId, Job> jobs_;
  JobId next_job_ = 1;
  std::vector<PrefillAction> actions_;
  PrefillMetrics metrics_;
  Transitions<JobState> transitions_;
};

}  // namespace baton::pd
