// The body of an events.k8s.io/v1 Event about a job. Pure.
#pragma once

#include <string>

#include "common/clock.h"
#include "operator/core/model.h"

namespace oarlock::control {

struct EventSource {
  std::string controller = "oarlock.dev/operator";
  std::string instance;  // which of the operators: the pod's name
};

// `time` to the nanosecond makes it unique.
std::string event_name(const Job& job, SystemTime time);

// JSON.
std::string event_body(const Job& job, const EmitEvent& event, const EventSource& source, SystemTime time);

}  // namespace oarlock::control
