// The events that a run reports to experiment tracking tools. They contain no references, so that they can be queued,
// written to a journal and delivered by a later process.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/clock.h"

namespace oarlock {

// The first event of every attempt.
struct RunStarted {
  std::string name;  // of the run: tracking.name, otherwise the job's name, otherwise the task
  std::string task;
  std::string job;  // metadata.name of the TrainingJob; empty outside a TrainingJob
  std::string job_namespace;
  std::string uid;    // metadata.uid of the TrainingJob; may be empty. The same for all attempts of a job
  std::string place;  // of the checkpoint directory, as of place_of(); empty if it is not known
  int attempt = 0;
  // Steps completed by the restored checkpoint; 0: a start from the beginning. This attempt reports the points of later
  // steps (again), and not those up to it.
  int64_t restart_step = 0;
  std::string loss = "loss";  // the metric with the loss of the training
  std::string monitor;        // the metric by which models are compared: "eval/accuracy"
  nlohmann::json config;      // the complete configuration with every default, as nested objects
  // Numbers that depend on the ranks: "ddp/world_size", "ddp/effective_batch_size", "ddp/scaled_lr" ...
  std::map<std::string, double> derived;
  std::map<std::string, std::string> versions;  // "oarlock", "revision" (of git), "libtorch", "cuda", "nccl"

  bool operator==(const RunStarted&) const = default;
};

// Values of metrics by name, e.g. {"loss", 0.31}. Names of evaluations have the prefix "eval/", those of a task's other
// passes the name of the pass: "test/mse". A value may be NaN or infinite.
struct Scalars {
  std::vector<std::pair<std::string, double>> values;

  bool operator==(const Scalars&) const = default;
};

// Bucket i counts the values in (limits[i-1], limits[i]]; the first bucket has no lower limit.
struct Histogram {
  std::string name;  // "parameters/conv1.weight", "gradients/conv1.weight"
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> limits;  // ascending
  std::vector<double> counts;  // of the same length

  bool operator==(const Histogram&) const = default;
};

struct Text {
  std::string name;  // "samples"
  std::string text;  // UTF-8; Markdown

  bool operator==(const Text&) const = default;
};

struct Image {
  std::string name;  // "eval/predictions"
  int64_t width = 0;
  int64_t height = 0;
  std::string png;  // the bytes of a PNG file

  bool operator==(const Image&) const = default;
};

// The last event of every attempt that ends in an orderly way.
struct RunFinished {
  bool success = false;                   // the run is complete
  bool resumes = false;                   // interrupted: another attempt is expected
  std::string reason;                     // of the termination message: "Completed", "Interrupted", "PeerLost" ...
  std::string message;                    // one line
  std::map<std::string, double> summary;  // final metrics and times: "eval/loss", "time/forward_seconds" ...
  std::string time_table;                 // Markdown: where the time of the run was spent

  bool operator==(const RunFinished&) const = default;
};

struct Event {
  SystemTime time;
  int64_t step = 0;  // completed optimizer steps
  std::variant<RunStarted, Scalars, Histogram, Text, Image, RunFinished> content;

  bool operator==(const Event&) const = default;
};

// ---- Events as bytes, for the journal ---------------------------------------------------------------------------

// Returns the event as CBOR.
std::string encode_event(const Event& event);

// Returns nullopt if the bytes are not an event that this version knows. Unknown members are ignored, and absent ones
// have their default values, because another version of the program may have written the journal.
std::optional<Event> decode_event(std::string_view bytes);

}  // namespace oarlock
