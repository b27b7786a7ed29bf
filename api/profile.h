// TrainingProfile: a part of the spec of TrainingJobs, which a platform team sets once for many jobs. A job is merged
// with its profile when it is read (codec.h), from the copy of the profile in the job's status. All functions are pure.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api/types.h"
#include "common/error.h"
#include "yaml/reader.h"

namespace oarlock::api {

inline constexpr char kProfileKind[] = "TrainingProfile";
inline constexpr char kProfilePlural[] = "trainingprofiles";
// The profile of jobs without spec.profile.
inline constexpr char kDefaultProfile[] = "default";
// Size of a profile's spec, of which the status of each of its jobs has a copy.
inline constexpr size_t kMaxProfileBytes = 64u << 10;
// The members of a spec that describe one job, which a profile does not have.
// ttlSecondsAfterFinished is one of them because the admission policy of the operator reads it in the job.
inline constexpr const char* kJobMembers[] = {
    "nodes", "profile", "elastic", "trainer", "suspend", "managedBy", "ttlSecondsAfterFinished"};

// Returns the spec of a job that has this profile:
// - The job's value takes precedence over the profile's. Maps are merged by key, lists are replaced.
// - The templates are merged as by merge_template(), except that a null of the job remains, and thus removes the
//   operator's default, too.
// - checkpoints and scheduling.topology are replaced as a whole.
// - An image of the job, in spec.image or in the container "trainer" of its template, replaces that of the profile in
//   both places.
// `profile` is the JSON text of the profile's spec; its members that only a job can have are ignored. The template of
// `job_spec` may be a binary value that contains JSON text (kube::FieldFilter::with_text). Fails with kConfig if that
// template is larger than kMaxProfileBytes, because its tree takes up to forty times its size, or if `profile` or the
// template is not a JSON object.
Result<nlohmann::json> merge_profile(const std::string& profile, nlohmann::json job_spec);

// Returns why the spec of a profile, as JSON text, cannot be merged into jobs: a member that this version does not
// know, that only a job can have, or with a wrong type. Empty if it can. Limits of values are those of the merged job.
std::string find_profile_problem(const std::string& spec);

// Reasons of the condition of a job that does not start because of its profile.
inline constexpr char kProfileNotFound[] = "ProfileNotFound";
inline constexpr char kInvalidProfile[] = "InvalidProfile";

// Returns whether no decision about the job's pods depends on its profile yet: the job has not started, because of its
// profile or because it is new, or it is suspended.
bool awaits_start(const Status& status);

// Returns the name of the profile that a job uses; empty: none.
std::string profile_name(const Spec& spec);

// Reads and validates one document of a file as training_job_from_yaml() does. The namespace is empty if it has none.
AppliedProfile profile_from_yaml(const yaml::Node& node, yaml::Problems& problems);

}  // namespace oarlock::api
