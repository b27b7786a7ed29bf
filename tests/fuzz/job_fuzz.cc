// A TrainingJob as the API server stores it: projection, validation, decision, the pod, and the object written back.
#include <nlohmann/json.hpp>

#include "operator/shell/projection.h"
#include "tests/fuzz/observed_state.h"

using namespace oarlock;

namespace {

constexpr int kMaxNodes = 64;  // a larger group takes longer and shows nothing else

// Of spec.template and spec.trainer, the filter checks only the nesting; the API server checks the rest.
bool has_json_texts(const control::Job& job) {
  const auto is_json = [](const std::string& text) { return text.empty() || nlohmann::json::accept(text); };
  return is_json(job.spec.pod_template) && is_json(job.spec.trainer);
}

void decide(const control::Job& job) {
  control::Observed observed;
  observed.job = job;
  observed.now = SystemTime(std::chrono::seconds(1'700'000'000));
  fuzz::decide(observed);
  observed.untouched = true;
  fuzz::decide(observed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kube::FieldFilter filter = control::job_fields();
  const Result<nlohmann::json> object = filter.parse(fuzz::text_of(data, size));
  if (!object || !object->is_object()) return 0;
  const control::Job job = control::project_job(*object);
  if (job.report.problem.empty() && has_json_texts(job)) {
    // Written and read again, it is the same object; the strict dump throws on invalid UTF-8.
    const nlohmann::json written = api::to_json(job);
    const Result<control::Job> again = api::training_job_from_json(nlohmann::json::parse(written.dump()));
    fuzz::require(again.has_value() && api::to_json(*again) == written);
  }
  if (job.spec.nodes > kMaxNodes) return 0;
  decide(job);
  if (!job.report.problem.empty() || api::is_terminal(job.status.phase) || !api::validate(job).empty()) return 0;
  const control::PodFactory factory(job, job.status.attempt);
  fuzz::require(factory.pod(0) == nlohmann::json::parse(factory.text(0)));
  (void)control::desired_service(job).dump();
  return 0;
}
