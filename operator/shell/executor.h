// Performs the actions of a plan as API calls.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "common/clock.h"
#include "common/log.h"
#include "kube/client/client.h"
#include "operator/core/desired.h"
#include "operator/core/model.h"
#include "operator/shell/byte_budget.h"
#include "operator/shell/cache.h"
#include "operator/shell/event_recorder.h"
#include "operator/shell/kueue_client.h"
#include "operator/shell/own_writes.h"

namespace oarlock::control {

// Why a plan was not performed to its end.
struct Interruption {
  enum class Reason {
    kStaleCache,    // an object differs from its state in the cache: requeue
    kNameConflict,  // an object has the name that is another owner's or lacks the job's label; the next Observed needs
                    // it
    kJobDeleted,    // the job does not exist anymore
    kShutdown,      // a stop was requested
    kYield,         // other jobs wait for the worker: requeue
    kApiError,      // an API call failed; see `error`
  };
  Reason reason = Reason::kApiError;
  std::string action;                                  // "create pod ns/a-0-1"
  kube::ApiError error;                                // for kApiError
  ResourceKind conflicting_kind = ResourceKind::kPod;  // for kNameConflict
  kube::ObjectKey conflicting_key;                     // for kNameConflict
};

// The limit of parallel calls of run_slow_start_batches(), and thus of its threads and connections.
inline constexpr size_t kMaxParallelCalls = 16;

// Calls call(0), call(1) ... call(count - 1) in batches of doubling size, as Kubernetes' Job controller creates pods
// (slowStartBatch): one call, then twice as many as before while all of them succeed. If the server rejects the calls
// (a quota, a webhook), only a few fail instead of thousands.
//
// Each call is made at most once and returns whether it succeeded. After a failure no further call starts. Returns the
// number of calls made, which are the first ones; among the last kMaxParallelCalls some may have failed. `call` must
// not throw: an exception terminates the program.
size_t run_slow_start_batches(size_t count, const std::function<bool(size_t)>& call);

// Returns OARLOCK_REGROUP_TOKEN of an attempt: an HMAC of the job's uid and the attempt with the key in the annotation
// of the job's Service. The token of one attempt does not reveal that of another, nor the key.
std::string derive_regroup_token(const std::string& key, const std::string& job_uid, int attempt);

// Thread-safe.
class Executor {
 public:
  // Reads only the metadata of the client's responses, except for those of Kueue's objects.
  Executor(kube::Client client, std::shared_ptr<OwnWrites> own_writes, std::shared_ptr<EventRecorder> events,
           const Logger& log, PodDefaults pod_defaults = {},
           std::shared_ptr<const Clock> clock = std::make_shared<RealClock>())
      : client_(std::move(client)),
        kueue_(client_.of_objects(), std::move(clock)),
        own_writes_(std::move(own_writes)),
        events_(std::move(events)),
        log_(log),
        pod_defaults_(std::move(pod_defaults)),
        in_flight_(kMaxBytesInFlight) {}

  // Performs the actions in order until the first failure. Consecutive creations, or deletions, of pods are batched
  // (see run_slow_start_batches()); the body of a pod is generated when it is sent.
  //
  // `on_done` is called after each successful action, from one thread at a time; within a batch the order is arbitrary.
  // `should_yield` is called before each creation or deletion of a pod, from any thread; if it returns true, the plan
  // is interrupted. A stop takes effect between two actions: a call in flight completes, within the client's deadline.
  //
  // Returns nothing if all actions were performed.
  std::optional<Interruption> execute(
      const Job& job, const std::vector<Action>& actions, const std::function<void(const Action&)>& on_done,
      const std::stop_token& stop, const std::function<bool()>& should_yield = [] { return false; }) const;

  // Returns a lock to hold while the pod template is parsed, if the template is large. A parsed template takes up to
  // forty times its size, so large ones are parsed one at a time.
  std::unique_lock<std::mutex> lock_if_large(const api::Spec& spec) const;

  // Queues the event without blocking. It may be discarded (see EventRecorder).
  void emit(const Job& job, const EmitEvent& event) const { events_->record(job, event); }

