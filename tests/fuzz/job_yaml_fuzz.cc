// A file with TrainingJobs, as `oarlock validate` reads it. A document that is printed reads back as it was, and so
// does a job that is accepted.
#include <nlohmann/json.hpp>

#include "api/codec.h"
#include "api/validate.h"
#include "tests/fuzz/input.h"
#include "yaml/reader.h"
#include "yaml/writer.h"

using namespace oarlock;

namespace {

void require_same_after_printing(const nlohmann::json& value) {
  const auto again = yaml::parse_all(yaml::to_yaml(value), "printed.yaml");
  fuzz::require(again.has_value());
  if (value.is_null()) return;  // an empty document is left out
  fuzz::require(again->size() == 1);
  fuzz::require(again->front().to_json().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) ==
                value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto documents = yaml::parse_all(std::string(fuzz::text_of(data, size)), "job.yaml");
  if (!documents) return 0;
  for (const yaml::Node& document : *documents) {
    require_same_after_printing(document.to_json());
    const auto job = api::training_job_from_yaml(document, "job.yaml");
    if (!job) continue;
    fuzz::require(api::validate(*job).empty());
    const nlohmann::json object = api::to_json(*job);
    const auto printed = yaml::parse_all(yaml::to_yaml(object), "printed.yaml");
    fuzz::require(printed.has_value() && printed->size() == 1);
    const auto again = api::training_job_from_yaml(printed->front(), "printed.yaml");
    fuzz::require(again.has_value() && api::to_json(*again) == object);
  }
  return 0;
}
