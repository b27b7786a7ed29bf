// A real kube-apiserver for a test program: started by scripts/cluster with its own directory and ports, and with the
// TrainingJob CRD.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "http/client/transport.h"
#include "tests/support/program.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::test {

struct Reply {
  int status = 0;
  nlohmann::json body;

  bool ok() const { return status >= 200 && status < 300; }
  std::string message() const { return body.is_object() ? body.value("message", "") : body.dump(); }
};

// The constructor throws std::runtime_error if the server cannot start, so that a test that needs it fails.
class ApiServer {
 public:
  enum class Parts { kApiOnly, kWithControllers };  // etcd and kube-apiserver; also controller-manager and scheduler
  enum class Family { kDualStack, kIpv6 };          // of Services; kIpv6: it listens at ::1, too (ipv6_machine.h)
  explicit ApiServer(Parts parts, const std::string& arguments = "",  // more flags of kube-apiserver
                     Family family = Family::kDualStack);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  std::string kubeconfig() const;  // of an administrator
  Reply call(const std::string& method, const std::string& target, const nlohmann::json& body = nullptr);
  void apply(const std::string& manifest);  // a file or directory, with kubectl; throws
  // Returns a new namespace, after the controllers have populated it.
  std::string make_namespace();

  http::Transport& transport() { return *transport_; }

 private:
  std::string directory() const { return (temporary_.path() / "c").string(); }

  const Parts parts_;
  TemporaryDirectory temporary_;
  std::unique_ptr<http::Transport> transport_;
  int namespaces_ = 0;
};

struct OperatorPlace {
  std::string listen_address = "127.0.0.1";  // empty: the program's default, and requests go to ::1
  std::map<std::string, std::string> environment{};
};

// An oarlock-operator as a process.
class OperatorProcess {
 public:
  // Adds --port 0 to the arguments. Waits until the operator logs "ready", or "listening" if `wait_until_ready` is
  // false.
  explicit OperatorProcess(std::vector<std::string> arguments, bool wait_until_ready = true,
                           const OperatorPlace& place = {});

  Program& program() { return *program_; }
  std::string log() const { return program_->err(); }
  bool logged(const std::string& text) const { return log().find(text) != std::string::npos; }
  int port() const;                                                           // of its HTTP server
  int health_port() const;                                                    // with --health-port
  Reply get(const std::string& path) const;                                   // a text response becomes a JSON string
  void use_token(std::string token) { token_ = std::move(token); }            // for later requests
  void use_tls(std::string authority) { authority_ = std::move(authority); }  // PEM; for later requests
  // The sum over all series of this metric whose labels hold all of these texts; 0 if there are none.
  double metric(const std::string& name, const std::vector<std::string>& labels = {}) const;

 private:
  std::unique_ptr<Program> program_;
  std::string host_;  // as in a URL
  std::string token_;
  std::string authority_;
};

}  // namespace oarlock::test
