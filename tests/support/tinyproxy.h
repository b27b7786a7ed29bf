// A real HTTP proxy, tinyproxy, with a user name and a password.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/program.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::test {

class Tinyproxy {
 public:
  // `host`: "127.0.0.1" or "::1". Waits until it accepts connections; throws std::runtime_error if it does not start.
  Tinyproxy(const std::string& host, const std::string& user, const std::string& password);

  std::string url(const std::string& credentials = "") const;  // credentials: "user:password"
  std::string log() const;

 private:
  bool start(int port);

  const std::string host_;
  const std::string user_;
  const std::string password_;
  TemporaryDirectory directory_;
  std::unique_ptr<Program> program_;
  int port_ = 0;
};

// Writes a copy of a kubeconfig file with this proxy-url into the directory. Returns its path.
std::string kubeconfig_with_proxy(const std::string& kubeconfig, const std::string& proxy,
                                  const std::filesystem::path& directory);

}  // namespace oarlock::test
