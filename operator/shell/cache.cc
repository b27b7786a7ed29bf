#include "operator/shell/cache.h"

#include <algorithm>
#include <utility>

#include "api/profile.h"
#include "common/contract.h"
#include "operator/core/gang.h"
#include "operator/core/profile.h"
#include "operator/core/queue.h"
#include "operator/core/workload.h"

namespace oarlock::control {
namespace {

// Returns the part of the limit for one kind. A job takes about 1.6 KB without its spec, a pod 1.1 KB.
size_t share_of(ResourceKind kind, size_t limit) {
  switch (kind) {
    case ResourceKind::kJob:
    case ResourceKind::kPod:
      return limit / 8 * 3;
    case ResourceKind::kService:
    case ResourceKind::kNetworkPolicy:
    case ResourceKind::kWorkload:
    case ResourceKind::kPodGroup:
    case ResourceKind::kSchedulerPluginsPodGroup:
    case ResourceKind::kVolcanoPodGroup:
    case ResourceKind::kNode:
    case ResourceKind::kProfile:
      return limit / 8;
  }
  return 0;
}

kube::DropOrder drop_order(const CachedJob& cached) {
  const Job& job = cached.job;
  const int64_t created = job.metadata.creation_timestamp.value_or(SystemTime{}).time_since_epoch().count();
  if (is_terminal(job.status.phase) && !job.spec.ttl_seconds_after_finished) return {.rank = 0, .then_by = created};
  return {.rank = 1, .then_by = -created};
}

std::string index_key(const kube::ObjectKey& key, const std::string& job) {
  return job.empty() ? "" : kube::ObjectKey{key.namespace_name, job}.to_string();
}

Urgency urgency_of(const CachedService& cached) {
  return cached.object.deleting ? Urgency::kImmediate : Urgency::kBatched;
}
Urgency urgency_of(const CachedNetworkPolicy& cached) {
  return cached.object.deleting ? Urgency::kImmediate : Urgency::kBatched;
}
// Admissions and evictions start and stop pods.
Urgency urgency_of(const CachedWorkload&) { return Urgency::kImmediate; }
Urgency urgency_of(const CachedPodGroup&) { return Urgency::kBatched; }
Urgency urgency_of(const CachedPod& cached) {
  const Pod& pod = cached.object;
  const bool is_active = pod.phase == PodPhase::kPending || pod.phase == PodPhase::kRunning;
  const bool is_urgent = !is_active || pod.deleting || pod.trainer || !pod.disruption.empty();
  return is_urgent ? Urgency::kImmediate : Urgency::kBatched;
}

// Enqueues the job that an object belongs to and, if its label has changed, the one that it belonged to before.
template <typename T>
auto enqueue_owner(const CacheHooks& hooks) {
  return [&hooks](const kube::ObjectKey& key, const T* before, const T* after) {
    const std::string job_before = before == nullptr ? "" : before->job;
    if (after == nullptr) {
      if (!job_before.empty()) hooks.on_change({key.namespace_name, job_before}, Urgency::kImmediate);
      return;
    }
    if (!after->job.empty()) hooks.on_change({key.namespace_name, after->job}, urgency_of(*after));
    if (!job_before.empty() && job_before != after->job)
      hooks.on_change({key.namespace_name, job_before}, Urgency::kImmediate);
  };
}

// Hooks for objects that are owned by a job: indexed by the job, and a change enqueues it.
template <typename T>
typename kube::Informer<T>::Hooks owned_object_hooks(const CacheHooks& hooks,
                                                     std::function<Result<T>(const nlohmann::json&)> project) {
  typename kube::Informer<T>::Hooks out;
  out.project = std::move(project);
  out.index_of = [](const kube::ObjectKey& key, const T& object) { return index_key(key, object.job); };
  out.bytes_of = [](const T& object) { return memory_of(object); };
  out.on_change = enqueue_owner<T>(hooks);
  return out;
}

// Adds the objects of the job.
template <typename T>
void append_objects(const kube::Informer<CachedOf<T>>& informer, const kube::ObjectKey& job, std::vector<T>& out) {
  for (const auto& cached : informer.store().find(job.to_string())) out.push_back(cached->object);
}

kube::Resource pod_group_resource(GangApi api) { return {names_of(api).group, names_of(api).version, "podgroups"}; }

}  // namespace

kube::Resource resource_of(ResourceKind kind) {
  switch (kind) {
    case ResourceKind::kJob:
      return {kGroup, kVersion, kPlural};
    case ResourceKind::kPod:
      return kube::pods();
    case ResourceKind::kService:
      return kube::services();
    case ResourceKind::kNetworkPolicy:
      return kube::network_policies();
    case ResourceKind::kWorkload:
      return {kKueueGroup, kKueueVersion, "workloads"};
    case ResourceKind::kPodGroup:
      return pod_group_resource(GangApi::kNative);
    case ResourceKind::kSchedulerPluginsPodGroup:
      return pod_group_resource(GangApi::kSchedulerPlugins);
    case ResourceKind::kVolcanoPodGroup:
      return pod_group_resource(GangApi::kVolcano);
    case ResourceKind::kNode:
      return kube::nodes();
    case ResourceKind::kProfile:
      return {kGroup, kVersion, api::kProfilePlural};
  }
  return {};
}

ResourceKind pod_groups_of(GangApi api) {
  switch (api) {
    case GangApi::kNative:
      return ResourceKind::kPodGroup;
    case GangApi::kSchedulerPlugins:
      return ResourceKind::kSchedulerPluginsPodGroup;
    case GangApi::kVolcano:
      return ResourceKind::kVolcanoPodGroup;
  }
  return ResourceKind::kPodGroup;
}

std::string WatchScope::to_string() const {
  const std::string resource = resource_of(kind).to_string();
  return namespace_name.empty() ? resource : resource + " in namespace " + namespace_name;
}

Cache::Cache(CacheOptions options, CacheHooks hooks, std::shared_ptr<http::Transport> transport,
             std::shared_ptr<const Clock> clock, std::shared_ptr<kube::Sleeper> sleeper)
    : hooks_(std::move(hooks)),
      transport_(std::move(transport)),
      clock_(std::move(clock)),
      sleeper_(std::move(sleeper)),
      seed_(options.seed),
      limit_(options.limit / std::max<size_t>(options.namespaces.size(), 1)),
      spec_budget_(options.spec_budget),
      profile_namespace_(std::move(options.profile_namespace)) {
  std::vector<std::string> namespaces = std::move(options.namespaces);
  if (namespaces.empty()) namespaces.emplace_back();
  for (const std::string& namespace_name : namespaces) {
    const kube::Selection all{.namespace_name = namespace_name, .label_selector = "", .field_selector = ""};
    const kube::Selection labeled{
        .namespace_name = namespace_name, .label_selector = kLabelJobName, .field_selector = ""};
    Informers& informers = informers_[namespace_name];
    informers.jobs = make_informer<CachedJob>(ResourceKind::kJob, all, job_fields(), job_hooks());
    informers.pods = make_informer<CachedPod>(ResourceKind::kPod, labeled, pod_fields(), pod_hooks(informers));
    informers.services = make_informer<CachedService>(ResourceKind::kService, labeled, service_fields(),
                                                      owned_object_hooks<CachedService>(hooks_, project_service));
    informers.workloads = std::make_unique<OptionalInformer<CachedWorkload>>();
    set_informer(*informers.workloads, informers, ResourceKind::kWorkload, labeled, workload_fields(),
                 owned_object_hooks<CachedWorkload>(hooks_, project_workload), may_have_queue);
    for (const GangApiNames& names : gang_apis()) {
      const auto project = [api = names.api](const nlohmann::json& object) { return project_pod_group(api, object); };
      set_informer(informers.pod_groups[names.api], informers, pod_groups_of(names.api), labeled, pod_group_fields(),
                   owned_object_hooks<CachedPodGroup>(hooks_, project),
                   [](const Job& job) { return can_create_pods(job.status.phase); });
    }
    informers.profiles = make_profile_informer(informers, namespace_name);
    if (!options.network_policies) continue;
    informers.network_policies =
        make_informer<CachedNetworkPolicy>(ResourceKind::kNetworkPolicy, labeled, network_policy_fields(),
                                           owned_object_hooks<CachedNetworkPolicy>(hooks_, project_network_policy));
  }
  if (options.nodes) nodes_ = make_informer<CachedNode>(ResourceKind::kNode, {}, node_fields(), node_hooks());
  if (!profile_namespace_.empty() && informers_for(profile_namespace_) == nullptr)
    other_profiles_ = make_profile_informer(informers_.begin()->second, profile_namespace_);
}

Cache::~Cache() { stop(); }

Cache::JobInformer::Hooks Cache::job_hooks() {
  JobInformer::Hooks out;
  out.project = [this](const nlohmann::json& object) -> Result<CachedJob> {
    Job job = project_job(object);
    if (!job.report.problem.empty()) {
      hooks_.on_unreadable(ResourceKind::kJob, {job.metadata.namespace_name, job.metadata.name},
                           {ExitCode::kDataErr, job.report.problem});
    }
    return make_cached_job(std::move(job), spec_budget_);
  };
  out.placeholder = [this](const nlohmann::json& salvaged, const Error& error) {
    return make_cached_job(unreadable_job(salvaged, error), spec_budget_);
  };
  out.index_of = [](const kube::ObjectKey&, const CachedJob&) { return std::string(); };
  out.bytes_of = [](const CachedJob& job) { return job.bytes; };
  out.drop_order = drop_order;
  out.on_change = [this](const kube::ObjectKey& key, const CachedJob*, const CachedJob* after) {
    removed_pods_.forget_recorded(key, after == nullptr ? nullptr : &after->job);
    hooks_.on_change(key, Urgency::kImmediate);
  };
  return out;
}

Cache::PodInformer::Hooks Cache::pod_hooks(const Informers& informers) {
  PodInformer::Hooks out = owned_object_hooks<CachedPod>(hooks_, project_pod);
  // A pod that was done before its deletion was requested remains done. It is recorded before the store changes, so
  // that pods_of() finds it in the store, in removed_pods_ or in both, but never in neither.
  out.before_change = [this, &informers](const kube::ObjectKey& key, const CachedPod* before, const CachedPod* after) {
    if (before == nullptr || (after != nullptr && !after->object.deleting)) return;
    const kube::ObjectKey job{key.namespace_name, before->job};
    removed_pods_.add(job, *before, after == nullptr, [&] { return find_job(informers, job); });
  };
  return out;
}

// A change enqueues the jobs that wait for the profile, which are few. The first list enqueues them in set_informer().
std::unique_ptr<Cache::OptionalInformer<CachedProfile>> Cache::make_profile_informer(
    const Informers& informers, const std::string& namespace_name) {
  auto out = std::make_unique<OptionalInformer<CachedProfile>>();
  kube::Informer<CachedProfile>::Hooks hooks;
  hooks.project = project_profile;
  hooks.index_of = [](const kube::ObjectKey&, const CachedProfile&) { return std::string(); };
  hooks.bytes_of = [](const CachedProfile& profile) { return memory_of(profile); };
  hooks.on_change = [this, &profiles = *out](const kube::ObjectKey& key, const CachedProfile* before,
                                             const CachedProfile* after) {
    if (!profiles.informer->synced()) return;
    if (before != nullptr && after != nullptr && *before == *after) return;
    for (const auto& cached : jobs()) {
      const api::Metadata& job = cached->job.metadata;
      const bool is_used = key.namespace_name == profile_namespace_ || key.namespace_name == job.namespace_name;
      if (is_used && api::profile_name(cached->job.spec) == key.name && may_apply_profile(cached->job))
        hooks_.on_change({job.namespace_name, job.name}, Urgency::kBatched);
    }
  };
  set_informer(*out, informers, ResourceKind::kProfile,
               {.namespace_name = namespace_name, .label_selector = "", .field_selector = ""}, profile_fields(),
               std::move(hooks), may_apply_profile);
  return out;
}

template <typename T>
std::unique_ptr<kube::Informer<T>> Cache::make_informer(ResourceKind kind, kube::Selection selection,
                                                        kube::FieldFilter fields,
                                                        typename kube::Informer<T>::Hooks hooks) {
  const WatchScope scope{kind, selection.namespace_name};
  hooks.on_problem = [this, scope](const kube::ApiError& error) { hooks_.on_error(scope, error); };
  hooks.on_listing = [this, scope] { hooks_.on_listing(scope); };
  hooks.on_synced = [this, scope](size_t objects) { hooks_.on_synced(scope, objects); };
  hooks.on_watching = [this, scope] { hooks_.on_watching(scope); };
  hooks.on_incomplete = [this, scope](const std::set<std::string>& namespaces) {
    hooks_.on_incomplete(scope, namespaces);
  };
  return make_unreported_informer<T>(kind, std::move(selection), std::move(fields), std::move(hooks));
}

template <typename T>
std::unique_ptr<kube::Informer<T>> Cache::make_unreported_informer(ResourceKind kind, kube::Selection selection,
                                                                   kube::FieldFilter fields,
                                                                   typename kube::Informer<T>::Hooks hooks) {
  hooks.on_unreadable = [this, kind](const kube::ObjectKey& key, const Error& error) {
    hooks_.on_unreadable(kind, key, error);
  };
  kube::ReflectorOptions options{
      .resource = resource_of(kind), .selection = std::move(selection), .fields = std::move(fields)};
  if (kind == ResourceKind::kJob) options.salvage = job_salvage_fields();
  options.max_bytes = share_of(kind, limit_);
  return std::make_unique<kube::Informer<T>>(std::move(options), std::move(hooks), transport_, clock_, sleeper_,
                                             kube::seeded_random(seed_++));
}

template <typename T>
void Cache::set_informer(OptionalInformer<T>& optional, const Informers& informers, ResourceKind kind,
                         kube::Selection selection, kube::FieldFilter fields, typename kube::Informer<T>::Hooks hooks,
                         bool (*concerns)(const Job&)) {
  constexpr int kMaxProblems = 3;  // an API whose server does not work must not keep the operator from starting
  const WatchScope scope{kind, selection.namespace_name};
  const bool is_reported = kind == ResourceKind::kProfile;
  // Without a connection, the objects are as they were: the other informers report it. A refusal means that the API was
  // uninstalled, or that the operator has no permission.
  hooks.on_problem = [this, &optional, scope, is_reported](const kube::ApiError& error) {
    using Kind = kube::ApiErrorKind;
    const bool is_refused = error.kind == Kind::kNotFound || error.kind == Kind::kForbidden;
    bool was_readable = false;
    {
      const std::lock_guard lock(optional.mutex);
      was_readable = optional.is_readable;
      optional.has_answer |= is_refused || ++optional.problems >= kMaxProblems;
      if (!was_readable || is_refused) {
        optional.is_readable = false;
        optional.is_refused = is_refused;
        optional.error = error.message;
      }
    }
    if (!is_reported || !was_readable) return;
    if (is_refused) return hooks_.on_synced(scope, 0);  // ends the failures before: there are no such objects
    hooks_.on_error(scope, error);
  };
  if (is_reported) hooks.on_watching = [this, scope] { hooks_.on_watching(scope); };
  hooks.on_synced = [this, &optional, &informers, concerns, scope, is_reported](size_t objects) {
    if (is_reported) hooks_.on_synced(scope, objects);
    {
      const std::lock_guard lock(optional.mutex);
      optional.has_answer = true;
      if (optional.is_readable) return;
      optional.is_readable = true;
      optional.is_refused = false;
      optional.error.clear();
    }
    // Profiles of the operator's namespace apply to all jobs.
    for (const auto& cached : is_reported ? jobs() : informers.jobs->store().all()) {
      const api::Metadata& metadata = cached->job.metadata;
      if (concerns(cached->job)) hooks_.on_change({metadata.namespace_name, metadata.name}, Urgency::kImmediate);
    }
  };
  optional.informer = make_unreported_informer<T>(kind, std::move(selection), std::move(fields), std::move(hooks));
}

template <typename T>
bool Cache::OptionalInformer<T>::has_seen(const std::string& resource_version) const {
  const std::lock_guard lock(mutex);
  return !is_readable || informer->has_seen(resource_version);
}

void Cache::start() {
  const std::lock_guard lock(threads_mutex_);
  const auto run = [this](auto& informer) {
    threads_.emplace_back([&informer](const std::stop_token& stop) { informer.run(stop); });
  };
  for (auto& [name, informers] : informers_) {
    run(*informers.jobs);
    run(*informers.pods);
    run(*informers.services);
    if (informers.network_policies != nullptr) run(*informers.network_policies);
    for (auto& [api, groups] : informers.pod_groups) run(*groups.informer);
  }
  if (nodes_ != nullptr) run(*nodes_);
  for (const auto* profiles : profile_informers()) run(*profiles->informer);
}

void Cache::stop() {
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(threads_mutex_);
    is_stopped_ = true;
    threads.swap(threads_);
  }
  for (std::jthread& thread : threads) thread.request_stop();
}

