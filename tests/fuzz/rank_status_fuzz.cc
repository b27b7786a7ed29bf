// A rank's /statusz reply: parsing, and the status, the stall detection and the estimate that are derived from it.
#include <algorithm>

#include "api/rules.h"
#include "common/contract.h"
#include "tests/fuzz/observed_state.h"

using namespace oarlock;

namespace {

control::Observed running_job(const RankStatus& reply) {
  control::Observed observed;
  observed.job = fuzz::valid_job();
  observed.job.status.phase = api::Phase::kRunning;
  observed.job.status.attempt = std::clamp(reply.attempt, 0, api::rules::kMaxAttempt);  // as read_training_job()
  observed.now = SystemTime(std::chrono::seconds(1'700'000'000));
  observed.job.status.start_time = observed.now - std::chrono::hours(1);
  control::Pod pod;
  pod.name = control::pod_name(observed.job, observed.job.status.attempt, 0);
  pod.uid = "pod-uid";
  pod.owner_uid = observed.job.metadata.uid;
  pod.phase = control::PodPhase::kRunning;
  pod.ready = pod.scheduled = true;
  observed.pods = {pod};
  observed.progress = reply;
  observed.last_poll = control::StatusPoll{.sent_at = observed.now, .answered = true};
  return observed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::optional<RankStatus> reply = rank_status_from_json(fuzz::text_of(data, size));
  if (!reply) return 0;
  const std::optional<RankStatus> again = rank_status_from_json(to_json(*reply));
  fuzz::require(again && to_json(*again) == to_json(*reply));
  control::Observed observed = running_job(*reply);
  fuzz::decide(observed);
  // Later replies, before and after the stall limit.
  for (const auto age : {std::chrono::seconds(30), std::chrono::seconds(86'400)}) {
    observed.step_received_at = observed.now - age;
    fuzz::decide(observed);
  }
  return 0;
}
