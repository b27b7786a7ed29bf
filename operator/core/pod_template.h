// The pod template of a job: the pod that the operator builds from the spec, with spec.template merged into it. All
// functions are pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "operator/core/model.h"

namespace oarlock::control {

// On pods whose job has a topology: the job's uid.
inline constexpr char kLabelJobUid[] = "oarlock.dev/job-uid";

// The repository of the trainer's image, without the registry.
inline constexpr char kTrainerRepository[] = "oarlock/trainer";

// Returns whether the image is the trainer's: of that repository, in any registry.
bool is_trainer_image(std::string_view image);

// Returns the trainer's image of this version, as scripts/images names it.
std::string default_trainer_image();

// Defaults of a pod for settings that its job does not define. The operator's flags set them.
struct PodDefaults {
  std::string image = default_trainer_image();
  // User and group of the processes, and group of the volumes; 0 leaves them to the image and to the cluster, as
  // OpenShift's restricted SecurityContextConstraints require.
  int64_t user = 65532;
};

// Returns a PodTemplateSpec. The base is a pod that meets the restricted Pod Security level: image, resources and
// checkpoints of the spec, /tmp, and with several pods a preference for different nodes. spec.template is merged into
// it as kubectl merges a patch: maps by key, containers and volumes by name, volume mounts by path or volume, other
// lists as a whole; null removes a default. The template's containers and volumes keep their order and precede the
// defaults.
//
// Affinities of spec.scheduling.topology are added to those of the template.
//
// A template whose container "trainer" has an image is complete: only spec.resourcesPerNode, spec.checkpoints and these
// affinities are added to it. An image has specific requirements, so a security context that the template does not
// contain could break it.
//
// REQUIRES: api::validate(job) is empty.
nlohmann::json make_pod_template(const Job& job, const PodDefaults& defaults);

// Returns false if the checkpoints are in an emptyDir that the operator adds, which is lost with its pod.
bool keeps_checkpoints(const Job& job);

// ---- PersistentVolumeClaim for spec.checkpoints.size ---------------------------------------------------------------

// Returns whether the operator creates a claim for the job.
bool needs_new_claim(const Job& job);

std::string claim_name(const Job& job);  // <job>-checkpoints

// Returns the claim. Its access mode is ReadWriteOnce for one node and ReadWriteMany for several, because the pods of
// several nodes mount it at the same time. It has no owner reference: like the claims of a StatefulSet it survives the
// job, so that neither kubectl delete nor ttlSecondsAfterFinished removes a trained model, and a new job of this name
// resumes from it.
nlohmann::json desired_claim(const Job& job);

}  // namespace oarlock::control