bool Cache::has_synced() const {
  for (const auto& [name, informers] : informers_) {
    if (!informers.jobs->synced() || !informers.pods->synced() || !informers.services->synced()) return false;
    if (informers.network_policies != nullptr && !informers.network_policies->synced()) return false;
    // Otherwise the first jobs would have no PodGroup.
    for (const auto& [api, groups] : informers.pod_groups) {
      const std::lock_guard lock(groups.mutex);
      if (!groups.has_answer) return false;
    }
  }
  // Otherwise the first jobs would not have the default profile.
  return std::ranges::all_of(profile_informers(), [](const auto* profiles) {
    const std::lock_guard lock(profiles->mutex);
    return profiles->has_answer;
  });
}

const Cache::Informers* Cache::informers_for(const std::string& namespace_name) const {
  auto it = informers_.find(namespace_name);
  if (it == informers_.end()) it = informers_.find("");
  return it == informers_.end() ? nullptr : &it->second;
}

bool Cache::has_seen(ResourceKind kind, const std::string& namespace_name, const std::string& resource_version) const {
  const Informers* informers = informers_for(namespace_name);
  if (informers == nullptr) return false;
  switch (kind) {
    case ResourceKind::kJob:
      return informers->jobs->has_seen(resource_version);
    case ResourceKind::kPod:
      return informers->pods->has_seen(resource_version);
    case ResourceKind::kService:
      return informers->services->has_seen(resource_version);
    case ResourceKind::kNetworkPolicy:
      return informers->network_policies == nullptr || informers->network_policies->has_seen(resource_version);
    case ResourceKind::kWorkload:
      return informers->workloads->has_seen(resource_version);
    case ResourceKind::kPodGroup:
      return informers->pod_groups.at(GangApi::kNative).has_seen(resource_version);
    case ResourceKind::kSchedulerPluginsPodGroup:
      return informers->pod_groups.at(GangApi::kSchedulerPlugins).has_seen(resource_version);
    case ResourceKind::kVolcanoPodGroup:
      return informers->pod_groups.at(GangApi::kVolcano).has_seen(resource_version);
    case ResourceKind::kNode:
      return nodes_ == nullptr || nodes_->has_seen(resource_version);
    case ResourceKind::kProfile:
      return informers->profiles->has_seen(resource_version);
  }
  return false;
}

