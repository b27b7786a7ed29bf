#include "operator/shell/cache.h"

#include "common/contract.h"

namespace oarlock::control {
namespace {

std::string index_key(const kube::ObjectKey& key, const std::string& job) {
  return job.empty() ? "" : kube::ObjectKey{key.name_space, job}.to_string();
}

Urgency urgency_of(const CachedService& cached) { return cached.service.deleting ? Urgency::kNow : Urgency::kLater; }
Urgency urgency_of(const CachedNetworkPolicy& cached) {
  return cached.network_policy.deleting ? Urgency::kNow : Urgency::kLater;
}
Urgency urgency_of(const CachedPod& cached) {
  const Pod& pod = cached.pod;
  const bool on_its_way = pod.phase == PodPhase::kPending || pod.phase == PodPhase::kRunning;
  if (!on_its_way || pod.deleting || pod.trainer || !pod.disruption.empty()) return Urgency::kNow;
  return pod.phase == PodPhase::kRunning ? Urgency::kSoon : Urgency::kLater;
}

// Tells of the job that a pod or Service belongs to, and of the one it belonged to before.
template <typename T>
auto owner_change(const CacheHooks& hooks) {
  return [&hooks](const kube::ObjectKey& key, const T* before, const T* after) {
    const std::string was = before == nullptr ? "" : before->unpack().job;
    if (after == nullptr) {
      if (!was.empty()) hooks.on_change({key.name_space, was}, Urgency::kNow);
      return;
    }
    const auto now = after->unpack();
    if (!now.job.empty()) hooks.on_change({key.name_space, now.job}, urgency_of(now));
    if (!was.empty() && was != now.job) hooks.on_change({key.name_space, was}, Urgency::kNow);
  };
}

template <typename T>
auto owner_index() {
  return [](const kube::ObjectKey& key, const T& object) { return index_key(key, object.unpack().job); };
}

template <typename As, typename Projected>
As packed(const Projected& projected) {
  return As(projected);
}

}  // namespace

kube::Resource resource_of(Kind kind) {
  switch (kind) {
    case Kind::kJob:
      return {kGroup, kVersion, kPlural};
    case Kind::kPod:
      return kube::pods();
    case Kind::kService:
      return kube::services();
    case Kind::kNetworkPolicy:
      return kube::network_policies();
  }
  return {};
}

std::string Followed::to_string() const {
  const std::string what = resource_of(kind).to_string();
  return name_space.empty() ? what : what + " in namespace " + name_space;
}

template <typename T>
std::unique_ptr<kube::Informer<T>> Cache::make_informer(Kind kind, kube::Selection selection, kube::FieldFilter fields,
                                                        typename kube::Informer<T>::Hooks hooks) {
  hooks.on_unreadable = [this, kind](const kube::ObjectKey& key, const Error& error) {
    hooks_.on_unreadable(kind, key, error);
  };
  const Followed followed{kind, selection.name_space};
  hooks.on_problem = [this, followed](const kube::ApiError& error) { hooks_.on_problem(followed, error); };
  hooks.on_synced = [this, followed](size_t objects) { hooks_.on_synced(followed, objects); };
  hooks.on_watching = [this, followed] { hooks_.on_watching(followed); };
  kube::ReflectorOptions options{
      .resource = resource_of(kind), .selection = std::move(selection), .fields = std::move(fields)};
  if (kind == Kind::kJob) options.salvage = job_salvage_fields();
  return std::make_unique<kube::Informer<T>>(std::move(options), std::move(hooks), transport_, clock_, sleeper_,
                                             kube::seeded_random(seed_++));
}

Cache::Cache(CacheOptions options, CacheHooks hooks, std::shared_ptr<kube::Transport> transport,
             std::shared_ptr<const Clock> clock, std::shared_ptr<kube::Sleeper> sleeper)
    : hooks_(std::move(hooks)),
      transport_(std::move(transport)),
      clock_(std::move(clock)),
      sleeper_(std::move(sleeper)),
      seed_(options.seed),
      spec_budget_(options.spec_budget) {
  std::vector<std::string> namespaces = std::move(options.namespaces);
  if (namespaces.empty()) namespaces.emplace_back();
  for (const std::string& name_space : namespaces) {
    const kube::Selection all{.name_space = name_space, .label_selector = "", .field_selector = ""};
    const kube::Selection labelled{.name_space = name_space, .label_selector = kLabelJobName, .field_selector = ""};
    Scope& scope = scopes_[name_space];

    kube::Informer<CachedJob>::Hooks jobs;
    jobs.project = [this](const nlohmann::json& object) -> Result<CachedJob> {
      Job job = project_job(object);
      if (!job.report.problem.empty()) {
        hooks_.on_unreadable(Kind::kJob, {job.metadata.name_space, job.metadata.name},
                             {ExitCode::kDataErr, job.report.problem});
      }
      return make_cached_job(std::move(job), spec_budget_);
    };
    jobs.stand_in = [this](const nlohmann::json& salvaged, const Error& error) {
      return make_cached_job(unreadable_job(salvaged, error), spec_budget_);
    };
    jobs.index_of = [](const kube::ObjectKey&, const CachedJob&) { return std::string(); };
    jobs.on_change = [this](const kube::ObjectKey& key, const CachedJob*, const CachedJob* after) {
      removed_pods_.forget_recorded(key, after == nullptr ? nullptr : &after->job);
      hooks_.on_change(key, Urgency::kNow);
    };
    scope.jobs = make_informer<CachedJob>(Kind::kJob, all, job_fields(), std::move(jobs));

    kube::Informer<PackedPod>::Hooks pods;
    pods.project = [](const nlohmann::json& object) { return project_pod(object).map(packed<PackedPod, CachedPod>); };
    pods.index_of = owner_index<PackedPod>();
    // A pod that was done before its deletion was requested stays done. It is recorded before the store changes, so
    // that pods_of() finds it in the store, in removed_pods_ or in both, but never in neither.
    pods.before_change = [this, &scope](const kube::ObjectKey& key, const PackedPod* before, const PackedPod* after) {
      if (before == nullptr || (after != nullptr && !after->unpack().pod.deleting)) return;
      const CachedPod last = before->unpack();
      const kube::ObjectKey job{key.name_space, last.job};
      removed_pods_.add(job, last, [&] { return job_in(scope, job); });
    };
    pods.on_change = owner_change<PackedPod>(hooks_);
    scope.pods = make_informer<PackedPod>(Kind::kPod, labelled, pod_fields(), std::move(pods));

    kube::Informer<PackedService>::Hooks services;
    services.project = [](const nlohmann::json& object) {
      return project_service(object).map(packed<PackedService, CachedService>);
    };
    services.index_of = owner_index<PackedService>();
    services.on_change = owner_change<PackedService>(hooks_);
    scope.services = make_informer<PackedService>(Kind::kService, labelled, service_fields(), std::move(services));

    if (!options.network_policies) continue;
    kube::Informer<PackedNetworkPolicy>::Hooks policies;
    policies.project = [](const nlohmann::json& object) {
      return project_network_policy(object).map(packed<PackedNetworkPolicy, CachedNetworkPolicy>);
    };
    policies.index_of = owner_index<PackedNetworkPolicy>();
    policies.on_change = owner_change<PackedNetworkPolicy>(hooks_);
    scope.network_policies = make_informer<PackedNetworkPolicy>(Kind::kNetworkPolicy, labelled, network_policy_fields(),
                                                                std::move(policies));
  }
}

Cache::~Cache() { stop(); }

void Cache::start() {
  for (auto& [name, scope] : scopes_) {
    threads_.emplace_back([&informer = *scope.jobs](const std::stop_token& stop) { informer.run(stop); });
    threads_.emplace_back([&informer = *scope.pods](const std::stop_token& stop) { informer.run(stop); });
    threads_.emplace_back([&informer = *scope.services](const std::stop_token& stop) { informer.run(stop); });
    if (scope.network_policies != nullptr)
      threads_.emplace_back([&informer = *scope.network_policies](const std::stop_token& stop) { informer.run(stop); });
  }
}

void Cache::stop() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

bool Cache::synced() const {
  for (const auto& [name, scope] : scopes_) {
    if (!scope.jobs->synced() || !scope.pods->synced() || !scope.services->synced()) return false;
    if (scope.network_policies != nullptr && !scope.network_policies->synced()) return false;
  }
  return true;
}

const Cache::Scope* Cache::scope_of(const std::string& name_space) const {
  auto it = scopes_.find(name_space);
  if (it == scopes_.end()) it = scopes_.find("");
  return it == scopes_.end() ? nullptr : &it->second;
}

bool Cache::has_seen(Kind kind, const std::string& name_space, const std::string& resource_version) const {
  const Scope* scope = scope_of(name_space);
  if (scope == nullptr) return false;
  switch (kind) {
    case Kind::kJob:
      return scope->jobs->has_seen(resource_version);
    case Kind::kPod:
      return scope->pods->has_seen(resource_version);
    case Kind::kService:
      return scope->services->has_seen(resource_version);
    case Kind::kNetworkPolicy:
      return scope->network_policies == nullptr || scope->network_policies->has_seen(resource_version);
  }
  return false;
}

std::shared_ptr<const Job> Cache::job_in(const Scope& scope, const kube::ObjectKey& key) {
  const std::shared_ptr<const CachedJob> cached = scope.jobs->store().get(key);
  return cached == nullptr ? nullptr : std::shared_ptr<const Job>(cached, &cached->job);
}

std::shared_ptr<const Job> Cache::job(const kube::ObjectKey& key) const {
  const Scope* scope = scope_of(key.name_space);
  return scope == nullptr ? nullptr : job_in(*scope, key);
}

std::vector<std::shared_ptr<const CachedJob>> Cache::jobs() const {
  std::vector<std::shared_ptr<const CachedJob>> out;
  for (const auto& [name, scope] : scopes_) {
    for (auto& job : scope.jobs->store().all()) out.push_back(std::move(job));
  }
  return out;
}

std::vector<Pod> Cache::pods_of(const kube::ObjectKey& job) const {
  std::vector<Pod> out;
  if (const Scope* scope = scope_of(job.name_space)) {
    for (const auto& pod : scope->pods->store().find(job.to_string())) out.push_back(pod->unpack().pod);
  }
  removed_pods_.append_to(job, out);
  return out;
}

std::vector<Service> Cache::services_of(const kube::ObjectKey& job) const {
  std::vector<Service> out;
  if (const Scope* scope = scope_of(job.name_space)) {
    for (const auto& service : scope->services->store().find(job.to_string())) out.push_back(service->unpack().service);
  }
  return out;
}

std::vector<NetworkPolicy> Cache::network_policies_of(const kube::ObjectKey& job) const {
  std::vector<NetworkPolicy> out;
  const Scope* scope = scope_of(job.name_space);
  if (scope == nullptr || scope->network_policies == nullptr) return out;
  for (const auto& policy : scope->network_policies->store().find(job.to_string()))
    out.push_back(policy->unpack().network_policy);
  return out;
}

size_t Cache::pods() const {
  size_t count = 0;
  for (const auto& [name, scope] : scopes_) count += scope.pods->store().size();
  return count;
}

}  // namespace oarlock::control
