// Objects of a job of two nodes, and their diagnosis.
#pragma once

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/codec.h"
#include "cli/cluster/diagnosis.h"

namespace oarlock::cli {

using Json = nlohmann::json;

inline constexpr char kUid[] = "8f6e4a2c-0000-4000-8000-000000000001";

inline SystemTime time_of(const std::string& text) {
  SystemTime time;
  EXPECT_TRUE(from_rfc3339(text, time)) << text;
  return time;
}

// A job of two nodes with one process each.
inline Json job_object(const Json& status, const Json& spec = Json::object()) {
  Json out = {{"apiVersion", kApiVersion},
              {"kind", kKind},
              {"metadata",
               {{"name", "bert"}, {"namespace", "team"}, {"uid", kUid}, {"creationTimestamp", "2026-11-23T06:00:00Z"}}},
              {"spec", {{"nodes", 2}, {"image", "i"}}},
              {"status", status}};
  out["spec"].update(spec);
  return out;
}

inline Json condition(const std::string& type, const std::string& reason, const std::string& message) {
  return {{"type", type},
          {"status", "True"},
          {"reason", reason},
          {"message", message},
          {"lastTransitionTime", "2026-11-23T06:30:00Z"}};
}

inline Json status_in(const std::string& phase, const std::string& reason, const std::string& message) {
  return {{"phase", phase},
          {"attempt", 0},
          {"startTime", "2026-11-23T06:00:10Z"},
          {"attemptStartTime", "2026-11-23T06:00:10Z"},
          {"conditions", Json::array({condition(phase, reason, message)})}};
}

// The record of attempt 0, whose root cause was node rank 1.
inline Json record(const std::string& reason, const std::string& message, const Json& exit_code = nullptr) {
  Json out = {{"attempt", 0},
              {"startTime", "2026-11-23T06:00:10Z"},
              {"endTime", "2026-11-23T06:20:10Z"},
              {"reason", reason},
              {"message", message},
              {"pod", "bert-0-1"},
              {"node", "gpu-7"},
              {"nodeRank", 1}};
  if (!exit_code.is_null()) out["exitCode"] = exit_code;
  return out;
}

inline Json failed_with(const Json& attempt, const std::string& reason = "PermanentFailure") {
  Json status = status_in("Failed", reason, attempt["message"].get<std::string>() + "; a restart would fail again");
  status["attempts"] = Json::array({attempt});
  status["completionTime"] = "2026-11-23T06:20:11Z";
  return status;
}

// A job that has failed with this record.
inline Json failed_job(const std::string& reason, const std::string& message, const Json& exit_code = nullptr,
                       const std::string& condition_reason = "PermanentFailure") {
  return job_object(failed_with(record(reason, message, exit_code), condition_reason));
}

// The pod of node rank 1 of attempt 0.
inline Json pod_object(const Json& status) {
  return {{"metadata",
           {{"name", "bert-0-1"},
            {"uid", "pod-uid"},
            {"labels", {{kLabelJobName, "bert"}, {kLabelAttempt, "0"}, {kLabelNodeRank, "1"}}}}},
          {"spec", {{"nodeName", "gpu-7"}}},
          {"status", status}};
}

inline Json trainer_ended(int exit_code, const std::string& reason, const std::string& message) {
  return {{"phase", "Failed"},
          {"containerStatuses", Json::array({{{"name", "trainer"},
                                              {"state",
                                               {{"terminated",
                                                 {{"exitCode", exit_code},
                                                  {"reason", reason},
                                                  {"message", message},
                                                  {"finishedAt", "2026-11-23T06:20:09Z"}}}}}}})}};
}

inline Json trainer_waits(const std::string& reason, const std::string& message) {
  return {{"phase", "Pending"},
          {"conditions", Json::array({{{"type", "PodScheduled"}, {"status", "True"}}})},
          {"containerStatuses",
           Json::array({{{"name", "trainer"}, {"state", {{"waiting", {{"reason", reason}, {"message", message}}}}}}})}};
}

inline Json event_about(const std::string& kind, const std::string& name, const std::string& reason,
                        const std::string& message) {
  return {{"involvedObject", {{"kind", kind}, {"name", name}}},
          {"type", "Warning"},
          {"reason", reason},
          {"message", message},
          {"count", 3},
          {"lastTimestamp", "2026-11-23T06:20:00Z"}};
}

inline Json node_object(const std::string& ready) {
  return {
      {"metadata", {{"name", "gpu-7"}}},
      {"status",
       {{"conditions",
         Json::array({{{"type", "Ready"}, {"status", ready}, {"message", "Kubelet stopped posting node status."}}})}}}};
}

inline std::string rank_message(int64_t step, int64_t checkpoint_step, const std::string& reason,
                                const std::string& text) {
  return to_json(TerminationMessage{
      .rank = 1, .step = step, .checkpoint_step = checkpoint_step, .reason = reason, .message = text});
}

struct Objects {
  Json job;
  std::vector<Json> pods{};
  std::vector<Json> events{};
  std::vector<Json> nodes{};
};

inline Diagnosis diagnose_objects(const Objects& objects) {
  DiagnosisInput input;
  input.job = api::read_training_job(objects.job);
  EXPECT_EQ(input.job.report.problem, "");
  input.finalizers = holding_finalizers(objects.job);
  input.now = time_of("2026-11-23T07:00:00Z");
  for (const Json& pod : objects.pods) {
    const auto view = pod_view(pod);
    EXPECT_TRUE(view) << pod;
    if (view) input.pods.push_back(*view);
  }
  for (const Json& event : objects.events) input.events.push_back(event_view(event));
  for (const Json& node : objects.nodes) input.nodes.push_back(node_view(node));
  return diagnose(input);
}

}  // namespace oarlock::cli
