#include "operator/shell/execute.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "operator/api/codec.h"
#include "operator/shell/batch.h"

namespace oarlock::control {
namespace {

using ErrorKind = kube::ApiError::Kind;

const char* noun_of(Kind kind) {
  switch (kind) {
    case Kind::kJob:
      return "trainingjob";
    case Kind::kPod:
      return "pod";
    case Kind::kService:
      return "service";
    case Kind::kNetworkPolicy:
      return "networkpolicy";
  }
  return "object";
}

std::string describe(const char* verb, Kind kind, const kube::ObjectKey& key) {
  return fmt::format("{} {} {}", verb, noun_of(kind), key.to_string());
}

Stop stopped(Stop::Kind kind, std::string action, kube::ApiError error = {}) {
  Stop stop;
  stop.kind = kind;
  stop.action = std::move(action);
  stop.error = std::move(error);
  return stop;
}

Stop met_foreign(std::string action, Kind kind, const kube::ObjectKey& key) {
  Stop stop = stopped(Stop::Kind::kForeign, std::move(action));
  stop.foreign_kind = kind;
  stop.foreign = key;
  return stop;
}

// Whether both actions belong into one batch: they do the same to different pods.
bool is_one_batch(const Action& first, const Action& next) {
  if (&first == &next) return true;
  if (const auto* create = std::get_if<CreatePod>(&first)) {
    const auto* other = std::get_if<CreatePod>(&next);
    return other != nullptr && other->attempt == create->attempt;
  }
  return std::holds_alternative<DeletePod>(first) && std::holds_alternative<DeletePod>(next);
}

}  // namespace

std::optional<Stop> Executor::execute(const Job& job, const std::vector<Action>& actions,
                                      const std::function<void(const Action&)>& on_done, const std::stop_token& stop,
                                      const std::function<bool()>& should_yield) const {
  for (auto it = actions.begin(); it != actions.end();) {
    if (stop.stop_requested()) return stopped(Stop::Kind::kEnding, "");
    const auto end = std::find_if_not(it, actions.end(), [&](const Action& next) { return is_one_batch(*it, next); });
    const std::span<const Action> batch(it, end);
    Outcome outcome;
    if (const auto* first = std::get_if<CreatePod>(&*it)) {
      const PodFactory factory = make_factory(job, first->attempt);
      outcome = run_in_batches(
          batch,
          [&](const Action& one) {
            return should_yield() ? stopped(Stop::Kind::kYielded, "")
                                  : create_pod(job, factory, std::get<CreatePod>(one));
          },
          on_done, stop);
    } else {
      const bool deletes_pods = std::holds_alternative<DeletePod>(*it);
      outcome = run_in_batches(
          batch,
          [&](const Action& one) -> Outcome {
            if (deletes_pods && should_yield()) return stopped(Stop::Kind::kYielded, "");
            return std::visit([&](const auto& action) { return run(job, action); }, one);
          },
          on_done, stop);
    }
    if (outcome) return outcome;
    it = end;
  }
  return std::nullopt;
}

Executor::Outcome Executor::run_in_batches(std::span<const Action> actions,
                                           const std::function<Outcome(const Action&)>& run_one,
                                           const std::function<void(const Action&)>& on_done,
                                           const std::stop_token& stop) const {
  std::mutex mutex;
  size_t first_failed = actions.size();
  Outcome failure;
  call_in_batches(actions.size(), [&](size_t i) {
    Outcome outcome = stop.stop_requested() ? stopped(Stop::Kind::kEnding, "") : run_one(actions[i]);
    const std::lock_guard lock(mutex);
    if (!outcome) {
      on_done(actions[i]);
      return true;
    }
    if (i < first_failed) {
      first_failed = i;
      failure = std::move(outcome);
    }
    return false;
  });
  return failure;
}

Executor::Outcome Executor::run(const Job& job, const ConfirmJobUnchanged&) const {
  const kube::ObjectKey key{job.metadata.name_space, job.metadata.name};
  const std::string what = describe("look at", Kind::kJob, key);
  const auto answer = client_.get(resource_of(Kind::kJob), key, {});
  if (!answer) {
    const bool gone = answer.error().kind == ErrorKind::kNotFound;
    return stopped(gone ? Stop::Kind::kGone : Stop::Kind::kFailed, what, answer.error());
  }
  const Written live = read_written(*answer);
  if (live.uid != job.metadata.uid) return stopped(Stop::Kind::kGone, what);
  if (live.resource_version == job.metadata.resource_version) return std::nullopt;
  own_writes_->record(job.metadata.uid, Kind::kJob, live.resource_version);
  return stopped(Stop::Kind::kStale, what);
}

Executor::Outcome Executor::run(const Job& job, const ConfirmPodAbsent& action) const {
  const kube::ObjectKey key{job.metadata.name_space, action.name};
  const auto answer = client_.get(kube::pods(), key, {});
  const std::string what = describe("confirm the absence of", Kind::kPod, key);
  if (!answer) {
    if (answer.error().kind == ErrorKind::kNotFound) return std::nullopt;
    return stopped(Stop::Kind::kFailed, what, answer.error());
  }
  own_writes_->record(job.metadata.uid, Kind::kPod, read_written(*answer).resource_version);
  return stopped(Stop::Kind::kStale, what);
}

Executor::Outcome Executor::create(const Job& job, Kind kind, const std::string& name, std::string body) const {
  const kube::ObjectKey key{job.metadata.name_space, name};
  const std::string what = describe("create", kind, key);
  auto answer = client_.create(resource_of(kind), key.name_space, std::move(body), {});
  if (!answer && answer.error().kind == ErrorKind::kAlreadyExists) {
    // Ours, of a create whose answer was lost, or somebody else's: the owner's uid tells.
    answer = client_.get(resource_of(kind), key, {});
    if (!answer && answer.error().kind == ErrorKind::kNotFound) return stopped(Stop::Kind::kStale, what);
    if (answer && read_written(*answer).owner_uid != job.metadata.uid) return met_foreign(what, kind, key);
  }
  if (!answer) return stopped(Stop::Kind::kFailed, what, answer.error());
  own_writes_->record(job.metadata.uid, kind, read_written(*answer).resource_version);
  return std::nullopt;
}

Executor::Outcome Executor::run(const Job& job, const CreateService& action) const {
  return create(job, Kind::kService, action.name, action.body);
}

Executor::Outcome Executor::run(const Job& job, const CreateNetworkPolicy& action) const {
  return create(job, Kind::kNetworkPolicy, action.name, action.body);
}

Executor::Outcome Executor::run(const Job& job, const ReplaceNetworkPolicy& action) const {
  const kube::ObjectKey key{job.metadata.name_space, action.name};
  const std::string what = describe("replace", Kind::kNetworkPolicy, key);
  const auto answer = client_.replace(resource_of(Kind::kNetworkPolicy), key, action.body, {});
  if (answer) {
    own_writes_->record(job.metadata.uid, Kind::kNetworkPolicy, read_written(*answer).resource_version);
    return std::nullopt;
  }
  const bool is_stale = answer.error().kind == ErrorKind::kNotFound || answer.error().kind == ErrorKind::kConflict;
  return stopped(is_stale ? Stop::Kind::kStale : Stop::Kind::kFailed, what, answer.error());
}

std::unique_lock<std::mutex> Executor::lock_if_large(const api::Spec& spec) const {
  if (spec.pod_template.size() <= kLargeTemplate) return {};
  return std::unique_lock(large_mutex_);
}

PodFactory Executor::make_factory(const Job& job, int attempt) const {
  const std::unique_lock<std::mutex> lock = lock_if_large(job.spec);
  return PodFactory(job, attempt);
}

Executor::Outcome Executor::create_pod(const Job& job, const PodFactory& factory, const CreatePod& action) const {
  constexpr size_t kCopies = 4;  // the body, the request, and the answer with its parser
  const ByteBudget::Share share = in_flight_.take(factory.text_size() * kCopies);
  return create(job, Kind::kPod, action.name, factory.text(action.node_rank));
}

Executor::Outcome Executor::run(const Job& job, const CreatePod& action) const {
  return create_pod(job, make_factory(job, action.attempt), action);
}

Executor::Outcome Executor::remove(const Job& job, Kind kind, const std::string& name,
                                   const kube::Preconditions& wanted) const {
  const kube::ObjectKey key{job.metadata.name_space, name};
  const std::string what = describe("delete", kind, key);
  const auto answer = client_.remove(resource_of(kind), key, wanted, {});
  if (answer) {
    own_writes_->record(job.metadata.uid, kind, read_written(*answer).resource_version);
    return std::nullopt;
  }
  if (answer.error().kind == ErrorKind::kNotFound) return std::nullopt;
  if (answer.error().kind != ErrorKind::kConflict) return stopped(Stop::Kind::kFailed, what, answer.error());
  if (wanted.resource_version.empty()) return std::nullopt;
  // Which of the two preconditions did not hold? The object of another uid is not ours to delete: ours is gone.
  const auto live = client_.get(resource_of(kind), key, {});
  if (!live && live.error().kind != ErrorKind::kNotFound) return stopped(Stop::Kind::kFailed, what, live.error());
  if (!live || read_written(*live).uid != wanted.uid) return std::nullopt;
  return stopped(Stop::Kind::kStale, what, answer.error());
}

Executor::Outcome Executor::run(const Job& job, const DeletePod& action) const {
  log_.info("deleting a pod",
            {{"namespace", job.metadata.name_space}, {"pod", action.name}, {"reason", action.reason}});
  return remove(job, Kind::kPod, action.name, {.uid = action.uid, .resource_version = action.resource_version});
}

Executor::Outcome Executor::run(const Job& job, const DeleteService& action) const {
  return remove(job, Kind::kService, action.name, {.uid = action.uid, .resource_version = ""});
}

Executor::Outcome Executor::run(const Job& job, const DeleteNetworkPolicy& action) const {
  return remove(job, Kind::kNetworkPolicy, action.name, {.uid = action.uid, .resource_version = ""});
}

Executor::Outcome Executor::run(const Job& job, const DeleteJob& action) const {
  log_.info("deleting a job that has ended", {{"namespace", job.metadata.name_space}, {"trainingjob", action.name}});
  return remove(job, Kind::kJob, action.name, {.uid = action.uid, .resource_version = action.resource_version});
}

Executor::Outcome Executor::run(const Job& job, const PatchStatus& action) const {
  const kube::ObjectKey key{job.metadata.name_space, job.metadata.name};
  const std::string what = describe("patch the status of", Kind::kJob, key);
  const nlohmann::json patch = action.conditions_only ? api::conditions_patch(job.metadata, action.status.conditions)
                                                      : api::status_patch(job.metadata, action.status);
  const std::string body = patch.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto answer = client_.patch_status(resource_of(Kind::kJob), key, body, {});
  if (answer) {
    own_writes_->record(job.metadata.uid, Kind::kJob, read_written(*answer).resource_version);
    return std::nullopt;
  }
  switch (answer.error().kind) {
    case ErrorKind::kNotFound:
      return stopped(Stop::Kind::kGone, what, answer.error());
    case ErrorKind::kConflict:
      return stopped(Stop::Kind::kStale, what, answer.error());
    default:
      return stopped(Stop::Kind::kFailed, what, answer.error());
  }
}

Executor::Outcome Executor::run(const Job& job, const EmitEvent& action) const {
  emit(job, action);
  return std::nullopt;
}

}  // namespace oarlock::control
