// Stops all ranks at the same point of their work, although they receive a signal at different times, or only one of
// them receives it. They agree in the same way on other things that one of them learns, such as a request for a
// checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/error.h"
#include "ddp/process_group.h"
#include "trainer/process/termination.h"

namespace oarlock {

// Which ranks must have received a signal for all ranks to stop.
enum class StopQuorum {
  kAny,
  kAll,  // all of them; a single rank that receives one is killed by its launcher, and the others recover from its loss
};

class StopAgreement {
 public:
  // The references must outlive the agreement.
  StopAgreement(const StopFlag& stop, const ProcessGroup& group, const Clock& clock)
      : stop_(stop), group_(group), clock_(clock) {}
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  // kAny until this is called. All ranks call it with the same value.
  void set_quorum(StopQuorum quorum) { quorum_ = quorum; }

  // `is_requested` returns whether other ranks wait to join the group. All ranks call it with a function, or none does.
  void watch_growth(std::function<bool()> is_requested) { growth_requested_ = std::move(is_requested); }

  // `take` returns whether a checkpoint was requested of this rank since its last call.
  void watch_save_requests(std::function<bool()> take) { take_save_request_ = std::move(take); }

  // Returns whether the ranks have agreed, in agree(), to save a checkpoint, since the last call. All ranks call it at
  // the same point.
  bool take_save_request() { return std::exchange(saves_, false); }

  // Whether the ranks have agreed, in agree(), to leave the group between two steps, so that others can join it.
  bool grows() const { return grows_; }

  // Whether this rank has received a signal that stops all ranks. Other ranks may not have received it.
  bool requested() const { return quorum_ == StopQuorum::kAny && stop_.is_raised(); }

  // A collective, called by all ranks at the same point: whether the quorum of the ranks has received a signal, or any
  // rank has the `wish` to stop for another reason. `seconds` is replaced by the largest value of all ranks.
  bool agree(bool wish, double& seconds);
  bool agree(bool wish = false);

  // Whether agree() has returned true. All ranks have the same value between two calls of agree().
  bool agreed() const { return agreed_; }

  // Called by all ranks of a new group after a recovery. A signal and a request that a rank has received still count.
  void restart() {
    save_requested_ |= saves_;  // the new ranks do not know of it
    agreed_ = grows_ = saves_ = false;
  }

  const StopFlag& flag() const { return stop_; }
  const ProcessGroup& group() const { return group_; }
  const Clock& clock() const { return clock_; }

 private:
  const StopFlag& stop_;
  const ProcessGroup& group_;
  const Clock& clock_;
  StopQuorum quorum_ = StopQuorum::kAny;
  bool agreed_ = false;
  std::function<bool()> growth_requested_;
  bool grows_ = false;
  std::function<bool()> take_save_request_;
  bool save_requested_ = false;  // of this rank, and not agreed on
  bool saves_ = false;
};

// Calls agree() between equal units of work, such as micro-batches, about twice a second, or more often if units are
// short. All ranks complete the same number of units, so they compute the same interval in units from the slowest
// rank's time per unit. An interval is at most 20 units, and at most twice the previous one, because units may become
// slower.
//
// The time per unit is wall-clock time between the ends of two agreements, which wait for the device. The host's time
// per unit would be wrong: a host that only enqueues work runs ahead of the device.
class StopPace {
 public:
  explicit StopPace(StopAgreement& agreement) : agreement_(&agreement), since_(agreement.clock().steady()) {}

  // Called by all ranks after each unit. Returns true if all ranks stop here.
  bool after_unit(bool wish = false);

 private:
  StopAgreement* agreement_;
  SteadyTime since_;             // the end of the last agreement
  int64_t units_ = 0;            // since then
  int64_t next_ = 1;             // units until the next agreement
  double seconds_per_unit_ = 0;  // on this rank, between the last two agreements; 0: unknown
};

// Runs work of unknown duration that a signal can interrupt, such as reading files or preparing data.
//
// Called by all ranks together. Runs `work` on another thread of each rank and returns this rank's result when all
// ranks have completed theirs; an exception becomes a failure. Meanwhile the ranks exchange short messages five times a
// second, which detects the loss of a rank, so the work may take longer than a collective may.
//
// When the ranks agree to stop, all return kTempFail within about half a second; the message is "interrupted by a
// signal while <activity>". The thread is then abandoned, perhaps blocked in a system call, until the process ends:
// `work` must own everything that it uses, or use objects that live as long as the process. If the ranks have agreed to
// stop before the call, all return the same failure without running `work`. Afterwards, stop.agreed() therefore implies
// that all ranks have this failure; without it, a failure is this rank's own.
Result<void> run_on_all_ranks(std::function<Result<void>()> work, const ProcessGroup& group, StopAgreement& stop,
                              const std::string& activity);

// The same for work that returns a digest, from 0 to kMaxComparedNumber. If the work of this rank succeeds, returns
// whether the digests of all ranks are equal; the digest of a rank whose work failed is 0. The last message of the work
// has their sum, so nothing else is sent. Numbers other than digests could differ and have the same sum as equal ones.
Result<bool> run_and_compare(std::function<Result<int64_t>()> work, const ProcessGroup& group, StopAgreement& stop,
                             const std::string& activity);

inline constexpr int64_t kMaxComparedNumber = (int64_t{1} << 38) - 1;  // a double has the sum of those of 32768 ranks

// The same for work of rank 0 only, such as reading a file, while the other ranks wait. Returns the result of `read` on
// rank 0, an unspecified value on the others, and kTempFail on all of them when the ranks agree to stop.
template <typename T>
Result<T> read_on_rank_0(std::function<Result<T>()> read, const ProcessGroup& group, StopAgreement& stop,
                         const std::string& activity) {
  const auto out = std::make_shared<Result<T>>();  // the thread that reads may be abandoned
  const Result<void> done = run_on_all_ranks(
      [out, read = std::move(read), reads = group.rank() == 0] {
        if (reads) *out = read();
        return Result<void>();
      },
      group, stop, activity);
  if (!done) return tl::make_unexpected(done.error());
  return std::move(*out);
}

}  // namespace oarlock
