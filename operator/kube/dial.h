// A TCP connection to a server: the lookup of its name, and its addresses in turn.
#pragma once

#include "common/file_descriptor.h"
#include "operator/kube/server_address.h"
#include "operator/kube/transport.h"
#include "operator/kube/waiter.h"

namespace oarlock::kube {

// A connected socket that does not block. kConnect where there is none, or the waiter's errors.
TransportResult<FileDescriptor> dial(const ServerAddress& server, Waiter& waiter);

}  // namespace oarlock::kube
