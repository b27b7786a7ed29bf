#include "operator/api/codec.h"

#include <nlohmann/json.hpp>

#include "operator/api/fields.h"
#include "operator/api/json_reader.h"
#include "operator/api/json_writer.h"

namespace oarlock::api {
namespace {

using Json = nlohmann::json;

// Visitors take their values by reference, to read into them; a writer only looks.
Json written(Status status, Empty empty) {
  Json json;
  JsonWriter writer(json, empty);
  fields::status(writer, status);
  return json;
}

}  // namespace

Result<TrainingJob> training_job_from_json(const Json& object) {
  TrainingJob job;
  std::optional<Error> error;
  JsonReader root(object, "", error);
  root.group("metadata", [&](JsonReader& metadata) { fields::metadata(metadata, job.metadata); });
  root.group("spec", [&](JsonReader& spec) { fields::spec(spec, job.spec); });
  root.group("status", [&](JsonReader& status) { fields::status(status, job.status); });
  if (error) return tl::make_unexpected(*error);
  return job;
}

Json to_json(const TrainingJob& job) {
  TrainingJob copy = job;
  Json json = {{"apiVersion", kApiVersion}, {"kind", kKind}};
  JsonWriter root(json, Empty::kLeftOut);
  root.group("metadata", [&](JsonWriter& metadata) { fields::metadata(metadata, copy.metadata); });
  if (job.metadata.generation == 0) json["metadata"].erase("generation");
  root.group("spec", [&](JsonWriter& spec) { fields::spec(spec, copy.spec); });
  if (job.status != Status{}) json["status"] = status_to_json(job.status);
  return json;
}

Json status_to_json(const Status& status) { return written(status, Empty::kLeftOut); }

Json status_patch(const Metadata& job, const Status& status) {
  return {{"metadata", {{"uid", job.uid}, {"resourceVersion", job.resource_version}}},
          {"status", written(status, Empty::kNull)}};
}

}  // namespace oarlock::api
