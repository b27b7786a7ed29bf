// A simulated API server for one TrainingJob: objects with uids and resource versions, preconditions, AlreadyExists,
// objects that the garbage collector has not removed yet, and the events of a cluster. It is a value type: copy it to
// branch or to keep an earlier state.
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

// The termination message of a disconnected launcher.
inline constexpr char kDisconnectedMessage[] =
    R"({"rank":1,"step":0,"checkpointStep":-1,"reason":"Disconnected","message":"node rank 0 has not answered"})";

// The termination message that a launcher writes for a rank that has left none.
inline constexpr char kLauncherMessage[] =
    R"({"rank":1,"step":0,"checkpointStep":-1,"reason":"Failed","message":"rank 1 left no message"})";

// The state that the informers show. Each kind of object may have been read at a different time.
struct View {
  control::Job job;
  std::vector<control::Pod> pods;
  std::vector<control::Service> services;
  std::vector<control::NetworkPolicy> network_policies{};
  std::vector<control::Workload> workloads{};
  std::vector<control::PodGroup> pod_groups{};
};

// The objects on the API server other than the job.
struct Objects {
  std::map<std::string, control::Pod> pods;
  std::optional<control::Service> service;
  std::optional<std::string> metrics_peers;  // from the operator's flags
  std::optional<control::NetworkPolicy> network_policy;
  bool had_network_policy = false;           // a NetworkPolicy was created at some time
  std::vector<control::Workload> workloads;  // in the order of their creation
  bool lost_workload = false;  // an administrator has deleted it, and thereby taken the quota of pods that may run
  bool has_gangs = false;      // the API of native PodGroups is served
  int nodes = 0;               // of the cluster: node-0, node-1 ...; 0: each node rank has its own
  std::map<std::string, int> pod_groups;  // the minimum by name
  std::set<std::string> conflicting;      // foreign pods that made a create fail with AlreadyExists
  std::map<std::string, int> created;     // number of created pods by name; each has its own uid
  std::optional<RankStatus> reported;     // the last status of any rank 0
  // Generation of the default TrainingProfile; 0: it does not exist; absent: users do not change profiles.
  std::optional<int64_t> profile;
  std::map<std::string, int64_t>
      pod_profiles;                    // by name: the generation with which a pod was created, if there are any
  std::optional<int> stopped_attempt;  // the last one that a user, the cluster or a suspension stopped before a crash
  std::optional<int> crashed_attempt;  // the last one of which a trainer failed that was not stopped

  bool operator==(const Objects&) const = default;
};

// Returns the number of nodes of the group that the launchers can form from the pods that run; absent if they need all
// nodes or more than run, or if node rank 0 does not run.
std::optional<int> possible_group(const control::Job& job, const std::map<std::string, control::Pod>& pods);

// Returns whether the launchers train with fewer nodes than the attempt has: all pods that run are in the group.
bool trains_with_fewer_nodes(const control::Job& job, const Objects& objects);

// Returns the Workload that has quota; null if there is none.
const control::Workload* find_quota(const Objects& objects);

// The resourceVersion of a Workload, derived from its content, so that equal states have equal versions.
std::string version_of(const control::Workload& workload);

// The value of Observed::workloads, if the watch shows these Workloads of the job.
std::optional<std::vector<control::Workload>> workloads_of(const control::Job& job,
                                                           std::vector<control::Workload> workloads);

// The value of Observed::pod_groups, if the watch shows these PodGroups of the job.
std::vector<control::PodGroup> pod_groups_of(const control::Job& job, const std::map<std::string, int>& groups);

// The value of Observed::profile, if the watch shows this profile.
BoxedOptional<api::AppliedProfile> profile_for(const control::Job& job, const Objects& objects);

// Returns the generation of the profile that the status records; 0: none.
int64_t recorded_profile(const api::Status& status);

// The value of Observed::untouched: no effect of an operator exists.
bool is_untouched(const control::Job& job, const Objects& objects);

// Whether the rank is done if its trainer ends with this code on its own: 0, or one that a rule ignores.
bool is_done_exit_code(const control::Job& job, int exit_code);

enum class Outcome { kDone, kStopped };  // kStopped: the shell stops the plan

class SimCluster {
 public:
  explicit SimCluster(control::Job job);
  SimCluster(control::Job job, Objects objects, SystemTime now);

  // ---- Actions of the operator, as model.h specifies them -----------------------------------------------
  // `job` is the job from which the operator made the plan; a patch carries its resourceVersion.
  Outcome apply(const control::Action& action, const control::Job& job);