bool Cache::is_incomplete(const std::string& namespace_name) const {
  const Informers* informers = informers_for(namespace_name);
  if (informers == nullptr) return false;
  if (informers->pods->is_incomplete(namespace_name) || informers->services->is_incomplete(namespace_name)) return true;
  return informers->network_policies != nullptr && informers->network_policies->is_incomplete(namespace_name);
}

std::shared_ptr<const Job> Cache::find_job(const Informers& informers, const kube::ObjectKey& key) {
  const std::shared_ptr<const CachedJob> cached = informers.jobs->store().get(key);
  return cached == nullptr ? nullptr : std::shared_ptr<const Job>(cached, &cached->job);
}

std::shared_ptr<const Job> Cache::job(const kube::ObjectKey& key) const {
  const Informers* informers = informers_for(key.namespace_name);
  return informers == nullptr ? nullptr : find_job(*informers, key);
}

int64_t Cache::accelerators_per_pod(const kube::ObjectKey& key) const {
  const Informers* informers = informers_for(key.namespace_name);
  const std::shared_ptr<const CachedJob> cached = informers == nullptr ? nullptr : informers->jobs->store().get(key);
  return cached == nullptr ? 0 : count_accelerators(cached->accelerators);
}

std::vector<std::shared_ptr<const CachedJob>> Cache::jobs() const {
  std::vector<std::shared_ptr<const CachedJob>> out;
  for (const auto& [name, informers] : informers_) {
    for (auto& job : informers.jobs->store().all()) out.push_back(std::move(job));
  }
  return out;
}

