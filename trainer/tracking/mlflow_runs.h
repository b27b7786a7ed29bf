// Experiments and runs on an MLflow tracking server: they are found, created, read, and written to.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/clock.h"
#include "common/log.h"
#include "trainer/tracking/mlflow_client.h"
#include "trainer/tracking/mlflow_items.h"

namespace oarlock {

// Returns whether a server may give this id to a run or an experiment: it is a part of requests, messages and the state
// of the run.
bool is_mlflow_id(std::string_view id);

// The number of an attempt in the tag of the run that is the job's.
inline constexpr char kMlflowAttemptOfJob[] = "job";

// Used by one thread. The client must outlive it.
class MlflowRuns {
 public:
  // `is_configured`: the user has chosen the run, which a message about a deleted one depends on.
  MlflowRuns(MlflowClient& client, const Logger& logger, bool is_configured)
      : client_(client), logger_(logger), is_configured_(is_configured) {}

  // Returns the id of the experiment, which is created if it does not exist.
  MlflowResult<std::string> ensure_experiment(const std::string& name);

  // Returns the name of an experiment.
  MlflowResult<std::string> experiment_name(const std::string& id);

  // Returns the id of the run of an attempt that was created with this key; an empty string if there is none. `view` is
  // ACTIVE_ONLY or DELETED_ONLY.
  MlflowResult<std::string> find_run(const std::string& experiment_id, const std::string& key,
                                     const std::string& attempt, const char* view);

  // Creates a run with the tags by which it is found. All others follow, because a rejected one must not prevent it.
  struct NewRun {
    std::string experiment_id;
    std::string name;
    SystemTime start;
    std::string key;
    std::string attempt;
    std::string parent_id;  // empty for the job's run
  };
  MlflowResult<std::string> create_run(const NewRun& run);

  // Returns the run with its data. Fails with kMissing, or with kDeleted if it must be restored before it is used.
  MlflowResult<nlohmann::json> read_active(const std::string& id);

  // Sends metrics, params or tags, at most `max` in one request. Rejected items are dropped with a warning, and the
  // others are sent. Calls `sent` with the items of each request that succeeded.
  MlflowResult<void> log(
      const std::string& id, const char* kind, std::span<const MlflowItem> items, size_t max,
      const std::function<void(std::span<const MlflowItem>)>& sent = [](std::span<const MlflowItem>) {});
  MlflowResult<void> log_params(const std::string& id, const std::map<std::string, std::string>& params);

  // Sets the status of the run, and its end. A rejected one is dropped with a warning.
  MlflowResult<void> update(const std::string& id, const char* status, std::optional<SystemTime> end);

  // Logs that rejected content is dropped; once for each content, and for a limited number of them.
  void warn_of_drop(const std::string& content, const MlflowError& error);

  // Returns the id that a response has, or a failure of the server.
  MlflowResult<std::string> id_at(const nlohmann::json& object, const char* key) const;

  tl::unexpected<MlflowError> deleted_run(const std::string& id) const;

 private:
  MlflowResult<void> log_items(const std::string& id, const char* kind, std::span<const MlflowItem> items,
                               const std::function<void(std::span<const MlflowItem>)>& sent);
  MlflowResult<void> drop_rejected(const std::string& id, const std::string& content, const MlflowError& error);
  tl::unexpected<MlflowError> unexpected_response(const std::string& why) const;

  MlflowClient& client_;
  Logger logger_;
  const bool is_configured_;
  std::set<std::string> dropped_;  // content of which a warning was logged
};

}  // namespace oarlock
