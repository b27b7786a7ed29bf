// Actions -> API calls, in order, to the first that fails. What the answers tell goes to OwnWrites.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "common/log.h"
#include "operator/core/desired.h"
#include "operator/core/model.h"
#include "operator/kube/client.h"
#include "operator/shell/byte_budget.h"
#include "operator/shell/event_recorder.h"
#include "operator/shell/own_writes.h"

namespace oarlock::control {

// Why a plan was not done to its end.
struct Stop {
  enum class Kind {
    kStale,    // the world has moved on since the cache was read: look again
    kForeign,  // an object of somebody else has the name: it must be seen in the next Observed
    kGone,     // the job does not exist any more
    kEnding,   // the program ends
    kYielded,  // others wait for the worker: go on later
    kFailed,   // the API call failed
  };
  Kind kind = Kind::kFailed;
  std::string action;                                // "create pod ns/a-0-1"
  kube::ApiError error;                              // of kFailed
  control::Kind foreign_kind = control::Kind::kPod;  // of kForeign
  kube::ObjectKey foreign;
};

class Executor {
 public:
  // `client`: of the answers only the metadata is read.
  Executor(kube::Client client, std::shared_ptr<OwnWrites> own_writes, std::shared_ptr<EventRecorder> events,
           const Logger& log)
      : client_(std::move(client)),
        own_writes_(std::move(own_writes)),
        events_(std::move(events)),
        log_(log),
        in_flight_(kBytesInFlight) {}

  // Empty: all done. Pods that follow each other are created, or deleted, in batches (batch.h); the body of a pod is
  // made when it is sent. Calls `on_done` for each action as soon as it is done, from one thread at a time, within a
  // batch in any order. A stop is obeyed between two actions; a call in flight is let end, within the client's
  // deadline. Thread-safe.
  // `should_yield` is called before each pod is created or deleted.
  std::optional<Stop> execute(
      const Job& job, const std::vector<Action>& actions, const std::function<void(const Action&)>& on_done,
      const std::stop_token& stop, const std::function<bool()>& should_yield = [] { return false; }) const;

  // To be held while a template is a tree, which takes up to forty times its size: large ones are parsed one at a time.
  std::unique_lock<std::mutex> lock_if_large(const api::Spec& spec) const;

  // Best effort, and does not wait.
  void emit(const Job& job, const EmitEvent& event) const { events_->record(job, event); }

 private:
  // Of bodies, requests and answers of pods. Bodies of common size (some KiB) never wait.
  static constexpr size_t kBytesInFlight = 24u << 20;
  static constexpr size_t kLargeTemplate = 16u << 10;

  using Outcome = std::optional<Stop>;
  // Does independent actions in batches; returns the failure of the earliest action that failed.
  Outcome run_in_batches(std::span<const Action> actions, const std::function<Outcome(const Action&)>& run_one,
                         const std::function<void(const Action&)>& on_done, const std::stop_token& stop) const;
  PodFactory make_factory(const Job& job, int attempt) const;
  Outcome create_pod(const Job& job, const PodFactory& factory, const CreatePod& action) const;
  Outcome run(const Job& job, const ConfirmJobUnchanged& action) const;
  Outcome run(const Job& job, const ConfirmPodAbsent& action) const;
  Outcome run(const Job& job, const CreateService& action) const;
  Outcome run(const Job& job, const CreateNetworkPolicy& action) const;
  Outcome run(const Job& job, const ReplaceNetworkPolicy& action) const;
  Outcome run(const Job& job, const CreatePod& action) const;  // a batch of one
  Outcome run(const Job& job, const DeletePod& action) const;
  Outcome run(const Job& job, const DeleteService& action) const;
  Outcome run(const Job& job, const DeleteNetworkPolicy& action) const;
  Outcome run(const Job& job, const DeleteJob& action) const;
  Outcome run(const Job& job, const PatchStatus& action) const;
  Outcome remove(const Job& job, Kind kind, const std::string& name, const kube::Preconditions& wanted) const;
  Outcome run(const Job& job, const EmitEvent& action) const;
  Outcome create(const Job& job, Kind kind, const std::string& name, std::string body) const;

  const kube::Client client_;
  const std::shared_ptr<OwnWrites> own_writes_;
  const std::shared_ptr<EventRecorder> events_;
  const Logger log_;
  mutable ByteBudget in_flight_;  // bodies of pods, of all workers together
  mutable std::mutex large_mutex_;
};

}  // namespace oarlock::control
