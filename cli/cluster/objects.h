// The parts of pods, events and nodes that the commands show. The functions accept any JSON: a missing or malformed
// member has its default, and every text is a single line of bounded length without control characters.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/contract.h"

namespace oarlock::cli {

struct ContainerEnd {
  int exit_code = 0;
  std::string reason;                         // Completed, Error, OOMKilled, ContainerCannotRun ...
  std::optional<TerminationMessage> message;  // of a rank
  std::string text;                           // the message of the rank, or the last line of the termination message
  std::optional<SystemTime> started_at;
  std::optional<SystemTime> finished_at;
};

struct ContainerView {
  std::string name;
  bool is_init = false;
  bool running = false;
  std::string waiting_reason;  // ImagePullBackOff, ContainerCreating ...
  std::string waiting_message;
  std::optional<ContainerEnd> end;
};

// A pod of a job.
struct PodView {
  std::string name;
  std::string uid;
  int attempt = 0;
  int node_rank = 0;
  std::string phase;  // Pending, Running, Succeeded, Failed, Unknown
  std::string reason;
  std::string message;
  std::string node;
  std::optional<SystemTime> created;
  bool deleting = false;
  std::string finalizers;  // that hold a pod that is being deleted: "a.example.com/x, b"; empty if there are none
  bool ready = false;
  bool scheduled = false;
  std::string unscheduled_message;
  std::string gang;        // the PodGroup of the pod: "PodGroup bert-0 of scheduling.k8s.io"; empty without one
  std::string disruption;  // reason of the condition DisruptionTarget while it is true
  std::string disruption_message;
  std::vector<ContainerView> containers;

  const ContainerView* container(std::string_view wanted) const;
  const ContainerView* trainer() const { return container(kTrainerContainer); }
};

struct EventView {
  std::string kind;  // of the object that the event is about
  std::string name;
  std::string type;  // Normal, Warning
  std::string reason;
  std::string message;
  int64_t count = 1;
  std::optional<SystemTime> last_time;
};

struct NodeView {
  std::string name;
  bool exists = true;
  bool ready = false;
  std::string not_ready_message;
  std::vector<std::string> pressures;  // types of the true conditions MemoryPressure, DiskPressure, PIDPressure
  bool cordoned = false;
};

// Returns the finalizers that keep an object from being removed, as a list for a message; "" if it is not being
// deleted.
std::string holding_finalizers(const nlohmann::json& object);

// Returns nullopt if the labels of the pod are not those of a pod of a job.
std::optional<PodView> pod_view(const nlohmann::json& pod);
EventView event_view(const nlohmann::json& event);
NodeView node_view(const nlohmann::json& node);

// Returns the object without its status and the metadata that the API server sets, such as uid and resourceVersion.
// They are part of the output of kubectl get, and the API server rejects a new object that has some of them.
nlohmann::json without_server_fields(nlohmann::json object);

// The state of a pod in one word, as kubectl shows it: Running, ImagePullBackOff, OOMKilled, Terminating ...
std::string pod_state(const PodView& pod);

}  // namespace oarlock::cli
