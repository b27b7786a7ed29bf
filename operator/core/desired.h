// Desired Kubernetes objects of a job: its Service, its NetworkPolicy and the pods of one attempt. All functions are
// pure; `oarlock render` prints the same objects.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "operator/core/environment.h"
#include "operator/core/launcher_injection.h"
#include "operator/core/model.h"
#include "operator/core/pod_template.h"

namespace oarlock::control {

std::string service_name(const Job& job);                          // the job's name
std::string network_policy_name(std::string_view job);             // trainingjob-<job>
std::string pod_name(const Job& job, int attempt, int node_rank);  // <job>-<attempt>-<node rank>; also its hostname
std::string master_address(const Job& job, int attempt);           // <pod of node 0>.<service>.<namespace>.svc

// Returns the port on which local rank 0 of each pod serves /metrics and /statusz; local rank n uses this port + n.
int metrics_port(const Job& job);

// Returns whether the launchers of the job's pods restart ranks together, in a group of this number of nodes: with
// failurePolicy.restartScope Rank, unless there are no restarts or no other ranks.
bool regroups(const Job& job, int nodes);
bool regroups(const Job& job);  // for a group of the current size

// Returns whether the launchers of a group of this number of nodes connect to each other, and share a token: they
// restart ranks together, or make a preflight.
bool needs_token(const Job& job, int nodes);

// Returns the bounds of the launchers of an attempt that begins with this number of nodes; absent if they need all
// nodes, as launchers that restart all ranks do (launcher_image()).
std::optional<api::LauncherBounds> make_launcher_bounds(const Job& job, int nodes);

// Returns the bounds of the current attempt: those that its status records, because all of its launchers need the same
// ones; those of the spec if the attempt has no status yet.
std::optional<api::LauncherBounds> launcher_bounds(const Job& job);

// The credentials with which the launchers of one attempt connect to each other.
struct RegroupSecret {
  std::string token;   // OARLOCK_REGROUP_TOKEN, which all of them share; empty: they do not connect
  std::string key_id;  // regroup_key_id() of the key from which the token was derived
};

// The annotation of a pod with RegroupSecret::key_id. A pod with another value, or none, cannot join the others.
inline constexpr char kAnnotationRegroupKeyId[] = "oarlock.dev/regroup-key-id";

// The annotations of a pod with ChosenImages.
inline constexpr char kAnnotationTrainerImage[] = "oarlock.dev/default-image";
inline constexpr char kAnnotationLauncherImage[] = "oarlock.dev/launcher-image";

// Returns the part of a Service's key that identifies it: its first twelve characters. The key of a Service that was
// deleted and created again is another one.
std::string regroup_key_id(std::string_view key);

// Returns a secret for pods that are not created (oarlock render, dry runs, the explanation of a rejection), so that
// they have the same fields as created ones.
RegroupSecret placeholder_secret();

// Returns an owner reference that makes the job the controller of an object, so that the garbage collector deletes the
// object with the job.
nlohmann::json owner_reference(const Job& job);

// ---- Service -------------------------------------------------------------------------------------------------------

// Returns a headless Service that publishes addresses of pods before they are ready, because rendezvous precedes
// readiness.
nlohmann::json desired_service(const Job& job);

// ---- NetworkPolicy -------------------------------------------------------------------------------------------------

// Returns a NetworkPolicy with which the job's pods accept connections from each other on every port, and from `peers`
// (Observed::metrics_peers) on the metrics ports of their ranks. It does not restrict egress.
nlohmann::json desired_network_policy(const Job& job, std::string_view peers);

// Returns a digest of a NetworkPolicy's spec, which does not depend on the order of its keys.
std::string spec_digest(const nlohmann::json& spec);

// Validates a JSON list of NetworkPolicyPeer and returns it in the form in which the API server stores it: without
// nulls and empty lists, so that a stored NetworkPolicy compares equal to the desired one. Fails with kUsage.
Result<std::string> parse_metrics_peers(std::string_view json);

// ---- Pods ----------------------------------------------------------------------------------------------------------

// Returns the contract variables in the template's container 'trainer' whose values the operator replaces, in the order
// of the template. In other containers the template's value takes precedence.
std::vector<std::string> overridden_variables(const Job& job);

// Builds the pods of one attempt from make_pod_template(). It parses the template once and keeps a single text with
// placeholders for the parts that depend on the node rank, so that its size does not depend on the number of nodes.
// REQUIRES: api::validate(job) is empty.
class PodFactory {
 public:
  // `nodes` and `launchers` are the size and the bounds of the attempt's group, and `launcher_image` is the image from
  // which the pods copy the launcher; empty if they have none. The pods receive the secret if needs_token(job, nodes),
  // and the bounds if regroups(job, nodes).
  PodFactory(const Job& job, int attempt, int nodes, const PodDefaults& defaults, const RegroupSecret& secret,
             const std::optional<api::LauncherBounds>& launchers = std::nullopt,
             const std::string& launcher_image = "");
  // Like the constructor above, for a group of the current size and bounds, with the launcher of the status.
  PodFactory(const Job& job, int attempt, const PodDefaults& defaults = {}, const RegroupSecret& secret = {})
      : PodFactory(job, attempt, job.group_nodes(), defaults, secret, launcher_bounds(job), launcher_image(job)) {}

  // Returns the pod as JSON text: the body of the request that creates it.
  std::string text(int node_rank, bool is_replacement = false) const;
  // Returns the length of the longest of these texts, those of replacements excepted.
  size_t text_size() const { return text_size_; }
  // Returns the same pod as a JSON tree.
  nlohmann::json pod(int node_rank, bool is_replacement = false) const;

  // Values of the contract's variables. config_file is the mounted spec.trainer, or empty without spec.trainer.
  // checkpoint_dir is <mountPath>/<job> of the trainer container's volume mount `checkpoints`, or empty without one.
  const RankGroup& group() const { return group_; }

 private:
  // The parts of a pod that depend on its node rank.
  enum class Part { kName, kRankLabel, kEnvironment, kHostname };
  struct Placeholder {
    Part part;
    size_t environment;  // index in environments_ for kEnvironment
    size_t begin;        // offset in frame_
    size_t size;
  };
  // The variables of the contract that one container receives.
  struct ContainerEnvironment {
    RankGroup group;
    std::vector<std::string> from_template;  // contract variables for which the template's value is used
  };
  void set_restarts(const Job& job, const RegroupSecret& secret, const std::optional<api::LauncherBounds>& launchers);
  void set_preflight(const Job& job, const RegroupSecret& secret, const nlohmann::json& trainer);
  void select_variables(nlohmann::json& trainer);
  void add_environment(nlohmann::json& container, bool is_trainer);
  void set_frame(nlohmann::json pod, bool has_launcher);
  std::string part_text(const Placeholder& placeholder, int node_rank, bool is_replacement) const;
  static std::vector<EnvVar> variables(const ContainerEnvironment& environment, int node_rank, bool is_replacement);

  RankGroup group_;
  std::string name_prefix_;
  std::vector<std::string> user_set_;  // contract variables of the trainer for which the template's value is used
  std::vector<ContainerEnvironment> environments_;
  std::string frame_;                      // the pod's text with placeholders
  std::vector<Placeholder> placeholders_;  // in the order of their positions
  size_t text_size_ = 0;
};

}  // namespace oarlock::control
