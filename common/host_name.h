// The name of this host.
#pragma once

#include <string>

namespace oarlock {

// Returns the name of this host: in Kubernetes the name of the pod, or of the node with hostNetwork.
std::string host_name();

}  // namespace oarlock
