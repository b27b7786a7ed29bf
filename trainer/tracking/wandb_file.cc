#include "trainer/tracking/wandb_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "trainer/tracking/encoding.h"

namespace oarlock {
namespace {

using protozero::pbf_reader;
using protozero::pbf_writer;

// leveldb/doc/log_format.md. W&B's files begin with another header, and use the CRC-32 of zlib.
constexpr std::string_view kWandbHeader("\x3aW&B\xe1\xbe\x00", 7);
constexpr size_t kWandbBlockSize = 32u << 10;
constexpr size_t kMaxWandbRecordBytes = size_t{64} << 20;  // a longer record is taken for a damaged one
constexpr size_t kFragmentHeaderSize = 7;                  // checksum, length of the data, type
enum class FragmentType : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

// Numbers of the fields that are written, by message.
namespace record_field {
constexpr uint32_t kNumber = 1, kHistory = 2, kSummary = 3, kFiles = 6, kRun = 17, kExit = 18, kHeader = 21,
                   kPreempting = 23, kEnvironment = 26, kInfo = 200;
}
namespace run_field {
constexpr uint32_t kId = 1, kEntity = 2, kProject = 3, kConfig = 4, kGroup = 6, kJobType = 7, kName = 8, kNotes = 9,
                   kTags = 10, kHost = 13, kStartTime = 17, kGit = 21, kResume = 24;
}
namespace environment_field {
constexpr uint32_t kOs = 1, kStartedAt = 3, kProgram = 6, kGit = 9, kHost = 12, kCpus = 16, kLogicalCpus = 17,
                   kWriterId = 199;
}
constexpr uint32_t kItemKey = 1, kItemJson = 16;        // ConfigItem, HistoryItem, SummaryItem
constexpr uint32_t kUpdate = 1;                         // ConfigRecord, SummaryRecord
constexpr uint32_t kHistoryItem = 1, kHistoryStep = 2;  // HistoryRecord
constexpr uint32_t kGitCommit = 2;                      // GitRepoRecord

uint32_t wandb_checksum(FragmentType type, std::string_view data) {
  const auto byte = static_cast<Bytef>(type);
  const uLong first = crc32(crc32(0, Z_NULL, 0), &byte, 1);
  // zlib must not receive the null pointer of an empty fragment, because it would return the initial value.
  if (data.empty()) return static_cast<uint32_t>(first);
  return static_cast<uint32_t>(
      crc32(first, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
}

void add_optional(pbf_writer& message, uint32_t field, const std::string& value) {
  if (!value.empty()) add_utf8(message, field, value);
}

void add_time(pbf_writer& message, uint32_t field, SystemTime time) {
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  pbf_writer timestamp(message, field);
  timestamp.add_int64(1, nanoseconds / 1'000'000'000);
  timestamp.add_int32(2, static_cast<int32_t>(nanoseconds % 1'000'000'000));
}

void add_items(pbf_writer& message, uint32_t field, const WandbItems& items) {
  for (const auto& [key, value] : items) {
    pbf_writer item(message, field);
    add_utf8(item, kItemKey, key);
    add_utf8(item, kItemJson, value);
  }
}

// Returns a message Record without its number; `content` adds its one member.
template <typename Content>
std::string wandb_record(const std::string& run_id, Content content) {
  std::string out;
  pbf_writer record(out);
  content(record);
  pbf_writer info(record, record_field::kInfo);
  add_utf8(info, 1, run_id);
  return out;
}

// ---- reading -------------------------------------------------------------------------------------------------------

// HistoryItem: the key is either one text or a list of one.
std::pair<std::string, std::string> read_item(pbf_reader item) {
  std::string key, value;
  while (item.next()) {
    if (item.tag() == kItemKey || item.tag() == 2) {
      key = item.get_string();
    } else if (item.tag() == kItemJson) {
      value = item.get_string();
    } else {
      item.skip();
    }
  }
  return {std::move(key), std::move(value)};
}

void read_history(pbf_reader history, WandbContents& contents) {
  std::vector<std::pair<std::string, std::string>> items;
  int64_t step = 0;
  while (history.next()) {
    if (history.tag() == kHistoryItem) {
      items.push_back(read_item(history.get_message()));
    } else if (history.tag() == kHistoryStep) {
      pbf_reader message = history.get_message();
      while (message.next(1)) step = message.get_int64();
    } else {
      history.skip();
    }
  }
  for (auto& [key, value] : items) {
    const auto [entry, is_new] = contents.newest.try_emplace(key, WandbPoint{step, value});
    if (!is_new && step >= entry->second.step) entry->second = {step, std::move(value)};
  }
}

void read_run(pbf_reader run, WandbContents& contents) {
  while (run.next()) {
    if (run.tag() == run_field::kId) {
      contents.run_id = run.get_string();
    } else {
      run.skip();
    }
  }
}

}  // namespace

std::string wandb_header() { return std::string(kWandbHeader); }

std::string frame_wandb_record(std::string_view record, size_t offset) {
  std::string out;
  for (bool is_first = true;; is_first = false) {
    size_t room = kWandbBlockSize - (offset + out.size()) % kWandbBlockSize;
    if (room < kFragmentHeaderSize) {
      out.append(room, '\0');
      room = kWandbBlockSize;
    }
    const std::string_view data = record.substr(0, room - kFragmentHeaderSize);
    record.remove_prefix(data.size());
    const bool is_last = record.empty();
    const FragmentType type = is_first ? (is_last ? FragmentType::kFull : FragmentType::kFirst)
                                       : (is_last ? FragmentType::kLast : FragmentType::kMiddle);
    append_little_endian(out, wandb_checksum(type, data));
    append_little_endian(out, static_cast<uint16_t>(data.size()));
    out += static_cast<char>(type);
    out += data;
    if (is_last) return out;
  }
}

WandbLogEnd read_wandb_log(const ByteSource& read, const std::function<void(std::string_view record)>& visit) {
  WandbLogEnd out;
  const std::string_view header = read(kWandbHeader.size());
  out.has_header = header == kWandbHeader;
  out.is_cut = !out.has_header && kWandbHeader.starts_with(header);
  if (!out.has_header) return out;
  size_t offset = out.offset = kWandbHeader.size();
  std::string record;
  bool is_inside = false;  // of a record with several fragments
  for (;;) {
    const size_t room = kWandbBlockSize - offset % kWandbBlockSize;
    if (room < kFragmentHeaderSize) offset += read(room).size();
    const std::string_view head = read(kFragmentHeaderSize);
    if (head.size() < kFragmentHeaderSize) {
      out.is_cut = out.records == 0 || is_inside || offset + head.size() > out.offset;
      return out;
    }
    const auto checksum = read_little_endian<uint32_t>(head, 0);
    const size_t size = read_little_endian<uint16_t>(head, 4);
    const auto type = static_cast<FragmentType>(head[6]);
    offset += kFragmentHeaderSize;
    if (size > kWandbBlockSize - offset % kWandbBlockSize && size != 0) return out;
    const std::string_view data = read(size);
    if (data.size() < size) {
      out.is_cut = true;
      return out;
    }
    if (wandb_checksum(type, data) != checksum) return out;
    offset += size;
    const bool begins = type == FragmentType::kFull || type == FragmentType::kFirst;
    if (begins == is_inside || type < FragmentType::kFull || type > FragmentType::kLast) return out;
    if (begins) record.clear();
    if (record.size() + size > kMaxWandbRecordBytes) return out;
    record += data;
    is_inside = type == FragmentType::kFirst || type == FragmentType::kMiddle;
    if (is_inside) continue;
    visit(record);
    out.records += 1;
    out.offset = offset;
  }
}

std::string wandb_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string WandbRecords::version(const std::string& producer) const {
  return wandb_record(run_id_, [&](pbf_writer& record) {
    pbf_writer header(record, record_field::kHeader);
    pbf_writer info(header, 1);
    add_utf8(info, 1, producer);
    info.add_string(2, "0.70.0");  // the oldest wandb-core that understands the records, as wandb 0.31 writes it
  });
}

std::string WandbRecords::run(const WandbRun& run) const {
  return wandb_record(run_id_, [&](pbf_writer& record) {
    pbf_writer message(record, record_field::kRun);
    add_utf8(message, run_field::kId, run.id);
    add_optional(message, run_field::kEntity, run.entity);
    add_optional(message, run_field::kProject, run.project);
    {
      pbf_writer config(message, run_field::kConfig);
      add_items(config, kUpdate, run.config);
    }
    add_optional(message, run_field::kGroup, run.group);
    add_optional(message, run_field::kJobType, run.job_type);
    add_optional(message, run_field::kName, run.name);
    add_optional(message, run_field::kNotes, run.notes);
    for (const std::string& tag : run.tags) add_utf8(message, run_field::kTags, tag);
    add_optional(message, run_field::kHost, run.host);
    add_time(message, run_field::kStartTime, run.start_time);
    if (!run.commit.empty()) {
      pbf_writer git(message, run_field::kGit);
      add_utf8(git, kGitCommit, run.commit);
    }
    message.add_bool(run_field::kResume, true);
  });
}

std::string WandbRecords::environment(const WandbRun& run, const std::string& program, int cpus) const {
  return wandb_record(run_id_, [&](pbf_writer& record) {
    pbf_writer message(record, record_field::kEnvironment);
    message.add_string(environment_field::kOs, "Linux");
    add_time(message, environment_field::kStartedAt, run.start_time);
    add_optional(message, environment_field::kProgram, program);
    if (!run.commit.empty()) {
      pbf_writer git(message, environment_field::kGit);
      add_utf8(git, kGitCommit, run.commit);
    }
    add_optional(message, environment_field::kHost, run.host);
    message.add_uint32(environment_field::kCpus, static_cast<uint32_t>(cpus));
    message.add_uint32(environment_field::kLogicalCpus, static_cast<uint32_t>(cpus));
    // Distinguishes the attempts, whose environments may differ.
    add_utf8(message, environment_field::kWriterId,
             fmt::format("{}-{}", run.id, run.start_time.time_since_epoch().count()));
  });
}

std::string WandbRecords::history(int64_t step, const WandbItems& items) const {
  return wandb_record(run_id_, [&](pbf_writer& record) {
    pbf_writer history(record, record_field::kHistory);
    add_items(history, kHistoryItem, items);
    pbf_writer number(history, kHistoryStep);
    number.add_int64(1, step);
  });
}

std::string WandbRecords::summary(const WandbItems& items) const {
  return wandb_record(run_id_, [&](pbf_writer& record) {
    pbf_writer summary(record, record_field::kSummary);
    add_items(summary, kUpdate, items);
  });
}

std::string WandbRecords::file(const std::string& path, WandbFileType type) const {
  return wandb_record(run_id_, [&](pbf_writer& record) {
    pbf_writer files(record, record_field::kFiles);
    pbf_writer item(files, 1);
    add_utf8(item, 1, path);
    item.add_enum(3, static_cast<int32_t>(type));
  });
}

std::string WandbRecords::preempting() const {
  // The message is empty. A pbf_writer without content would leave out the field.
  return wandb_record(run_id_,
                      [](pbf_writer& record) { record.add_message(record_field::kPreempting, std::string()); });
}

std::string WandbRecords::exit(int code, int64_t seconds) const {
  return wandb_record(run_id_, [&](pbf_writer& record) {
    pbf_writer exit(record, record_field::kExit);
    exit.add_int32(1, code);
    exit.add_int32(2, static_cast<int32_t>(std::clamp<int64_t>(seconds, 0, INT32_MAX)));
  });
}

std::string number_wandb_record(int64_t number, std::string_view record) {
  std::string out;
  pbf_writer message(out);
  message.add_int64(record_field::kNumber, number);
  out += record;  // the fields of a message may follow each other in any order
  return out;
}

std::optional<WandbLogEnd> read_wandb_contents(const ByteSource& read, WandbContents& contents) {
  try {
    return read_wandb_log(read, [&](std::string_view bytes) {
      pbf_reader record(bytes.data(), bytes.size());
      while (record.next()) {
        if (record.tag() == record_field::kHistory) {
          read_history(record.get_message(), contents);
        } else if (record.tag() == record_field::kRun) {
          read_run(record.get_message(), contents);
        } else {
          record.skip();
        }
      }
    });
  } catch (const protozero::exception&) {  // not a message: the rest of the file is ignored
    return std::nullopt;
  }
}

}  // namespace oarlock
