#include "trainer/tracking/wandb_history.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json_access.h"
#include "common/status_macros.h"
#include "trainer/tracking/encoding.h"
#include "trainer/tracking/event_file.h"
#include "trainer/tracking/run_files.h"
#include "trainer/tracking/wandb_file.h"

namespace oarlock {
namespace {

constexpr size_t kMaxRowFileBytes = size_t{64} << 20;  // a longer file is taken for a damaged one
constexpr size_t kReplacedRowFileBytes = size_t{1} << 18;
constexpr size_t kRowHeadSize = 30;

// The first line of an entry: the size and the checksum of its content.
std::string row_head(std::string_view text) { return fmt::format("{:020} {:08x}\n", text.size(), masked_crc(text)); }

int64_t to_microseconds(SystemTime time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

std::string row_entry(const WandbRowState& state) {
  const nlohmann::json value = {{"run_id", state.run_id},
                                {"folder", state.directory},
                                {"last_row", state.last_row_step},
                                {"step", state.row.step},
                                {"time_us", to_microseconds(state.row.time)},
                                {"items", state.row.items}};
  const std::string text = dump_json(value);
  return row_head(text) + text;
}

std::optional<WandbRowState> parse_row_state(std::string_view text) {
  const nlohmann::json value = parse_untrusted_json(text, kMaxRowFileBytes);
  if (!value.is_object()) return std::nullopt;
  WandbRowState out{.run_id = text_at(value, "run_id"),
                    .directory = text_at(value, "folder"),
                    .last_row_step = integer_at<int64_t>(value, "last_row", -1),
                    .row = {.step = integer_at<int64_t>(value, "step", -1),
                            .time = time_from_microseconds(integer_at<int64_t>(value, "time_us", 0)),
                            .items = {}}};
  for (const nlohmann::json& item : elements(value, "items")) {
    if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string())
      out.row.items.emplace_back(item[0], item[1]);
  }
  return out;
}

// Removes the first entry of a file and returns its text; empty if it is incomplete or damaged.
std::string_view take_entry(std::string_view& content) {
  if (content.size() < kRowHeadSize) return {};
  const std::string head(content.substr(0, kRowHeadSize));
  const size_t size = std::strtoull(head.c_str(), nullptr, 10);
  if (size > content.size() - kRowHeadSize) return {};
  const std::string_view text = content.substr(kRowHeadSize, size);
  if (head != row_head(text)) return {};
  content.remove_prefix(kRowHeadSize + size);
  return text;
}

}  // namespace

Result<std::optional<WandbRowState>> WandbRowFile::load(const std::filesystem::path& path,
                                                        const std::function<bool(const WandbRowState&)>& accepts) {
  ASSIGN_OR_RETURN(const std::string content, read_regular_file(path, kMaxRowFileBytes));
  std::string_view left = content;
  std::vector<std::string_view> entries;
  for (std::string_view text = take_entry(left); !text.empty(); text = take_entry(left)) entries.push_back(text);
  for (; !entries.empty(); entries.pop_back()) {
    std::optional<WandbRowState> state = parse_row_state(entries.back());
    if (!state || accepts(*state)) return state;
  }
  return std::nullopt;
}

Result<void> WandbRowFile::save(const WandbRowState& state) {
  const std::string entry = row_entry(state);
  if (!file_.open() || size_ + entry.size() > kReplacedRowFileBytes) return replace(entry);
  // Where the last complete entry ends: a part of an entry, from a failure, is overwritten.
  if (::lseek(file_.get(), static_cast<off_t>(size_), SEEK_SET) < 0)
    return fail_errno(errno, fmt::format("{}: lseek", path_.string()));
  if (const int error = write_all(file_.get(), entry); error != 0)
    return fail_errno(error, fmt::format("{}: cannot be written", path_.string()));
  size_ += entry.size();
  is_synced_ = false;
  return {};
}

Result<void> WandbRowFile::sync() {
  if (!file_.open() || is_synced_) return {};
  if (::fdatasync(file_.get()) != 0) return fail_errno(errno, fmt::format("{}: fdatasync", path_.string()));
  if (!is_directory_synced_) RETURN_IF_ERROR(sync_directory(path_.parent_path()));
  is_synced_ = is_directory_synced_ = true;
  return {};
}

Result<void> WandbRowFile::replace(const std::string& entry) {
  const std::string temporary = path_.string() + ".new";
  ASSIGN_OR_RETURN(FileDescriptor file, create_new_file(temporary));
  int error = write_all(file.get(), entry);
  if (error == 0 && ::rename(temporary.c_str(), path_.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    return fail_errno(error, fmt::format("{}: cannot be written", path_.string()));
  }
  file_ = std::move(file);
  size_ = entry.size();
  is_synced_ = is_directory_synced_ = false;
  return {};
}

std::string wandb_histogram(const Histogram& histogram, size_t max_bins) {
  // Empty buckets at both ends are not part of the range.
  size_t first = 0, last = std::min(histogram.limits.size(), histogram.counts.size());
  while (first < last && histogram.counts[first] == 0) ++first;
  while (last > first && histogram.counts[last - 1] == 0) --last;
  const size_t width = std::max<size_t>(1, (last - first + max_bins - 1) / max_bins);  // buckets per bin
  std::string bins = wandb_json(histogram.min);
  std::string values;
  for (size_t begin = first; begin < last; begin += width) {
    const size_t end = std::min(begin + width, last);
    double count = 0;
    for (size_t i = begin; i < end; ++i) count += histogram.counts[i];
    bins += "," + wandb_json(std::min(histogram.limits[end - 1], histogram.max));
    values += (values.empty() ? "" : ",") + wandb_json(count);
  }
  if (values.empty()) {
    bins += "," + wandb_json(histogram.max);
    values = "0";
  }
  return fmt::format(R"({{"_type":"histogram","bins":[{}],"values":[{}]}})", bins, values);
}

std::string hex_sha256(std::string_view content) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(content.data(), content.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) return "";
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::string wandb_media_path(const char* directory, const std::string& name, int64_t step, const std::string& hash,
                             const char* extension) {
  std::string safe;
  for (const char c : name) {
    const bool is_plain = (std::isalnum(static_cast<unsigned char>(c)) != 0) || c == '_' || c == '-' || c == '/';
    safe += is_plain ? c : '_';
  }
  while (safe.starts_with('/')) safe.erase(0, 1);
  return fmt::format("media/{}/{}_{}_{}.{}", directory, safe, step, hash.substr(0, 20), extension);
}

std::string wandb_html(const std::string& text) {
  std::string out = "<!DOCTYPE html><meta charset=\"utf-8\"><pre style=\"white-space: pre-wrap\">";
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
  return out + "</pre>\n";
}

}  // namespace oarlock