std::vector<Pod> Cache::pods_of(const kube::ObjectKey& job) const {
  std::vector<Pod> out;
  if (const Informers* informers = informers_for(job.namespace_name)) append_objects(*informers->pods, job, out);
  removed_pods_.append_to(job, out);
  return out;
}

std::vector<Service> Cache::services_of(const kube::ObjectKey& job) const {
  std::vector<Service> out;
  if (const Informers* informers = informers_for(job.namespace_name)) append_objects(*informers->services, job, out);
  return out;
}

std::vector<NetworkPolicy> Cache::network_policies_of(const kube::ObjectKey& job) const {
  std::vector<NetworkPolicy> out;
  const Informers* informers = informers_for(job.namespace_name);
  if (informers != nullptr && informers->network_policies != nullptr)
    append_objects(*informers->network_policies, job, out);
  return out;
}

std::optional<std::vector<Workload>> Cache::workloads_of(const kube::ObjectKey& job, std::string& error) {
  const Informers* informers = informers_for(job.namespace_name);
  if (informers == nullptr) return std::nullopt;
  OptionalInformer<CachedWorkload>& workloads = *informers->workloads;
  const std::lock_guard lock(workloads.mutex);
  if (!workloads.is_started) {
    const std::lock_guard threads_lock(threads_mutex_);
    if (is_stopped_) return std::nullopt;
    threads_.emplace_back([&workloads](const std::stop_token& stop) { workloads.informer->run(stop); });
    workloads.is_started = true;
  }
  error = workloads.error;
  if (workloads.is_readable && workloads.informer->is_incomplete(job.namespace_name))
    error = "those of the namespace exceed the operator's memory (--cache-limit)";
  if (!workloads.is_readable || !error.empty()) return std::nullopt;
  std::vector<Workload> out;
  append_objects(*workloads.informer, job, out);
  return out;
}

void Cache::add_pod_groups(const kube::ObjectKey& job, Observed& observed) const {
  const Informers* informers = informers_for(job.namespace_name);
  if (informers == nullptr) return;
  for (const auto& [api, groups] : informers->pod_groups) {
    const std::lock_guard lock(groups.mutex);
    if (!groups.is_readable) continue;
    observed.gang_apis.push_back(api);
    append_objects(*groups.informer, job, observed.pod_groups);
  }
}

size_t Cache::pod_count() const {
  size_t count = 0;
  for (const auto& [name, informers] : informers_) count += informers.pods->store().size();
  return count;
}

}  // namespace oarlock::control
