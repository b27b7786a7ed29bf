// Work of unknown length that a signal must be able to interrupt: reading files, preparing data.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/error.h"
#include "trainer/distributed/process_group.h"
#include "trainer/engine/stop_agreement.h"

namespace oarlock {

// Called by all ranks together. Runs `work` on another thread of each rank and returns this rank's result when all
// ranks have completed theirs; an exception becomes a failure. Meanwhile the ranks exchange short messages five times a
// second, which detects the loss of a rank, so the work may take longer than a collective may.
//
// When the ranks agree to stop (stop.agreed()), all return kTempFail within about half a second; the message is
// "interrupted by a signal while <activity>". The thread is then abandoned, perhaps blocked in a system call, until the
// process ends: `work` must own everything that it uses, or use objects that live as long as the process.
Result<void> run_on_all_ranks(std::function<Result<void>()> work, const RankGroup& group, StopAgreement& stop,
                              const std::string& activity);

// The same for work that only rank 0 does, such as reading a file, while the others wait. Returns on rank 0 what `read`
// has returned, on the others a value without meaning, and on all of them kTempFail when the ranks agree to stop.
template <typename T>
Result<T> read_on_rank_0(std::function<Result<T>()> read, const RankGroup& group, StopAgreement& stop,
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
