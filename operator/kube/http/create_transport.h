// Creates the Transport that this program is linked with. Each implementation is a library that defines
// create_transport(): oarlock_kube_beast (this folder) and oarlock_kube_cpprestsdk. A program links one of them, as a
// rule oarlock_kube_transport, which stands for the one that the CMake variable OARLOCK_KUBE_TRANSPORT selects.
#pragma once

#include <memory>

#include "common/error.h"
#include "operator/kube/transport.h"
#include "operator/kube/transport_options.h"

namespace oarlock::kube {

// Checks the server's address, the proxy and the PEM material, but opens no connection. Thread-safe. Fails with kConfig
// or kNoInput and a message of one line.
Result<std::unique_ptr<Transport>> create_transport(TransportOptions options);

}  // namespace oarlock::kube
