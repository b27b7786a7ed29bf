// A target that receives the objects of a reflector, projects each as the operator's cache does, and records all calls.
#pragma once

#include <string>

#include "kube/client/reflector.h"
#include "operator/shell/projection.h"
#include "tests/fuzz/input.h"

namespace oarlock::fuzz {

// Which objects an input contains; the byte selects one of the three kinds.
enum class ObjectKind { kJob, kPod, kService };
inline ObjectKind kind_of(uint8_t byte) { return static_cast<ObjectKind>(byte % 3); }

inline kube::ObjectFilters object_filters(ObjectKind kind) {
  const kube::FieldFilter salvage{"metadata.namespace", "metadata.name", "metadata.resourceVersion"};
  switch (kind) {
    case ObjectKind::kJob:
      return {control::job_fields(), control::job_salvage_fields()};
    case ObjectKind::kPod:
      return {control::pod_fields().with({"metadata.resourceVersion"}), salvage};
    case ObjectKind::kService:
      return {control::service_fields().with({"metadata.resourceVersion"}), salvage};
  }
  std::abort();
}

class RecordingTarget final : public kube::ReflectorTarget, public kube::ReflectorObserver {
 public:
  explicit RecordingTarget(ObjectKind kind) : kind_(kind) {}

  void begin_replace() override { record("begin", {}); }
  void replace_object(kube::FilteredObject object) override { add("replace", object); }
  void replace_deleted(kube::FilteredObject object) override { add("replace deleted", object); }
  void commit_replace(const std::string& version) override { record("commit", version); }
  void abandon_replace() override { record("abandon", {}); }
  void change(kube::ChangeType type, kube::FilteredObject object, const std::string& version) override {
    record("change", std::to_string(static_cast<int>(type)) + version);
    add("changed", object);
  }
  void bookmark(const std::string& version) override { record("bookmark", version); }

  void on_problem(const kube::ApiError& error) override { record("problem", error.message); }
  void on_synced() override { record("synced", {}); }
  void on_watching() override { record("watching", {}); }
  void on_skipped(const Error& error) override { record("skipped", error.message); }

  // Every call with its arguments, in order.
  const std::string& calls() const { return calls_; }

 private:
  void record(std::string_view call, std::string_view argument) {
    calls_.append(call).append(" ").append(argument).append("\n");
  }

  void add(std::string_view call, const kube::FilteredObject& object) {
    record(call, object.json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    if (object.error) {
      record("with error", object.error->message);
      if (kind_ == ObjectKind::kJob)
        require(!control::unreadable_job(object.json, *object.error).report.problem.empty());
      return;
    }
    if (kind_ == ObjectKind::kJob) (void)control::project_job(object.json);
    if (kind_ == ObjectKind::kPod) (void)control::project_pod(object.json);
    if (kind_ == ObjectKind::kService) (void)control::project_service(object.json);
  }

  const ObjectKind kind_;
  std::string calls_;
};

}  // namespace oarlock::fuzz
