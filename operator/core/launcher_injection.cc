#include "operator/core/launcher_injection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json_access.h"
#include "operator/core/pod_template.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr char kNoCommand[] = "NoCommand";
constexpr char kNameTaken[] = "NameTaken";
constexpr char kNever[] = "Never";
constexpr char kSeveralRanks[] = "SeveralRanks";

constexpr char kWindows[] = "windows";  // for which there is no launcher

// Where the init container mounts the volume. In its image, kLauncherPath is the program.
constexpr char kInstallPath[] = "/launcher";
constexpr int kLauncherUser = 65532;
// The launcher kills ranks that ignore SIGTERM this many seconds before the kubelet would kill the container.
constexpr int64_t kGraceMargin = 5;
constexpr int64_t kMaxGrace = 1'000'000;  // the launcher's limit of --grace

bool is_below_launcher_path(std::string_view path) {
  if (!path.starts_with(kLauncherPath)) return false;
  path.remove_prefix(std::string_view(kLauncherPath).size());
  return path.empty() || path.front() == '/';
}

bool has_name(const Json& list, const char* name) { return find_item(list, "name", name) != nullptr; }

// The words of command and args. A word that is not a string is "".
std::vector<std::string> command_of(const Json& trainer) {
  std::vector<std::string> words;
  for (const char* list : {"command", "args"}) {
    for (const Json& word : elements(trainer, list)) words.push_back(word.is_string() ? word.get<std::string>() : "");
  }
  return words;
}

// Whether the command is that of a launcher of Oarlock, also as part of a script.
bool starts_launcher(const Json& trainer) {
  return fmt::format("{} ", fmt::join(command_of(trainer), " ")).find("oarlock launch ") != std::string::npos;
}

// Whether the command begins with a program that starts the ranks of a node, which oarlock launch starts once.
bool starts_ranks(const Json& trainer) {
  constexpr std::string_view kPrograms[] = {"torchrun", "deepspeed", "mpirun", "mpiexec", "horovodrun"};
  std::vector<std::string> words = command_of(trainer);
  words.resize(std::max<size_t>(words.size(), 3));
  const std::string program = words[0].substr(words[0].rfind('/') + 1);
  if (program == "accelerate") return words[1] == "launch";
  if (program.starts_with("python"))
    return words[1] == "-m" && (words[2] == "torch.distributed.run" || words[2] == "torch.distributed.launch");
  return std::ranges::find(kPrograms, program) != std::end(kPrograms);
}

bool uses_names(const Json& pod_spec, const Json& trainer) {
  for (const char* list : {"containers", "initContainers", "volumes"}) {
    if (has_name(elements(pod_spec, list), kLauncherName)) return true;
  }
  const Json& program = elements(trainer, "command").front();
  const bool is_mounted = std::ranges::any_of(elements(trainer, "volumeMounts"), [](const Json& mount) {
    return is_below_launcher_path(text_at(mount, "mountPath"));
  });
  return is_mounted || is_below_launcher_path(text_at(trainer, "workingDir")) ||
         (program.is_string() && is_below_launcher_path(program.get_ref<const std::string&>()));
}

// Returns the part of the container's resources that an init container needs.
Json ordinary_resources(const Json& trainer) {
  Json out = Json::object();
  for (const char* kind : {"requests", "limits"}) {
    const Json& given = member(member(trainer, "resources"), kind);
    for (const char* name : {"cpu", "memory", "ephemeral-storage"}) {
      if (const Json& quantity = member(given, name); !quantity.is_null()) out[kind][name] = quantity;
    }
  }
  return out;
}

