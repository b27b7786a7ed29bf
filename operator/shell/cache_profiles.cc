// The TrainingProfiles of the cache.
#include <mutex>
#include <string>
#include <vector>

#include "api/profile.h"
#include "operator/shell/cache.h"

namespace oarlock::control {

std::vector<const Cache::OptionalInformer<CachedProfile>*> Cache::profile_informers() const {
  std::vector<const OptionalInformer<CachedProfile>*> out;
  for (const auto& [name, informers] : informers_) out.push_back(informers.profiles.get());
  if (other_profiles_ != nullptr) out.push_back(other_profiles_.get());
  return out;
}

void Cache::add_profile(Observed& observed) const {
  const api::Metadata& job = observed.job.metadata;
  const std::string name = api::profile_name(observed.job.spec);
  for (const std::string& namespace_name : {job.namespace_name, profile_namespace_}) {
    const Informers* informers = informers_for(namespace_name);
    const auto* profiles = informers == nullptr ? other_profiles_.get() : informers->profiles.get();
    if (profiles == nullptr || namespace_name.empty() || name.empty()) continue;
    const std::lock_guard lock(profiles->mutex);
    const auto found = profiles->informer->store().get({namespace_name, name});
    if (found != nullptr) observed.profile = found->profile;
    std::string error;
    if (!profiles->is_readable) error = profiles->error;
    if (profiles->is_readable && profiles->informer->is_incomplete(namespace_name))
      error = "those of the namespace exceed the operator's memory (--cache-limit)";
    if (!error.empty()) observed.profiles_error = error;
    observed.is_profile_unknown = found == nullptr && !error.empty() && !profiles->is_refused;
    if (found != nullptr || observed.is_profile_unknown) return;
  }
}

}  // namespace oarlock::control
