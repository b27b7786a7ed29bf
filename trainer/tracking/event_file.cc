#include "trainer/tracking/event_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <boost/crc.hpp>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <system_error>

#include "common/files.h"
#include "common/json_access.h"
#include "trainer/tracking/encoding.h"

namespace oarlock {
namespace {

using protozero::pbf_reader;
using protozero::pbf_writer;

constexpr size_t kLengthSize = 8;
constexpr size_t kCrcSize = 4;
constexpr uint64_t kMaxRecordBytes = uint64_t{64} << 20;  // a longer record is taken for a damaged one
constexpr size_t kNumberDigits = 10;                      // of the number in a file's name
constexpr int64_t kMaxNumber = 9'999'999'999;

// Numbers of the fields that are written, by message.
namespace event_field {
constexpr uint32_t kTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7, kSource = 10;
}
namespace value_field {
constexpr uint32_t kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9;
}
namespace tensor_field {
constexpr uint32_t kType = 1, kShape = 2, kStrings = 8;
constexpr int32_t kFloat = 1, kString = 7;  // DataType
}  // namespace tensor_field
namespace hparams_field {
constexpr uint32_t kExperiment = 2, kStart = 3, kEnd = 4;  // HParamsPluginData
}

constexpr uint32_t kSummaryValue = 1;  // Summary.value
constexpr int32_t kSessionStart = 1;   // SessionLog.START

pbf_writer begin_event(std::string& out, double time, int64_t step) {
  pbf_writer event(out);
  event.add_double(event_field::kTime, time);
  event.add_int64(event_field::kStep, step);
  return event;
}

void write_shape(pbf_writer& tensor, int64_t size) {
  pbf_writer shape(tensor, tensor_field::kShape);
  pbf_writer dimension(shape, 2);
  dimension.add_int64(1, size);
}

// Writes the metadata of a tensor that a plugin displays.
void write_metadata(pbf_writer& value, std::string_view plugin, std::string_view content) {
  constexpr int32_t kTensorClass = 2;  // DataClass
  pbf_writer metadata(value, value_field::kMetadata);
  {
    pbf_writer data(metadata, 1);
    data.add_string(1, plugin.data(), plugin.size());
    data.add_bytes(2, content.data(), content.size());
  }
  metadata.add_enum(4, kTensorClass);
}

// ---- hparams -------------------------------------------------------------------------------------------------------

// `write` writes the member of HParamsPluginData.
template <typename Write>
std::string hparams_event(double time, const std::string& tag, const Write& write) {
  std::string content;
  {
    pbf_writer data(content);
    write(data);
  }
  std::string out;
  pbf_writer event = begin_event(out, time, 0);
  pbf_writer summary(event, event_field::kSummary);
  pbf_writer value(summary, kSummaryValue);
  add_utf8(value, value_field::kTag, tag);
  write_metadata(value, "hparams", content);
  pbf_writer tensor(value, value_field::kTensor);  // TensorBoard drops values without a tensor
  tensor.add_enum(tensor_field::kType, tensor_field::kFloat);
  write_shape(tensor, 0);
  return out;
}

enum class HparamType { kString = 1, kBool = 2, kNumber = 3 };  // DataType of the plugin

HparamType hparam_type(const nlohmann::json& value) {
  if (value.is_boolean()) return HparamType::kBool;
  return value.is_number() ? HparamType::kNumber : HparamType::kString;
}

// Writes a google.protobuf.Value.
void write_hparam(pbf_writer& entry, uint32_t field, const nlohmann::json& value) {
  pbf_writer out(entry, field);
  if (value.is_boolean()) {
    out.add_bool(4, value.get<bool>());
  } else if (value.is_number()) {
    out.add_double(2, value.get<double>());
  } else {
    add_utf8(out, 3, value.is_string() ? value.get<std::string>() : dump_json(value));
  }
}

void read_tags(pbf_reader summary, std::vector<std::string>& tags) {
  while (summary.next(kSummaryValue)) {
    pbf_reader value = summary.get_message();
    if (value.next(value_field::kTag)) tags.push_back(value.get_string());
  }
}

}  // namespace

// ---- records -------------------------------------------------------------------------------------------------------

uint32_t masked_crc(std::string_view data) {
  constexpr uint32_t kDelta = 0xa282ead8;
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;  // Castagnoli
  crc.process_bytes(data.data(), data.size());
  return std::rotr(static_cast<uint32_t>(crc.checksum()), 15) + kDelta;
}

std::string frame_record(std::string_view data) {
  std::string out;
  out.reserve(kLengthSize + data.size() + 2 * kCrcSize);
  append_little_endian(out, uint64_t{data.size()});
  append_little_endian(out, masked_crc(out));
  out.append(data);
  append_little_endian(out, masked_crc(data));
  return out;
}

std::optional<std::string_view> next_record(const ByteSource& read) {
  const std::string_view head = read(kLengthSize + kCrcSize);
  if (head.size() < kLengthSize + kCrcSize) return std::nullopt;
  if (read_little_endian<uint32_t>(head, kLengthSize) != masked_crc(head.substr(0, kLengthSize))) return std::nullopt;
  const auto length = read_little_endian<uint64_t>(head, 0);
  if (length > kMaxRecordBytes) return std::nullopt;
  const std::string_view rest = read(length + kCrcSize);
  if (rest.size() < length + kCrcSize) return std::nullopt;
  const std::string_view data = rest.substr(0, length);
  if (read_little_endian<uint32_t>(rest, length) != masked_crc(data)) return std::nullopt;
  return data;
}

// ---- names of files ------------------------------------------------------------------------------------------------

// The first ten digits of a number, filled up with zeros, have the order of the names also if a number has more digits
// or, from a clock before 2001, fewer: '.' precedes '0'.
int64_t next_file_number(const std::filesystem::path& directory, int64_t seconds) {
  int64_t out = std::clamp<int64_t>(seconds, 0, kMaxNumber);
  visit_directory(directory, [&out](const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    if (!name.starts_with(kEventFilePrefix)) return;
    int64_t number = 0;
    bool is_in_digits = true;
    for (size_t i = 0; i < kNumberDigits; ++i) {
      const size_t place = kEventFilePrefix.size() + i;
      is_in_digits = is_in_digits && place < name.size() && name[place] >= '0' && name[place] <= '9';
      number = number * 10 + (is_in_digits ? name[place] - '0' : 0);
    }
    out = std::max(out, std::min(number + 1, kMaxNumber));
  });
  return out;
}

std::filesystem::path newest_event_file(const std::filesystem::path& directory) {
  std::filesystem::path out;
  visit_directory(directory, [&out](const std::filesystem::path& path) {
    if (path.filename().string().starts_with(kEventFilePrefix)) out = std::max(out, path);
  });
  return out;
}

std::string event_file_stem(int64_t number) { return fmt::format("{}{:010}", kEventFilePrefix, number); }

// ---- messages ------------------------------------------------------------------------------------------------------

std::string file_version_event(double time) {
  std::string out;
  pbf_writer event(out);
  event.add_double(event_field::kTime, time);
  event.add_string(event_field::kFileVersion, "brain.Event:2");
  pbf_writer source(event, event_field::kSource);
  source.add_string(1, "oarlock");
  return out;
}

std::string session_start_event(double time, int64_t restart_step) {
  std::string out;
  pbf_writer event = begin_event(out, time, restart_step + 1);  // the first step to discard
  pbf_writer log(event, event_field::kSessionLog);
  log.add_enum(1, kSessionStart);
  return out;
}

std::string scalars_event(double time, int64_t step, const Scalars& scalars) {
  return scalar_views_event(time, step, std::vector<ScalarView>(scalars.values.begin(), scalars.values.end()));
}

std::string scalar_views_event(double time, int64_t step, std::span<const ScalarView> scalars) {
  std::string out;
  pbf_writer event = begin_event(out, time, step);
  pbf_writer summary(event, event_field::kSummary);
  for (const auto& [name, number] : scalars) {
    pbf_writer value(summary, kSummaryValue);
    add_utf8(value, value_field::kTag, name);
    value.add_float(value_field::kSimpleValue, static_cast<float>(number));
  }
  return out;
}

std::string histogram_event(double time, int64_t step, const Histogram& histogram) {
  std::string out;
  pbf_writer event = begin_event(out, time, step);
  pbf_writer summary(event, event_field::kSummary);
  pbf_writer value(summary, kSummaryValue);
  add_utf8(value, value_field::kTag, histogram.name);
  pbf_writer proto(value, value_field::kHistogram);
  proto.add_double(1, histogram.min);
  proto.add_double(2, histogram.max);
  proto.add_double(3, histogram.count);
  proto.add_double(4, histogram.sum);
  proto.add_double(5, histogram.sum_squares);
  proto.add_packed_double(6, histogram.limits.begin(), histogram.limits.end());
  proto.add_packed_double(7, histogram.counts.begin(), histogram.counts.end());
  return out;
}

std::string text_event(double time, int64_t step, const Text& text) {
  std::string out;
  pbf_writer event = begin_event(out, time, step);
  pbf_writer summary(event, event_field::kSummary);
  pbf_writer value(summary, kSummaryValue);
  add_utf8(value, value_field::kTag, text.name);
  write_metadata(value, "text", "");
  pbf_writer tensor(value, value_field::kTensor);
  tensor.add_enum(tensor_field::kType, tensor_field::kString);
  write_shape(tensor, 1);
  tensor.add_bytes(tensor_field::kStrings, text.text);
  return out;
}

std::string image_event(double time, int64_t step, const Image& image) {
  constexpr int32_t kRgb = 3;
  std::string out;
  pbf_writer event = begin_event(out, time, step);
  pbf_writer summary(event, event_field::kSummary);
  pbf_writer value(summary, kSummaryValue);
  add_utf8(value, value_field::kTag, image.name);
  pbf_writer proto(value, value_field::kImage);
  proto.add_int32(1, static_cast<int32_t>(image.height));
  proto.add_int32(2, static_cast<int32_t>(image.width));
  proto.add_int32(3, kRgb);
  proto.add_bytes(4, image.png);
  return out;
}

std::string hparams_experiment_event(double time, const std::string& name,
                                     const std::map<std::string, nlohmann::json>& hparams,
                                     const std::vector<std::string>& metrics) {
  return hparams_event(time, "_hparams_/experiment", [&](pbf_writer& data) {
    pbf_writer experiment(data, hparams_field::kExperiment);
    add_utf8(experiment, 6, name);
    experiment.add_double(3, time);
    for (const auto& [key, value] : hparams) {
      pbf_writer info(experiment, 4);
      add_utf8(info, 1, key);
      info.add_enum(4, static_cast<int32_t>(hparam_type(value)));
    }
    for (const std::string& tag : metrics) {
      pbf_writer info(experiment, 5);
      pbf_writer metric(info, 1);
      add_utf8(metric, 2, tag);
    }
  });
}

std::string hparams_start_event(double time, const std::string& group,
                                const std::map<std::string, nlohmann::json>& hparams) {
  return hparams_event(time, "_hparams_/session_start_info", [&](pbf_writer& data) {
    pbf_writer start(data, hparams_field::kStart);
    for (const auto& [key, value] : hparams) {
      pbf_writer entry(start, 1);
      add_utf8(entry, 1, key);
      write_hparam(entry, 2, value);
    }
    add_utf8(start, 4, group);
    start.add_double(5, time);
  });
}

std::string hparams_end_event(double time, SessionStatus status) {
  return hparams_event(time, "_hparams_/session_end_info", [&](pbf_writer& data) {
    pbf_writer end(data, hparams_field::kEnd);
    end.add_enum(1, static_cast<int32_t>(status));
    end.add_double(2, time);
  });
}

// ---- reading -------------------------------------------------------------------------------------------------------

std::optional<EventPoints> read_points(std::string_view event) {
  EventPoints out;
  try {
    pbf_reader reader(event.data(), event.size());
    while (reader.next()) {
      if (reader.tag() == event_field::kStep) {
        out.step = reader.get_int64();
      } else if (reader.tag() == event_field::kSummary) {
        read_tags(reader.get_message(), out.tags);
      } else if (reader.tag() == event_field::kSessionLog) {
        pbf_reader log = reader.get_message();
        while (log.next(1)) out.is_session_start = log.get_enum() == kSessionStart;
      } else {
        reader.skip();
      }
    }
  } catch (const protozero::exception&) {
    return std::nullopt;
  }
  return out;
}

StepsByTag highest_steps(const std::filesystem::path& directory, int64_t restart_step) {
  // Of all steps below the first one that a later session discards, only the highest of each tag counts. The files are
  // read from the newest to the oldest, so that the discarded steps are known. Their order is that of their names, in
  // which TensorBoard reads them.
  std::vector<std::filesystem::path> files;
  visit_directory(directory, [&files](const std::filesystem::path& path) {
    if (path.filename().string().find("tfevents") != std::string::npos) files.push_back(path);
  });
  std::sort(files.begin(), files.end(), std::greater<>());
  StepsByTag out;
  int64_t limit = restart_step;
  for (const std::filesystem::path& path : files) {
    Result<SequentialFile> file = SequentialFile::open(path);
    if (!file) continue;
    const ByteSource read = [&file](size_t size) { return file->read(size); };
    int64_t limit_of_older = limit;
    while (const std::optional<std::string_view> record = next_record(read)) {
      const std::optional<EventPoints> points = read_points(*record);
      if (!points) continue;
      if (points->is_session_start) limit_of_older = std::min(limit_of_older, points->step - 1);
      if (points->step > limit) continue;
      for (const std::string& tag : points->tags) {
        const auto [highest, is_new] = out.emplace(tag, points->step);
        if (!is_new) highest->second = std::max(highest->second, points->step);
      }
    }
    limit = limit_of_older;
  }
  return out;
}

}  // namespace oarlock
