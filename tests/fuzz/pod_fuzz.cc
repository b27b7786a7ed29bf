// A Pod as the API server stores it, in the place of the only pod of a job: projection and decision. Whatever a
// container or a controller writes into it, the status must remain one that can be stored.
#include <nlohmann/json.hpp>

#include "operator/shell/projection.h"
#include "tests/fuzz/observed_state.h"

using namespace oarlock;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kube::FieldFilter filter = control::pod_fields();
  const Result<nlohmann::json> object = filter.parse(fuzz::text_of(data, size));
  if (!object || !object->is_object()) return 0;
  Result<control::CachedPod> pod = control::project_pod(*object);
  if (!pod) return 0;
  control::Observed observed;
  observed.job = fuzz::valid_job();
  observed.now = SystemTime(std::chrono::seconds(1'700'000'000));
  pod->object.owner_uid = observed.job.metadata.uid;
  pod->object.name = control::pod_name(observed.job, 0, 0);
  if (pod->object.uid.empty()) pod->object.uid = "pod-uid";
  observed.pods = {pod->object};
  for (const api::Phase phase : {api::Phase::kPending, api::Phase::kRunning, api::Phase::kRestarting}) {
    observed.job.status.phase = phase;
    fuzz::decide(observed);
  }
  observed.job.spec.suspend = true;
  fuzz::decide(observed);
  return 0;
}
