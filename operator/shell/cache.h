// What the operator knows of the cluster: the jobs, and the pods, Services and NetworkPolicies that carry a job's
// label, each followed by an informer of its own in every namespace that is looked at (or one for all).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/log.h"
#include "operator/kube/informer.h"
#include "operator/shell/cached_job.h"
#include "operator/shell/projection.h"
#include "operator/shell/removed_pods.h"

namespace oarlock::control {

enum class Kind { kJob, kPod, kService, kNetworkPolicy };

kube::Resource resource_of(Kind kind);

// Bytes of template, trainer and failure rules of all cached jobs together. Typical jobs have some KiB. Those beyond
// the budget are read from the API server each time they are worked on, so that the memory does not depend on what
// tenants write.
inline constexpr size_t kSpecBudget = 16u << 20;

struct CacheOptions {
  std::vector<std::string> namespaces;  // empty: all
  uint64_t seed = 0;                    // of the jitter
  size_t spec_budget = kSpecBudget;     // bytes
  bool network_policies = false;        // also follow NetworkPolicies
};

// kLater: an object is there that the operator made, and nothing has come of it yet. kSoon: a pod gets on, and others
// of its job most likely do too. kNow: all else; an end, a loss, the job itself.
enum class Urgency { kNow, kSoon, kLater };

// What one informer follows.
struct Followed {
  Kind kind = Kind::kJob;
  std::string name_space;  // empty: all

  std::string to_string() const;  // "pods in namespace a"
  auto operator<=>(const Followed&) const = default;
};

struct CacheHooks {
  std::function<void(const kube::ObjectKey& job, Urgency)> on_change;  // something of this job has changed
  std::function<void(const Followed&, const kube::ApiError&)> on_problem;
  std::function<void(const Followed&, size_t objects)> on_synced;
  std::function<void(const Followed&)> on_watching;  // a watch that follows a list has brought its first event
  // An object could not be read. The key is empty where not even its name could be.
  std::function<void(Kind, const kube::ObjectKey&, const Error&)> on_unreadable;
};

class Cache {
 public:
  Cache(CacheOptions options, CacheHooks hooks, std::shared_ptr<kube::Transport> transport,
        std::shared_ptr<const Clock> clock, std::shared_ptr<kube::Sleeper> sleeper);
  ~Cache();  // stops
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  void start();  // a thread for each informer
  void stop();   // and waits for them

  bool synced() const;
  // Has the cache all that happened to this kind in this namespace up to this version?
  bool has_seen(Kind kind, const std::string& name_space, const std::string& resource_version) const;

  // As the cache holds it (shell/cached_job.h): report.is_trimmed may be set.
  std::shared_ptr<const Job> job(const kube::ObjectKey& key) const;
  std::vector<std::shared_ptr<const CachedJob>> jobs() const;
  // Also those that were done and were removed before the job's status recorded it.
  std::vector<Pod> pods_of(const kube::ObjectKey& job) const;
  std::vector<Service> services_of(const kube::ObjectKey& job) const;
  // Empty unless CacheOptions::network_policies is set.
  std::vector<NetworkPolicy> network_policies_of(const kube::ObjectKey& job) const;
  size_t pods() const;

 private:
  struct Scope {
    std::unique_ptr<kube::Informer<CachedJob>> jobs;
    std::unique_ptr<kube::Informer<PackedPod>> pods;
    std::unique_ptr<kube::Informer<PackedService>> services;
    std::unique_ptr<kube::Informer<PackedNetworkPolicy>> network_policies;  // null: not followed
  };

  template <typename T>
  std::unique_ptr<kube::Informer<T>> make_informer(Kind kind, kube::Selection selection, kube::FieldFilter fields,
                                                   typename kube::Informer<T>::Hooks hooks);
  static std::shared_ptr<const Job> job_in(const Scope& scope, const kube::ObjectKey& key);
  const Scope* scope_of(const std::string& name_space) const;

  const CacheHooks hooks_;
  const std::shared_ptr<kube::Transport> transport_;
  const std::shared_ptr<const Clock> clock_;
  const std::shared_ptr<kube::Sleeper> sleeper_;
  uint64_t seed_;
  SpecBudget spec_budget_;
  RemovedPods removed_pods_;
  std::map<std::string, Scope> scopes_;  // by namespace; "" has all
  std::vector<std::jthread> threads_;
};

}  // namespace oarlock::control
