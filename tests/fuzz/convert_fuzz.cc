// Jobs of other systems, as `oarlock convert` reads them. The first byte selects the format: a job script of Slurm,
// Kubernetes objects (PyTorchJob, MPIJob, JobSet, and TrainJob with its runtime), or QuantumGrav's configuration.
// Messages and notes have no control characters, and a TrainingJob that is printed is accepted.
#include <string>
#include <string_view>
#include <vector>

#include "api/codec.h"
#include "api/validate.h"
#include "cli/convert/converters.h"
#include "tests/fuzz/input.h"
#include "yaml/reader.h"
#include "yaml/writer.h"

using namespace oarlock;

namespace {

void require_notes(const convert::Converted& converted) {
  for (const std::string& note : converted.notes) fuzz::require(!note.empty() && is_printable(note));
}

void require_accepted(const convert::Converted& converted) {
  require_notes(converted);
  const auto printed = yaml::parse_all(yaml::to_yaml(converted.job), "printed.yaml");
  fuzz::require(printed.has_value() && printed->size() == 1);
  const auto job = api::training_job_from_yaml(printed->front(), "printed.yaml");
  fuzz::require(job.has_value() && api::validate(*job).empty());
}

void convert_script(const std::string& text) {
  const auto converted = convert::convert_sbatch(text, "train.sbatch", {});
  if (!converted) return fuzz::require_printable_lines(converted.error().message);
  require_accepted(*converted);
}

void convert_objects(const std::string& text) {
  const auto roots = yaml::parse_all(text, "job.yaml");
  if (!roots) return;
  std::vector<convert::SourceDocument> documents;
  for (const yaml::Node& root : *roots) documents.push_back({root, "job.yaml"});
  const auto jobs = convert::convert_kubernetes(documents, {});
  if (!jobs) return fuzz::require_printable_lines(jobs.error().message);
  fuzz::require(!jobs->empty());
  for (const convert::Converted& job : *jobs) require_accepted(job);
}

// The trainer checks the configuration itself.
void convert_quantumgrav(const std::string& text) {
  const auto roots = yaml::parse_all(text, "train_ddp.yaml");
  if (!roots || roots->size() != 1) return;
  const auto converted = convert::convert_quantumgrav(roots->front(), "train_ddp.yaml", {.image = "i", .data = {}});
  if (!converted) return fuzz::require_printable_lines(converted.error().message);
  require_notes(*converted);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(fuzz::text_of(data + 1, size - 1));
  switch (data[0]) {
    case 's':
      convert_script(rest);
      break;
    case 'k':
      convert_objects(rest);
      break;
    case 'q':
      convert_quantumgrav(rest);
      break;
    default:
      return -1;  // not kept as an input
  }
  return 0;
}
