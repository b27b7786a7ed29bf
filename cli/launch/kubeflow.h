// Kubeflow's protocol for the progress of a TrainJob, which transformers' Trainer and Kubeflow's SDK speak: a POST of
// {"trainerStatus": {...}} with a bearer token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "cli/launch/process.h"
#include "common/contract.h"
#include "common/error.h"
#include "http/server.h"

namespace oarlock::launch {

// Variables that both clients read: the URL, and the path of a file with the token. A client without the file of a CA
// accepts a URL with http, so that none is set.
inline constexpr char kEnvKubeflowUrl[] = "KUBEFLOW_TRAINER_SERVER_URL";
inline constexpr char kEnvKubeflowToken[] = "KUBEFLOW_TRAINER_SERVER_TOKEN";

// Converts the bodies of the requests of one program. Not thread-safe.
class KubeflowReports {
 public:
  // Returns nothing if the text is not such a body; it may have any content. The metrics current_step, global_step or
  // step, total_steps or max_steps, and loss or train_loss are those of the report. The percentage is the step of a
  // program that states neither a step nor a target: others state 100 percent also when they end early.
  std::optional<ProgressReport> convert(std::string_view body);

 private:
  bool counts_steps_ = false;  // the program has stated a step or a target
};

// Serves that protocol on the loopback interface.
class KubeflowEndpoint {
 public:
  using OnReport = std::function<void(const ProgressReport& report)>;  // called on a thread of the server

  // Writes the token to a file in `directory`, which only this user can access.
  static Result<KubeflowEndpoint> start(const std::filesystem::path& directory, OnReport on_report);

  // Returns the variables for a program whose environment is `inherited`. A program that uses an HTTP proxy must not
  // send its requests to the proxy. Empty if the program has another server of this protocol.
  Environment environment(const Environment& inherited) const;

 private:
  KubeflowEndpoint(std::filesystem::path token_file, std::unique_ptr<HttpServer> server)
      : token_file_(std::move(token_file)), server_(std::move(server)) {}

  std::filesystem::path token_file_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace oarlock::launch