Json init_container(const std::string& image, const Json& pod_spec, const Json& trainer) {
  Json security = {{"allowPrivilegeEscalation", false},
                   {"capabilities", {{"drop", Json::array({"ALL"})}}},
                   {"readOnlyRootFilesystem", true},
                   {"runAsNonRoot", true},
                   {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  // Otherwise, the user is that of the pod, of the image, or one that the cluster assigns (OpenShift).
  const Json& user = member(member(pod_spec, "securityContext"), "runAsUser");
  if (user.is_number_integer() && user == 0) security["runAsUser"] = kLauncherUser;
  Json out = {{"name", kLauncherName},
              {"image", image},
              {"command", Json::array({"/oarlock", "install", kInstallPath})},
              {"securityContext", std::move(security)},
              {"terminationMessagePolicy", "FallbackToLogsOnError"},
              {"volumeMounts", Json::array({{{"name", kLauncherName}, {"mountPath", kInstallPath}}})}};
  if (Json resources = ordinary_resources(trainer); !resources.empty()) out["resources"] = std::move(resources);
  return out;
}

Json launcher_command(const Json& pod_spec) {
  Json out = Json::array({fmt::format("{}/oarlock", kLauncherPath), "launch"});
  const int64_t grace = integer_at<int64_t>(pod_spec, "terminationGracePeriodSeconds", -1);
  if (grace >= 0) {
    out.push_back("--grace");
    out.push_back(std::to_string(std::clamp<int64_t>(grace - kGraceMargin, 1, kMaxGrace)));
  }
  out.push_back("--");
  return out;
}

BoxedOptional<api::InjectedLauncher> decide(const Job& job, const std::string& image, api::LauncherInjection wanted) {
  if (image.empty() || (job.status.start_time && !job.status.launcher)) return {};
  const Json given = Json::parse(job.spec.pod_template.empty() ? "{}" : job.spec.pod_template, nullptr, false);
  const Json& pod_spec = member(given, "spec");
  if (text_at(member(pod_spec, "os"), "name") == kWindows) return {};
  const Json& containers = elements(pod_spec, "containers");
  const auto trainer =
      std::ranges::find_if(containers, [](const Json& one) { return text_at(one, "name") == kTrainerContainer; });
  const std::string own = trainer == containers.end() ? "" : text_at(*trainer, "image");
  const std::string& used = own.empty() ? job.spec.image : own;
  if (used.empty() || is_trainer_image(used)) return {};
  if (wanted == api::LauncherInjection::kNever) return api::InjectedLauncher{"", kNever};
  if (trainer == containers.end() || elements(*trainer, "command").empty())
    return api::InjectedLauncher{"", kNoCommand};
  if (starts_launcher(*trainer)) return {};
  if (uses_names(pod_spec, *trainer)) return api::InjectedLauncher{"", kNameTaken};
  const bool may_start_them_itself = job.spec.processes_per_node > 1 && !starts_ranks(*trainer);
  if (may_start_them_itself && wanted != api::LauncherInjection::kAlways)
    return api::InjectedLauncher{"", kSeveralRanks};
  return api::InjectedLauncher{image, ""};
}

}  // namespace

std::string default_launcher_image() { return "oarlock/launcher:" OARLOCK_VERSION; }

BoxedOptional<api::InjectedLauncher> decide_launcher(const Job& job, const std::string& image) {
  return decide(job, image, job.spec.launcher);
}

Job with_launcher_decision(const Job& job, const std::string& image) {
  Job out = job;
  const bool is_due = job.status.phase == api::Phase::kNone || job.status.phase == api::Phase::kSuspended;
  if (is_due) out.status.launcher = decide_launcher(job, image);
  return out;
}

std::optional<Observed> decide_about_launcher(const Observed& observed) {
  const Job& job = observed.job;
  const bool is_first = job.status.phase == api::Phase::kNone && !job.spec.suspend && job.report.problem.empty();
  if (!is_first || observed.launcher_image.empty() || job.status.launcher) return std::nullopt;
  BoxedOptional<api::InjectedLauncher> decided = decide_launcher(job, observed.launcher_image);
  if (!decided) return std::nullopt;
  const auto own = std::ranges::find(observed.pods, job.metadata.uid, &Pod::owner_uid);
  if (own != observed.pods.end() && !decided->image.empty()) {
    if (own->images.launcher.empty()) return std::nullopt;
    decided->image = own->images.launcher;
  }
  Observed out = observed;
  out.job.status.launcher = std::move(decided);
  return out;
}

std::string launcher_image(const Job& job) {
  if (!job.status.launcher || job.status.launcher->image.empty()) return "";
  // spec.launcher may have changed since the decision.
  const BoxedOptional<api::InjectedLauncher> permitted =
      decide(job, job.status.launcher->image, api::LauncherInjection::kAlways);
  return permitted ? permitted->image : "";
}

std::string explain_missing_launcher(std::string_view reason) {
  if (reason == kNoCommand)
    return "the pods have no launcher, because container 'trainer' has no command, and Kubernetes does not know the "
           "entry point of its image: set command for restarts in the pods, progress and causes of failures, or "
           "spec.launcher: Never";
  if (reason == kSeveralRanks)
    return "the pods have no launcher, because they have several ranks, and the command may start them itself: set "
           "spec.launcher: Always if the command is to be started once for each rank, or Never if not";
  if (reason == kNameTaken)
    return fmt::format(
        "the pods have no launcher, because the template uses its name {} or its path {}: choose others for restarts "
        "in the pods, progress and causes of failures, or set spec.launcher: Never",
        kLauncherName, kLauncherPath);
  return "";
}

void inject_launcher(const std::string& image, Json& pod_spec, Json& trainer) {
  Json init_containers = Json::array({init_container(image, pod_spec, trainer)});
  for (const Json& other : elements(pod_spec, "initContainers")) init_containers.push_back(other);
  pod_spec["initContainers"] = std::move(init_containers);
  Json command = launcher_command(pod_spec);
  for (const Json& word : elements(trainer, "command")) command.push_back(word);
  trainer["command"] = std::move(command);
  list_in(trainer, "volumeMounts").push_back({{"name", kLauncherName}, {"mountPath", kLauncherPath}});
  list_in(pod_spec, "volumes").push_back({{"name", kLauncherName}, {"emptyDir", {{"sizeLimit", "64Mi"}}}});
}

}  // namespace oarlock::control
