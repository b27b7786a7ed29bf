// The launcher (oarlock launch) in pods whose image does not contain it: an init container copies the statically linked
// program to a volume, and container "trainer" starts its command through it. All functions are pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "operator/core/model.h"

namespace oarlock::control {

// Name of the init container and of the volume.
inline constexpr char kLauncherName[] = "oarlock-launcher";
// Where container "trainer" mounts the volume; a directory that its image does not have.
inline constexpr char kLauncherPath[] = "/.oarlock";

// Returns the launcher's image of this version, as scripts/images names it.
std::string default_launcher_image();

// Returns the decision for a job that starts or is resumed, as status.launcher records it. `image` is the launcher's
// image of this operator; empty: it has none. A job that has run before remains without a launcher if its status has no
// decision. Absent if there is nothing to decide: the operator has no image, container "trainer"
// has the trainer's image, or its command begins with a launcher of Oarlock.
BoxedOptional<api::InjectedLauncher> decide_launcher(const Job& job, const std::string& image);

// Returns the job with the decision in its status, if that does not have it yet.
Job with_launcher_decision(const Job& job, const std::string& image);

// Returns the state with the decision in the job's status; absent if it is not to be made now. Of a job without a
// status, the pods that exist have the decision (ChosenImages), which the first status records.
std::optional<Observed> decide_about_launcher(const Observed& observed);

// Returns the image from which the pods of the next attempt copy the launcher, as the job's status records it; empty if
// they have none, as when another version of the operator has resumed the job with another template.
std::string launcher_image(const Job& job);

// Explains why the pods have no launcher, and the remedy; empty for Never. `reason` is InjectedLauncher::reason.
std::string explain_missing_launcher(std::string_view reason);

// Adds the init container, which is the first one, the volume and its mount to the pod, and puts the launcher before
// the command of container "trainer". The init container meets the restricted Pod Security level, and has the CPU,
// memory and ephemeral storage of container "trainer": the pod keeps its QoS class, needs no larger node, and satisfies
// a LimitRange if that container does. `trainer` is that container in pod_spec.
void inject_launcher(const std::string& image, nlohmann::json& pod_spec, nlohmann::json& trainer);

}  // namespace oarlock::control
