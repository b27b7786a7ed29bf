#include "tests/support/trainer_program/file_channel.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock::test {
namespace {

class FileChannel final : public RegroupChannel {
 public:
  FileChannel(std::filesystem::path directory, int rank) : directory_(std::move(directory)), rank_(rank) {}

  Result<Assignment> regroup(int64_t generation, const RecoveryState& state, std::string_view reason,
                             const StopFlag& stop) override {
    const std::string id = fmt::format("{}-{}-{}", rank_, ::getpid(), requests_++);
    const nlohmann::json request = {{"rank", rank_},
                                    {"generation", generation},
                                    {"step", state.completed_step},
                                    {"digest", state.digest},
                                    {"reason", std::string(reason)}};
    RETURN_IF_ERROR(write_file_atomically(directory_ / ("request-" + id),
                                          request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
    const std::filesystem::path answer = directory_ / ("answer-" + id);
    while (!std::filesystem::exists(answer)) {
      if (stop.is_raised()) return fail(ExitCode::kTempFail, "interrupted by a signal while regrouping");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ASSIGN_OR_RETURN(const std::string text, read_file(answer));
    const nlohmann::json json = nlohmann::json::parse(text);
    if (json.contains("error")) return fail(ExitCode::kPeerLost, json["error"].get<std::string>());
    return Assignment{.generation = json.at("generation"),
                      .rank = json.at("rank"),
                      .world_size = json.at("world_size"),
                      .donor = json.at("donor"),
                      .step = json.at("step"),
                      .store_host = "127.0.0.1",
                      .store_port = json.at("port"),
                      .store_prefix = fmt::format("generation-{}", json.at("generation").get<int64_t>())};
  }

  bool regroup_requested(int64_t generation) const override {
    return std::filesystem::exists(directory_ / fmt::format("left-{}", generation));
  }
  bool growth_requested(int64_t generation) const override {
    return std::filesystem::exists(directory_ / fmt::format("growing-{}", generation));
  }

 private:
  std::filesystem::path directory_;
  int rank_;
  int requests_ = 0;
};

}  // namespace

Result<std::unique_ptr<RegroupChannel>> open_file_channel(const JobEnvironment& environment) {
  const char* directory = std::getenv(kEnvRegroupDirectory);
  if (directory == nullptr) return nullptr;
  return std::make_unique<FileChannel>(directory, environment.rank);
}

}  // namespace oarlock::test
