#include "operator/kube/http/create_transport.h"

#include <utility>

#include "operator/kube/cpprestsdk/transport.h"

namespace oarlock::kube {

Result<std::unique_ptr<Transport>> create_transport(TransportOptions options) {
  return CpprestTransport::create(std::move(options));
}

}  // namespace oarlock::kube
