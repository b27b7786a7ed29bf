// The operator's local copy of the cluster state: the jobs, and the pods, Services and NetworkPolicies that carry a
// job's label, Kueue's Workloads once a job has a queue, PodGroups where gang schedulers have them, and nodes if that
// is requested. One informer per resource and watched namespace keeps it up to date.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/log.h"
#include "kube/client/informer.h"
#include "kube/client/request.h"
#include "operator/shell/projection.h"
#include "operator/shell/removed_pods.h"

namespace oarlock::control {

enum class ResourceKind {
  kJob,
  kPod,
  kService,
  kNetworkPolicy,
  // Of APIs that not every cluster has.
  kWorkload,
  kPodGroup,
  kSchedulerPluginsPodGroup,
  kVolcanoPodGroup,
  kNode,
  kProfile,
};

kube::Resource resource_of(ResourceKind kind);
ResourceKind pod_groups_of(GangApi api);

// Memory for template, trainer and failure rules of all cached jobs together, in bytes. Typical jobs need some KiB. A
// job that exceeds the budget is read from the API server for each reconcile instead, so that tenants cannot determine
// the operator's memory.
inline constexpr size_t kSpecBudget = 16u << 20;

// Default memory for all cached objects together, in bytes.
inline constexpr size_t kCacheLimit = 48u << 20;

struct CacheOptions {
  std::vector<std::string> namespaces;  // empty: all
  uint64_t seed = 0;                    // for the jitter of retries
  size_t spec_budget = kSpecBudget;     // bytes
  // Bytes for all objects together: three eighths each for jobs and pods, and an eighth each for Services and
  // NetworkPolicies; an eighth more for Workloads, if jobs have queues, for TrainingProfiles, and for each kind of
  // PodGroups that is served.
  // Each watched namespace has an equal part.
  // Beyond it, objects of the namespaces that take the most memory are dropped (kube::Informer): of jobs those that
  // have finished and have no ttlSecondsAfterFinished, the oldest first, and then the newest ones.
  size_t limit = kCacheLimit;
  bool network_policies = false;  // also watch NetworkPolicies
  bool nodes = false;             // also watch the nodes of the cluster; an eighth more of `limit`
  // The namespace of the operator's pod, whose TrainingProfiles apply to the jobs of all namespaces; empty: none.
  std::string profile_namespace{};
};

// How soon a change needs a reconcile.
enum class Urgency {
  kImmediate,  // changes of the job, terminations and deletions
  kBatched,    // an object that the operator created has appeared or made progress; others probably follow soon
};

// The objects that one informer watches.
struct WatchScope {
  ResourceKind kind = ResourceKind::kJob;
  std::string namespace_name;  // empty: all

  std::string to_string() const;  // "pods in namespace a"
  auto operator<=>(const WatchScope&) const = default;
};

// Called on the informers' threads. Different informers call concurrently.
struct CacheHooks {
  std::function<void(const kube::ObjectKey& job, Urgency)> on_change;  // the job or one of its objects has changed
  std::function<void(const WatchScope&, const kube::ApiError&)> on_error;
  std::function<void(const WatchScope&)> on_listing;  // a list begins, which on_synced or on_error ends
  std::function<void(const WatchScope&, size_t objects)> on_synced;
  std::function<void(const WatchScope&)> on_watching;  // the first event of a watch that follows a list
  // The key is empty if the object has no readable name.
  std::function<void(ResourceKind, const kube::ObjectKey&, const Error&)> on_unreadable;
  // The namespaces whose objects were dropped because of CacheOptions::limit; empty once the cache is complete again.
  std::function<void(const WatchScope&, const std::set<std::string>& namespaces)> on_incomplete =
      [](const WatchScope&, const std::set<std::string>&) {};
};

// Thread-safe between start() and stop().
class Cache {
 public:
  Cache(CacheOptions options, CacheHooks hooks, std::shared_ptr<http::Transport> transport,
        std::shared_ptr<const Clock> clock, std::shared_ptr<kube::Sleeper> sleeper);
  ~Cache();  // calls stop()
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  void start();  // starts one thread per informer
  void stop();   // stops the threads and waits for them

  // Whether every informer has completed its first list. Of PodGroups and TrainingProfiles, a refusal suffices; nodes
  // are not awaited.
  bool has_synced() const;

  // Whether the cache contains every change of this kind and namespace up to this version.
  bool has_seen(ResourceKind kind, const std::string& namespace_name, const std::string& resource_version) const;

  // Whether pods, Services or NetworkPolicies of this namespace are missing because of CacheOptions::limit. A decision
  // about its jobs could create them again.
  bool is_incomplete(const std::string& namespace_name) const;

  // Null if the job does not exist. report.is_trimmed may be set (see make_cached_job()).
  std::shared_ptr<const Job> job(const kube::ObjectKey& key) const;
  std::vector<std::shared_ptr<const CachedJob>> jobs() const;
  // Returns count_accelerators() of the job; 0 for a finished job.
  int64_t accelerators_per_pod(const kube::ObjectKey& job) const;

  // Includes pods that were done and were removed before the job's status recorded them (see RemovedPods).
  std::vector<Pod> pods_of(const kube::ObjectKey& job) const;
  std::vector<Service> services_of(const kube::ObjectKey& job) const;
  // Empty unless CacheOptions::network_policies is set.
  std::vector<NetworkPolicy> network_policies_of(const kube::ObjectKey& job) const;

