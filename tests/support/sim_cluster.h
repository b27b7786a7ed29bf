// A tiny API server for one TrainingJob: objects with uids and resource versions, preconditions, AlreadyExists, garbage
// that stays; and the moves that a cluster makes on its own. A value: copy it to branch or to keep an old view.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/core/model.h"

namespace oarlock::test {

inline constexpr char kEditedDigest[] = "edited";

// What an informer may show, each kind as of some moment of its own.
struct View {
  control::Job job;
  std::vector<control::Pod> pods;
  std::vector<control::Service> services;
  std::vector<control::NetworkPolicy> network_policies{};
};

// What the API server holds beside the job.
struct Objects {
  std::map<std::string, control::Pod> pods;
  std::optional<control::Service> service;
  std::optional<std::string> metrics_peers;  // of the operator's flags
  std::optional<control::NetworkPolicy> network_policy;
  bool had_network_policy = false;     // one was created at some time
  std::set<std::string> met;           // foreign pods that a create ran into
  std::map<std::string, int> created;  // how often a pod of this name was: each has a uid of its own
  std::optional<RankStatus> said;      // by the last rank 0 that said anything

  bool operator==(const Objects&) const = default;
};

// Nothing is left of what an operator may have done: Observed.untouched.
bool is_untouched(const control::Job& job, const Objects& objects);

enum class Outcome { kDone, kStopped };  // kStopped: the shell ends the plan here

class SimCluster {
 public:
  explicit SimCluster(control::Job job);
  SimCluster(control::Job job, Objects objects, SystemTime now);

  // ---- what the operator does: the shell's contract with model.h -----------------------------------------------
  // `job` is the job as the operator saw it when it made the plan: the patch carries its resourceVersion.
  Outcome apply(const control::Action& action, const control::Job& job);

  // ---- what the cluster does -------------------------------------------------------------------------------------
  bool schedule(const std::string& pod);
  bool start(const std::string& pod);
  bool make_ready(const std::string& pod);
  bool end(const std::string& pod, int exit_code);
  bool evict(const std::string& pod);
  bool ask_to_delete(const std::string& pod);  // kubectl delete pod
  bool disrupt(const std::string& pod);        // a drain, a preemption, the taint manager
  bool remove(const std::string& pod);         // gone at once: a deleting pod that stopped, or a node that was deleted
  void tick(int seconds) { now_ += std::chrono::seconds(seconds); }
  // Rank 0 of the attempt does a step and tells it. Steps go back and forth between 0 and 1; there is no next one until
  // the operator has written down the last, for two at once would look like none.
  bool step();
  void set_suspend(bool value);
  void set_max_restarts(int count);
  void delete_job();
  void delete_service();
  void set_metrics_peers(const std::string& peers) { objects_.metrics_peers = peers; }
  void delete_network_policy() { objects_.network_policy.reset(); }
  void edit_network_policy() { objects_.network_policy->digest = kEditedDigest; }
  void add_foreign_pod(const std::string& name);
  void remove_foreign_pods();

  // ---- what is there ---------------------------------------------------------------------------------------------
  const control::Job& job() const { return job_; }
  const std::map<std::string, control::Pod>& pods() const { return objects_.pods; }
  bool has_service() const { return objects_.service.has_value(); }
  const Objects& objects() const { return objects_; }
  const std::vector<control::EmitEvent>& events() const { return events_; }
  SystemTime now() const { return now_; }
  int writes() const { return writes_; }  // that changed something
  int requests() const { return requests_; }

  // The objects that the operator's watches show now; a foreign pod only after a create met it.
  View view() const;
  // From a view and what is not watched.
  control::Observed observe(const View& view) const;

 private:
  Outcome confirm_absent(const control::ConfirmPodAbsent& action);
  Outcome create_service(const control::CreateService& action);
  Outcome create_network_policy(const control::CreateNetworkPolicy& action);
  Outcome replace_network_policy(const control::ReplaceNetworkPolicy& action);
  Outcome delete_network_policy(const control::DeleteNetworkPolicy& action);
  Outcome create_pod(const control::CreatePod& action);
  Outcome delete_pod(const control::DeletePod& action);
  Outcome delete_service(const control::DeleteService& action);
  Outcome delete_job(const control::DeleteJob& action);
  Outcome patch_status(const control::PatchStatus& action, const control::Job& seen);
  control::Pod* find(const std::string& name);
  void touch(control::Pod& pod) { pod.resource_version = next_version(); }
  std::string next_version() { return std::to_string(++version_); }

  control::Job job_;
  Objects objects_;
  std::vector<control::EmitEvent> events_;
  SystemTime now_;
  uint64_t version_ = 1000;
  int writes_ = 0;
  int requests_ = 0;
};

}  // namespace oarlock::test