  // ---- Events of the cluster -------------------------------------------------------------------------------------
  // A pod waits if it must avoid all nodes of the cluster. A pod of a PodGroup waits until the group exists, with as
  // many pods that have not ended as its minimum. All its pods get nodes together.
  bool schedule(const std::string& pod);
  bool start(const std::string& pod);
  bool make_ready(const std::string& pod);
  bool end(const std::string& pod, int exit_code);
  bool end_trainer(const std::string& pod, int exit_code);  // a sidecar continues
  // A launcher with bounds has lost the connection to node rank 0, and ends with 76. That of node rank 0 never does.
  bool disconnect(const std::string& pod);
  bool evict(const std::string& pod);
  bool request_deletion(const std::string& pod);  // kubectl delete pod
  bool disrupt(const std::string& pod);           // by a drain, a preemption or the taint manager
  bool remove(const std::string& pod);            // immediately: a deleting pod terminated, or its node was deleted
  void tick(int seconds) { now_ += std::chrono::seconds(seconds); }
  // Rank 0 of the attempt completes and reports a step. The steps are 0, 1, 2, 0, 1 ... The next step is impossible
  // until the status contains the last one, because two unobserved steps could not be distinguished from none.
  bool step();
  // Rank 0 completes and reports a step, as above, in a group that consists of the pods that run: the launchers
  // continue without the other pods, or admit some of them.
  bool step_in_new_group();
  void set_suspend(bool value);
  void set_max_restarts(int count);
  void set_nodes(int count);  // kubectl scale
  void delete_job();
  void delete_service();
  void serve_gangs() { objects_.has_gangs = true; }
  void set_cluster_nodes(int count) { objects_.nodes = count; }
  void set_profile(int64_t generation) { objects_.profile = generation; }
  void set_metrics_peers(const std::string& peers) { objects_.metrics_peers = peers; }
  void delete_network_policy() { objects_.network_policy.reset(); }
  void edit_network_policy() { objects_.network_policy->digest = kEditedDigest; }
  // Kueue admits the first Workload that has no quota, with its number of nodes or with `nodes`, evicts the job, or an
  // administrator deletes the Workload that has quota, or the first one.
  bool admit(std::optional<int> nodes = std::nullopt);
  bool preempt();
  bool lose_workload();
  void add_foreign_pod(const std::string& name);
  void remove_foreign_pods();

  // ---- State ---------------------------------------------------------------------------------------------
  const control::Job& job() const { return job_; }
  const std::map<std::string, control::Pod>& pods() const { return objects_.pods; }
  bool has_service() const { return objects_.service.has_value(); }
  const Objects& objects() const { return objects_; }
  const std::vector<control::EmitEvent>& events() const { return events_; }
  SystemTime now() const { return now_; }
  int writes() const { return writes_; }  // that changed an object
  int requests() const { return requests_; }

  // The objects that the operator's watches show now; a foreign pod only after a create failed because of it.
  View view() const;
  // Returns the view together with the state that is not watched.
  control::Observed observe(const View& view) const;

 private:
  bool report_step(int world_size);
  void note_stop(const control::Pod& pod);
  bool begin_deletion(const std::string& name);
  Outcome confirm_absent(const control::ConfirmPodAbsent& action);
  Outcome create_service(const control::CreateService& action);
  std::string unused_key() const;
  Outcome create_network_policy(const control::CreateNetworkPolicy& action);
  Outcome replace_network_policy(const control::ReplaceNetworkPolicy& action);
  Outcome delete_network_policy(const control::DeleteNetworkPolicy& action);
  Outcome create_workload(const control::CreateWorkload& action);
  Outcome create_pod_group(const control::CreatePodGroup& action);
  bool may_be_placed(const control::Pod& pod) const;
  std::optional<std::string> find_node(const control::Pod& pod) const;
  void place(control::Pod& pod);
  Outcome delete_workload(const control::DeleteWorkload& action);
  Outcome update_workload(const control::UpdateWorkload& action);
  Outcome create_pod(const control::CreatePod& action, const control::Job& seen);
  Outcome delete_pod(const control::DeletePod& action);
  Outcome delete_service(const control::DeleteService& action);
  Outcome delete_job(const control::DeleteJob& action);
  Outcome patch_status(const control::PatchStatus& action, const control::Job& seen);
  control::Pod* find(const std::string& name);
  control::Workload* find_workload(const std::string& name);
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
