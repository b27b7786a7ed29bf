// A machine without IPv4, simulated for one process.
#pragma once

#include <string>

namespace oarlock::test {

// Puts this process, which must have a single thread, into separate user, mount and network namespaces: loopback has
// ::1 alone, and nothing has an IPv4 address. Throws std::runtime_error.
void leave_ipv4();

// Writes the files of a pod's service account to the paths that they have in a pod. Call it after leave_ipv4().
void become_service_account(const std::string& authority, const std::string& token, const std::string& namespace_name);

}  // namespace oarlock::test
