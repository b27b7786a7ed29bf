// A container's termination message behind a byte that is its exit code: parsing, and the decision about the pod.
#include "common/contract.h"
#include "tests/fuzz/observed_state.h"

using namespace oarlock;

namespace {

void require_bounded(const TerminationMessage& message) {
  const std::string text = to_json(message);
  fuzz::require(text.size() <= kTerminationMessageLimit);
  const std::optional<TerminationMessage> again = termination_message_from_json(text);
  fuzz::require(again && again->rank == message.rank && again->step == message.step);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view text = fuzz::text_of(data + 1, size - 1);
  if (const std::optional<TerminationMessage> message = termination_message_from_json(text)) require_bounded(*message);
  // As the writer's message, with any bytes.
  require_bounded({.rank = data[0], .reason = "Error", .message = std::string(text)});

  control::Observed observed;
  observed.job = fuzz::valid_job();
  observed.job.status.phase = api::Phase::kRunning;
  observed.now = SystemTime(std::chrono::seconds(1'700'000'000));
  control::Pod pod;
  pod.name = control::pod_name(observed.job, 0, 0);
  pod.uid = "pod-uid";
  pod.owner_uid = observed.job.metadata.uid;
  pod.phase = data[0] == 0 ? control::PodPhase::kSucceeded : control::PodPhase::kFailed;
  pod.trainer = control::Termination{
      .exit_code = data[0],
      .reason = "Error",
      .message = std::string(text.substr(0, kTerminationMessageLimit)),  // as project_pod() cuts it
      .finished_at = observed.now};
  observed.pods = {pod};
  fuzz::decide(observed);
  return 0;
}