 private:
  // Memory for pod bodies, requests and responses of all workers together. Pods of usual size (some KiB) never wait.
  static constexpr size_t kMaxBytesInFlight = 24u << 20;
  static constexpr size_t kLargeTemplate = 16u << 10;  // bytes

  using Outcome = std::optional<Interruption>;  // nothing: success

  // Performs independent actions in batches. Returns the failure of the earliest action that failed.
  Outcome run_batch(std::span<const Action> actions, const std::function<Outcome(const Action&)>& run_one,
                    const std::function<void(const Action&)>& on_done, const std::stop_token& stop) const;
  Outcome run(const Job& job, const ConfirmJobUnchanged& action) const;
  Outcome run(const Job& job, const ConfirmPodAbsent& action) const;
  Outcome run(const Job& job, const CreateService& action) const;
  Outcome run(const Job& job, const CreateClaim& action) const;
  Outcome run(const Job& job, const CreateNetworkPolicy& action) const;
  Outcome run(const Job& job, const ReplaceNetworkPolicy& action) const;
  Outcome run(const Job& job, const CreatePod& action) const;
  Outcome run(const Job& job, const CreatePodGroup& action) const;
  Outcome run(const Job& job, const CreateWorkload& action) const;
  Outcome run(const Job& job, const ConfirmWorkloadUnchanged& action) const;
  Outcome run(const Job& job, const UpdateWorkload& action) const;
  Outcome run(const Job& job, const DeleteWorkload& action) const;
  Outcome run(const Job& job, const DeletePodGroup& action) const;
  Outcome run(const Job& job, const DeletePod& action) const;
  Outcome run(const Job& job, const DeleteService& action) const;
  Outcome run(const Job& job, const DeleteNetworkPolicy& action) const;
  Outcome run(const Job& job, const DeleteJob& action) const;
  Outcome run(const Job& job, const PatchStatus& action) const;
  Outcome run(const Job& job, const EmitEvent& action) const;
  PodFactory make_factory(const Job& job, const CreatePod& pod, const RegroupSecret& secret) const;
  // Sets `secret` to that of the attempt, which follows from the annotation of the Service, so that all pods of the
  // attempt receive the same one from every process of the operator. Unchanged for jobs that need none, and for a
  // Service without the annotation, which an earlier version of the operator created.
  Outcome read_regroup_secret(const Job& job, const CreatePod& pod, RegroupSecret& secret) const;
  // Sets `placed` to the job with a template to which the pod's admission is applied; unchanged for pods without one.
  // Fails if the pods request more than the Workload that MultiKueue has created for the job.
  Outcome apply_admission(const Job& job, const CreatePod& pod, std::optional<Job>& placed) const;
  // Makes the factory of an attempt's pods.
  Outcome prepare(const Job& job, const CreatePod& pod, std::optional<PodFactory>& factory) const;
  // Creates the pod of node rank 0 in a dry run. Returns nothing if the API server accepts or already has it, or if an
  // admission webhook permits no dry run.
  Outcome try_pod(const Job& job, const CreateClaim& action) const;
  Outcome create_pod(const Job& job, const PodFactory& factory, const CreatePod& action) const;
  Outcome create(const Job& job, ResourceKind kind, const std::string& name, std::string body) const;
  // Records the version of an object in a response to a write: success.
  Outcome record(const Job& job, ResourceKind kind, const std::string& object) const;
  // As create(), for objects of the named kind whose conflicts the decision ignores, unlike those of pods.
  Outcome create_or_refuse(const Job& job, ResourceKind kind, const char* kind_name, const std::string& name,
                           std::string body) const;
  Outcome remove(const Job& job, ResourceKind kind, const std::string& name,
                 const kube::Preconditions& preconditions) const;

  const kube::Client client_;
  const KueueClient kueue_;
  const std::shared_ptr<OwnWrites> own_writes_;
  const std::shared_ptr<EventRecorder> events_;
  const Logger log_;
  const PodDefaults pod_defaults_;
  mutable ByteBudget in_flight_;
  mutable std::mutex large_mutex_;
};

}  // namespace oarlock::control