  // Starts to watch the Workloads of the namespace, or of all, at the first call. Absent if they cannot be read now;
  // then `error` explains it, or is empty while they are read for the first time. An API server without Kueue does not
  // affect has_synced(). The hooks report neither Workloads nor PodGroups as not readable.
  std::optional<std::vector<Workload>> workloads_of(const kube::ObjectKey& job, std::string& error);

  // Adds the APIs whose PodGroups can be read in the job's namespace, and the job's PodGroups.
  void add_pod_groups(const kube::ObjectKey& job, Observed& observed) const;

  // Returns the warnings of the nodes of these pods, by node. Empty unless CacheOptions::nodes is set.
  std::map<std::string, std::string> node_warnings(const std::vector<Pod>& pods) const;

  // Returns whether the nodes have been listed, or are not watched.
  bool has_node_warnings() const { return nodes_ == nullptr || nodes_->synced(); }
  // Adds the TrainingProfile that the job would have if it started now: that of its namespace, or otherwise that of
  // CacheOptions::profile_namespace.
  void add_profile(Observed& observed) const;

  size_t pod_count() const;  // of all jobs

 private:
  using JobInformer = kube::Informer<CachedJob>;
  using PodInformer = kube::Informer<CachedPod>;
  using ServiceInformer = kube::Informer<CachedService>;
  using NetworkPolicyInformer = kube::Informer<CachedNetworkPolicy>;

  // The informer of objects of an API that not every cluster has, and whether they can be read, as it has last found.
  // Its failures are not reported, except those of TrainingProfiles that could be read before.
  template <typename T>
  struct OptionalInformer {
    mutable std::mutex mutex;  // of the following
    bool is_started = false;
    int problems = 0;         // before the objects were read for the first time
    bool has_answer = false;  // of the API server, which may be a refusal or an error that persists
    bool is_readable = false;
    bool is_refused = false;  // the API is not installed, or the operator has no permission
    std::string error;        // why the objects cannot be read; empty before the first answer
    std::unique_ptr<kube::Informer<T>> informer;

    // Whether the objects include every change up to this version, or cannot be read.
    bool has_seen(const std::string& resource_version) const;
  };

  // The informers of one namespace, or of all.
  struct Informers {
    std::unique_ptr<JobInformer> jobs;
    std::unique_ptr<PodInformer> pods;
    std::unique_ptr<ServiceInformer> services;
    std::unique_ptr<NetworkPolicyInformer> network_policies;  // null: not watched
    std::unique_ptr<OptionalInformer<CachedWorkload>> workloads;
    std::map<GangApi, OptionalInformer<CachedPodGroup>> pod_groups;
    std::unique_ptr<OptionalInformer<CachedProfile>> profiles;
  };

  JobInformer::Hooks job_hooks();
  PodInformer::Hooks pod_hooks(const Informers& informers);
  kube::Informer<CachedNode>::Hooks node_hooks();
  // When the objects can be read for the first time, or again, the jobs for which `concerns` returns true are enqueued:
  // decisions about them were made without these objects.
  template <typename T>
  void set_informer(OptionalInformer<T>& optional, const Informers& informers, ResourceKind kind,
                    kube::Selection selection, kube::FieldFilter fields, typename kube::Informer<T>::Hooks hooks,
                    bool (*concerns)(const Job&));
  template <typename T>
  std::unique_ptr<kube::Informer<T>> make_informer(ResourceKind kind, kube::Selection selection,
                                                   kube::FieldFilter fields, typename kube::Informer<T>::Hooks hooks);
  // As make_informer(), with the hooks as they are: the caller of the cache learns of unreadable objects only.
  template <typename T>
  std::unique_ptr<kube::Informer<T>> make_unreported_informer(ResourceKind kind, kube::Selection selection,
                                                              kube::FieldFilter fields,
                                                              typename kube::Informer<T>::Hooks hooks);
  std::unique_ptr<OptionalInformer<CachedProfile>> make_profile_informer(const Informers& informers,
                                                                         const std::string& namespace_name);
  std::vector<const OptionalInformer<CachedProfile>*> profile_informers() const;
  static std::shared_ptr<const Job> find_job(const Informers& informers, const kube::ObjectKey& key);
  const Informers* informers_for(const std::string& namespace_name) const;

  const CacheHooks hooks_;
  const std::shared_ptr<http::Transport> transport_;
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<kube::Sleeper> sleeper_;
  uint64_t seed_;
  const size_t limit_;  // of the informers of one namespace
  ByteBudget spec_budget_;
  RemovedPods removed_pods_;
  std::map<std::string, Informers> informers_;  // by namespace; the key "" watches all
  const std::string profile_namespace_;
  std::unique_ptr<OptionalInformer<CachedProfile>> other_profiles_;  // null: informers_ has profile_namespace_
  std::unique_ptr<kube::Informer<CachedNode>> nodes_;                // null: not watched
  std::mutex threads_mutex_;
  std::vector<std::jthread> threads_;  // guarded by threads_mutex_
  bool is_stopped_ = false;            // guarded by threads_mutex_
};

}  // namespace oarlock::control
