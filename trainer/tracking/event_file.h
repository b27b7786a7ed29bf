// The files that TensorBoard reads: records with checksums (TFRecord), and the protocol buffer messages in them
// (tensorboard/compat/proto). Scalars, histograms and images are values of the kind that PyTorch's SummaryWriter
// writes: unlike tensors, all readers discard those of a session that was rolled back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/run_files.h"

namespace oarlock {

// ---- records -------------------------------------------------------------------------------------------------------

// Returns the checksum of a record's length or data: CRC-32C, rotated and with a constant added.
uint32_t masked_crc(std::string_view data);

// Returns a record: length, checksum of the length, data, checksum of the data.
std::string frame_record(std::string_view data);

// Reads the next record and returns its data, which are valid until the next call; nothing at the end of the source,
// and if the record is incomplete or damaged.
std::optional<std::string_view> next_record(const ByteSource& read);

// ---- names of files ------------------------------------------------------------------------------------------------

inline constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

// Returns the number of a new file, the ten digits in its name after the prefix: `seconds` since the epoch, or a larger
// one, so that the name comes after those of all event files in the directory. In this order TensorBoard reads them,
// and the clocks of two machines may differ.
int64_t next_file_number(const std::filesystem::path& directory, int64_t seconds);

// Returns the event file of the directory whose name is the last one; empty if there is none.
std::filesystem::path newest_event_file(const std::filesystem::path& directory);

// Returns the beginning of the name of a file: the prefix and the number.
std::string event_file_stem(int64_t number);

// ---- messages ------------------------------------------------------------------------------------------------------

// Each returns a serialized message `Event`. Times are in seconds since the epoch. In texts other than those of
// text_event(), bytes that are not UTF-8 are replaced.
std::string file_version_event(double time);

// A start of the run after `restart_step` steps: a reader discards the points of later steps that it has read before.
std::string session_start_event(double time, int64_t restart_step);

// The points of one step. Names of scalars are tags.
std::string scalars_event(double time, int64_t step, const Scalars& scalars);
using ScalarView = std::pair<std::string_view, double>;  // a name that the caller owns, and its value
std::string scalar_views_event(double time, int64_t step, std::span<const ScalarView> scalars);
std::string histogram_event(double time, int64_t step, const Histogram& histogram);
std::string text_event(double time, int64_t step, const Text& text);
std::string image_event(double time, int64_t step, const Image& image);

// For the hparams plugin. `hparams` holds numbers, strings and booleans by name; `metrics` are tags of scalars.
std::string hparams_experiment_event(double time, const std::string& name,
                                     const std::map<std::string, nlohmann::json>& hparams,
                                     const std::vector<std::string>& metrics);
std::string hparams_start_event(double time, const std::string& group,
                                const std::map<std::string, nlohmann::json>& hparams);
enum class SessionStatus { kSuccess = 1, kFailure = 2, kRunning = 3 };
std::string hparams_end_event(double time, SessionStatus status);

// The part of a message `Event` that decides which points a file contains.
struct EventPoints {
  int64_t step = 0;
  bool is_session_start = false;
  std::vector<std::string> tags;
};
// Returns nothing if the message is damaged.
std::optional<EventPoints> read_points(std::string_view event);

// The highest step of each tag in the event files of a directory, after the points beyond `restart_step`, and those
// that a session start discards, are removed. Files that cannot be read, and the rest of a file after a damaged record,
// are ignored, as TensorBoard does.
using StepsByTag = std::map<std::string, int64_t, std::less<>>;
StepsByTag highest_steps(const std::filesystem::path& directory, int64_t restart_step);

}  // namespace oarlock
