#include "trainer/tracking/wandb_sink.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <map>
#include <set>
#include <system_error>

#include "common/cpu_count.h"
#include "common/files.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "trainer/tracking/event_file.h"
#include "trainer/tracking/wandb_file.h"
#include "trainer/tracking/wandb_values.h"

namespace oarlock {
namespace {

using nlohmann::json;

constexpr char kWandbFolderPrefix[] = "offline-run-";
constexpr size_t kMaxStateBytes = size_t{64} << 20;  // of each file with the state of the run
constexpr int64_t kNoWandbStep = -1;
constexpr size_t kRowHeadSize = 30;  // of the file of the current row

// The first line of the file of the current row: the size and the checksum of what follows.
std::string row_head(const std::string& text) { return fmt::format("{:020} {:08x}\n", text.size(), masked_crc(text)); }

int64_t to_microseconds(SystemTime time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

double wandb_seconds(SystemTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

std::string wandb_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// Eight letters and digits, as wandb generates them.
std::string random_wandb_id() {
  std::array<uint8_t, 8> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    const int64_t ticks = std::chrono::steady_clock::now().time_since_epoch().count();
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(ticks >> (8 * i));
  }
  std::string id;
  for (const uint8_t byte : bytes) id += "abcdefghijklmnopqrstuvwxyz0123456789"[byte % 36];
  return id;
}

// The start of an attempt, by the name of its folder; 0 if the name has none.
std::time_t wandb_folder_time(const std::string& name) {
  std::tm time = {};
  const char* const end = ::strptime(name.c_str() + sizeof kWandbFolderPrefix - 1, "%Y%m%d_%H%M%S", &time);
  return end != nullptr && *end == '-' ? ::timegm(&time) : 0;
}

// JSON of a value of the configuration. Text that is not UTF-8 is replaced.
std::string dump_json(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

class WandbSink final : public Sink {
 public:
  WandbSink(WandbSettings settings, const SinkContext& context)
      : settings_(std::move(settings)), state_folder_(context.folder), logger_(context.logger) {
    if (settings_.dir.empty())
      settings_.dir = state_folder_.empty() ? std::filesystem::path(".") : state_folder_.parent_path();
  }

  std::string_view name() const override { return "wandb"; }
  bool is_remote() const override { return false; }

  Result<size_t> write(std::span<const Event> events) override {
    Result<void> added;
    for (const Event& event : events) {
      Result<void> result = std::visit([&](const auto& content) { return add(event, content); }, event.content);
      if (!result && added) added = std::move(result);
    }
    add_summary();
    RETURN_IF_ERROR(flush());
    save_row();
    RETURN_IF_ERROR(added);
    return events.size();
  }

 private:
  // The values of one step, which are one row of the history.
  struct Row {
    int64_t step = 0;
    SystemTime time;
    WandbItems items;
  };

  // ---- start and end of an attempt ---------------------------------------------------------------------------------

  Result<void> add(const Event& event, const RunStarted& run) {
    add_summary();
    RETURN_IF_ERROR(flush());
    save_row();
    file_.close();
    records_.reset();
    row_ = {};
    last_row_step_ = kNoWandbStep;
    newest_.clear();
    written_summary_.clear();
    summary_.clear();
    start_time_ = event.time;
    load_state();
    run_id_ = choose_run_id(run);
    read_earlier_attempts();
    load_row();
    RETURN_IF_ERROR(open_folder(event.time));
    save_state();

    WandbRun record;
    record.id = run_id_;
    record.entity = settings_.entity;
    record.project = settings_.project.empty() ? run.task : settings_.project;
    record.group = settings_.group;
    record.job_type = settings_.job_type;
    record.name = settings_.name.empty() ? run.name : settings_.name;
    record.notes = settings_.notes;
    record.tags = settings_.tags;
    record.host = wandb_host();
    if (const auto revision = run.versions.find("revision"); revision != run.versions.end())
      record.commit = revision->second;
    record.start_time = event.time;
    add_config(run, record);

    records_.emplace(run_id_);
    const auto version = run.versions.find("oarlock");
    pending_ += log_.header();
    append(records_->version("oarlock " + (version == run.versions.end() ? "" : version->second)));
    append(records_->run(record));
    append(records_->environment(record, "oarlock-trainer", usable_cpus()));
    WandbItems earlier;
    for (const auto& [key, point] : newest_) earlier.emplace_back(key, point.value_json);
    if (!earlier.empty()) append(records_->summary(earlier));
    RETURN_IF_ERROR(write_run_files(run, record));
    if (settings_.mode == WandbMode::kOnline && !is_mode_reported_) {
      is_mode_reported_ = true;
      logger_.warn("W&B: the trainer does not upload runs itself; upload the folder with 'wandb sync'",
                   {{"folder", folder_.string()}});
    } else {
      logger_.info("W&B: writing a run folder for 'wandb sync'", {{"folder", folder_.string()}});
    }
    return {};
  }

  Result<void> add(const Event& event, const RunFinished& finished) {
    if (!records_) return {};
    for (const auto& [key, value] : finished.summary) summary_[key] = wandb_json(value);
    if (!finished.reason.empty()) summary_["exit_reason"] = dump_json(finished.reason);
    if (!finished.time_table.empty()) RETURN_IF_ERROR(add(event, Text{"time", finished.time_table}));
    // The next attempt may have further values of this step, such as an evaluation, and continues the row.
    if (!finished.resumes || state_folder_.empty()) end_row();
    add_summary();
    write_summary_file();
    const auto seconds = static_cast<int64_t>(wandb_seconds(event.time) - wandb_seconds(start_time_));
    if (finished.resumes) append(records_->preempting());
    append(records_->exit(finished.success ? 0 : 1, seconds));
    RETURN_IF_ERROR(flush());
    save_state();
    return {};
  }

  // The id is the same for all attempts of a job: that of the state file, or of the job's uid.
  std::string choose_run_id(const RunStarted& run) {
    if (!settings_.run_id.empty()) return settings_.run_id;
    if (is_wandb_id(run_id_)) return run_id_;
    std::string id;
    for (const char c : run.uid) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0) id += c;
    }
    return is_wandb_id(id) ? id : random_wandb_id();
  }

  void add_config(const RunStarted& run, WandbRun& record) {
    std::set<std::string> keys;
    const auto add_item = [&](const std::string& key, const json& value) {
      if (keys.insert(key).second) record.config.emplace_back(key, dump_json(value));
    };
    for (const auto& [key, value] : run.derived) add_item(key, value);
    if (run.config.is_object()) {
      for (const auto& [key, value] : run.config.items()) add_item(key, value);
    }
    add_item("task", run.task);
    add_item("versions", run.versions);
    add_item("attempt", run.attempt);
    add_item("restart_step", run.restart_step);
    if (!run.job.empty()) add_item("job", run.job_namespace.empty() ? run.job : run.job_namespace + "/" + run.job);
  }

  // Files that wandb keeps in a run's folder, for programs that read them there. `wandb sync` makes its own from the
  // log.
  Result<void> write_run_files(const RunStarted& run, const WandbRun& record) {
    std::string yaml;  // JSON is YAML
    for (const auto& [key, value] : record.config) yaml += fmt::format("{}:\n  value: {}\n", dump_json(key), value);
    RETURN_IF_ERROR(write_file_atomically(folder_ / "files/config.yaml", yaml));
    const json metadata = {{"os", "Linux"},
                           {"program", "oarlock-trainer"},
                           {"host", record.host},
                           {"startedAt", to_rfc3339_micro(record.start_time)},
                           {"cpu_count", usable_cpus()},
                           {"git", {{"commit", record.commit}}},
                           {"versions", run.versions}};
    return write_file_atomically(folder_ / "files/wandb-metadata.json", metadata.dump(2) + "\n");
  }

  void write_summary_file() {
    std::string text;
    std::map<std::string, std::string> values = written_summary_;
    for (const auto& [key, point] : newest_) values.try_emplace(key, point.value_json);
    for (const auto& [key, value] : values)
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", dump_json(key), value);
    // The run does not depend on this file.
    (void)write_file_atomically(folder_ / "files/wandb-summary.json", fmt::format("{{{}}}\n", text));
  }

  // ---- earlier attempts --------------------------------------------------------------------------------------------

  std::filesystem::path state_path() const { return state_folder_ / "wandb.json"; }

  void load_state() {
    run_id_.clear();
    first_start_ = wandb_seconds(start_time_);
    if (state_folder_.empty()) return;
    const Result<std::string> text = read_file(state_path(), kMaxStateBytes);
    if (!text) return;
    const json state = parse_untrusted_json(*text, kMaxStateBytes);
    if (!state.is_object()) return;
    // A run that is configured explicitly may be another one than the last.
    const std::string id = state.value("run_id", json()).is_string() ? state["run_id"].get<std::string>() : "";
    if (!is_wandb_id(id) || (!settings_.run_id.empty() && settings_.run_id != id)) return;
    run_id_ = id;
    if (const auto start = state.find("start_time"); start != state.end() && start->is_number())
      first_start_ = std::min(first_start_, start->get<double>());
    if (const auto row = state.find("last_row"); row != state.end() && row->is_number_integer())
      last_row_step_ = row->get<int64_t>();
    const auto points = state.find("points");
    if (points == state.end() || !points->is_object()) return;
    for (const auto& [key, point] : points->items()) {
      if (point.is_array() && point.size() == 2 && point[0].is_number_integer() && point[1].is_string())
        newest_[key] = {point[0].get<int64_t>(), point[1].get<std::string>()};
    }
  }

  // Without it, only points of folders that were deleted would be repeated.
  void save_state() {
    if (state_folder_.empty()) return;
    json points = json::object();
    for (const auto& [key, point] : newest_) points[key] = {point.step, point.value_json};
    const json state = {
        {"run_id", run_id_}, {"start_time", first_start_}, {"last_row", last_row_step_}, {"points", std::move(points)}};
    const Result<void> saved = make_writable_folder(state_folder_).and_then([&]() -> Result<void> {
      return write_file_atomically(state_path(), dump_json(state));
    });
    if (!saved) logger_.warn("W&B: cannot save the state of the run", {{"error", saved.error().message}});
  }

  // ---- the row that is not in the history yet ----------------------------------------------------------------------
  //
  // `wandb sync` gives a row the next step if its own step is not above that of the row before. So a row is written
  // when it is complete, which is when a later step follows, and is in a file until then.

  std::filesystem::path row_path() const { return state_folder_ / "wandb-row.json"; }

  // The file is replaced by a rename without fsync, which is atomic for a process that is killed; its line with size
  // and checksum finds what a node lost.
  void save_row() {
    if (state_folder_.empty() || !records_ || (row_.items.empty() && !is_row_saved_)) return;
    is_row_saved_ = !row_.items.empty();
    const json value = {{"run_id", run_id_},
                        {"last_row", last_row_step_},
                        {"step", row_.step},
                        {"time_us", to_microseconds(row_.time)},
                        {"items", row_.items}};
    const std::string text = dump_json(value);
    const std::string bytes = row_head(text) + text;
    const std::string temporary = row_path().string() + ".new";
    const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    int error = file.open() ? write_all(file.get(), bytes) : errno;
    if (error == 0 && ::rename(temporary.c_str(), row_path().c_str()) != 0) error = errno;
    if (error == 0) return;
    if (!std::exchange(is_row_reported_, true))
      logger_.warn("W&B: cannot save the points of the current step, which are lost if the process is killed",
                   {{"file", row_path().string()}, {"error", std::generic_category().message(error)}});
  }

  // Continues the row of the attempt before, unless the row is in the history.
  void load_row() {
    if (state_folder_.empty()) return;
    const Result<std::string> content = read_file(row_path(), kMaxStateBytes);
    if (!content || content->size() < kRowHeadSize) return;
    const std::string head = content->substr(0, kRowHeadSize);
    const size_t size = std::strtoull(head.c_str(), nullptr, 10);
    if (size > content->size() - kRowHeadSize) return;
    const std::string text = content->substr(kRowHeadSize, size);
    if (head != row_head(text)) return;
    const json value = parse_untrusted_json(text, kMaxStateBytes);
    if (text_at(value, "run_id") != run_id_) return;
    last_row_step_ = std::max(last_row_step_, integer_at<int64_t>(value, "last_row", kNoWandbStep));
    const auto step = integer_at<int64_t>(value, "step", kNoWandbStep);
    if (step <= last_row_step_) return;
    for (const json& item : elements(value, "items")) {
      if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_string()) continue;
      const std::string key = item[0], point = item[1];
      row_.items.emplace_back(key, point);
      newest_[key] = {step, point};
    }
    row_.step = step;
    row_.time = SystemTime(std::chrono::microseconds(integer_at<int64_t>(value, "time_us", 0)));
  }

  void read_earlier_attempts() {
    const std::string suffix = "-" + run_id_;
    newest_folder_ = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(settings_.dir / "wandb", error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(kWandbFolderPrefix) || !name.ends_with(suffix)) continue;
      newest_folder_ = std::max(newest_folder_, wandb_folder_time(name));
      const Result<MappedFile> file =
          MappedFile::open(entry.path() / fmt::format("run-{}.wandb", run_id_), MappedFile::Access::kSequential);
      if (!file) continue;
      const std::span<const uint8_t> bytes = file->bytes();
      WandbContents contents;
      read_wandb_contents({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, contents);
      if (contents.run_id != run_id_) continue;
      for (const auto& [key, point] : contents.newest) last_row_step_ = std::max(last_row_step_, point.step);
      if (contents.start_seconds > 0) first_start_ = std::min(first_start_, contents.start_seconds);
      for (auto& [key, point] : contents.newest) {
        const auto [known, is_new] = newest_.try_emplace(key, point);
        if (!is_new && point.step >= known->second.step) known->second = std::move(point);
      }
    }
  }

  Result<void> open_folder(SystemTime time) {
    const std::filesystem::path parent = settings_.dir / "wandb";
    RETURN_IF_ERROR(make_writable_folder(parent));
    for (int attempt = 0;; ++attempt) {
      // The folders are uploaded in the order of their names, and the clocks of two machines may differ.
      const std::time_t seconds = std::max(std::chrono::system_clock::to_time_t(time), newest_folder_ + 1) + attempt;
      folder_ = parent / fmt::format("{}{:%Y%m%d_%H%M%S}-{}", kWandbFolderPrefix, fmt::gmtime(seconds), run_id_);
      std::error_code error;
      if (std::filesystem::create_directory(folder_, error)) break;
      if (error || attempt == 1000)
        return fail(ExitCode::kCantCreate, fmt::format("{}: cannot create the folder: {}", folder_.string(),
                                                       error ? error.message() : "it exists"));
    }
    RETURN_IF_ERROR(make_writable_folder(folder_ / "files"));
    const std::filesystem::path path = folder_ / fmt::format("run-{}.wandb", run_id_);
    file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (!file_.open()) return fail_errno(errno, path.string() + ": open");
    return {};
  }

  // ---- points ------------------------------------------------------------------------------------------------------

  Result<void> add(const Event& event, const Scalars& scalars) {
    for (const auto& [name, value] : scalars.values) add_value(event, name, [&] { return wandb_json(value); });
    return {};
  }

  Result<void> add(const Event& event, const Histogram& histogram) {
    add_value(event, histogram.name, [&] { return wandb_histogram(histogram); });
    return {};
  }

  Result<void> add(const Event& event, const Text& text) {
    return add_media(event, text.name, "html", "html", wandb_html(text.text), {{"_type", "html-file"}});
  }

  Result<void> add(const Event& event, const Image& image) {
    return add_media(event, image.name, "images", "png", image.png,
                     {{"_type", "image-file"}, {"format", "png"}, {"width", image.width}, {"height", image.height}});
  }

  Result<void> add_media(const Event& event, const std::string& name, const char* folder, const char* extension,
                         const std::string& content, json value) {
    if (!records_ || !is_new(name, event.step)) return {};
    const std::string hash = hex_sha256(content);
    const std::string path = wandb_media_path(folder, name, event.step, hash, extension);
    const std::filesystem::path file = folder_ / "files" / path;
    RETURN_IF_ERROR(make_writable_folder(file.parent_path()));
    RETURN_IF_ERROR(write_file_atomically(file, content));
    value["path"] = path;
    value["sha256"] = hash;
    value["size"] = content.size();
    add_value(event, name, [&] { return dump_json(value); });
    append(records_->file(path, WandbFileType::kMedia));
    return {};
  }

  bool is_new(const std::string& key, int64_t step) const {
    const auto known = newest_.find(key);
    return known == newest_.end() || step > known->second.step;
  }

  template <typename Value>
  void add_value(const Event& event, const std::string& key, Value value) {
    if (!records_ || !is_new(key, event.step)) return;
    // The history cannot be rewound: a value of an earlier step, such as that of a pass with the best weights, is in
    // the summary only.
    if (event.step <= last_row_step_ || (!row_.items.empty() && event.step < row_.step)) {
      std::string late = value();
      summary_[key] = late;
      newest_[key] = {event.step, std::move(late)};
      return;
    }
    if (!row_.items.empty() && row_.step != event.step) end_row();
    row_.step = event.step;
    row_.time = event.time;
    std::string text = value();
    summary_[key] = text;
    newest_[key] = {event.step, text};
    row_.items.emplace_back(key, std::move(text));
  }

  // Writes the values of one step as a row of the history.
  void end_row() {
    if (row_.items.empty()) return;
    Row row = std::exchange(row_, {});
    const double time = wandb_seconds(row.time);
    const WandbItems own = {{"_step", fmt::format("{}", row.step)},
                            {"_timestamp", wandb_json(time)},
                            {"_runtime", wandb_json(std::max(0.0, time - first_start_))}};
    for (const auto& item : own) {
      row.items.push_back(item);
      summary_[item.first] = item.second;
    }
    append(records_->history(row.step, row.items));
    last_row_step_ = row.step;
  }

  void add_summary() {
    if (summary_.empty() || !records_) return;
    WandbItems items(summary_.begin(), summary_.end());
    for (auto& [key, value] : summary_) written_summary_[key] = value;
    summary_.clear();
    append(records_->summary(items));
  }

  void append(const std::string& record) { pending_ += log_.frame(record); }

  // One call of write(), so that a process that is killed leaves complete records. After a failure the file ends, as
  // its readers stop at a damaged record; the next attempt writes a new one.
  Result<void> flush() {
    const std::string bytes = std::exchange(pending_, {});
    if (bytes.empty()) return {};
    if (!file_.open()) return fail(ExitCode::kIoErr, fmt::format("{}: closed after an error", folder_.string()));
    if (const int error = write_all(file_.get(), bytes); error != 0) {
      file_.close();
      return fail_errno(error, fmt::format("{}: write", (folder_ / fmt::format("run-{}.wandb", run_id_)).string()));
    }
    return {};
  }

  WandbSettings settings_;
  const std::filesystem::path state_folder_;
  const Logger logger_;
  bool is_mode_reported_ = false;

  std::string run_id_;
  std::filesystem::path folder_;   // of this attempt
  std::time_t newest_folder_ = 0;  // start of the latest earlier attempt, by the name of its folder
  FileDescriptor file_;
  WandbLog log_;
  std::optional<WandbRecords> records_;  // none before RunStarted
  std::string pending_;
  SystemTime start_time_;   // of this attempt
  double first_start_ = 0;  // of the first attempt, in seconds since the epoch
  Row row_;
  int64_t last_row_step_ = kNoWandbStep;  // of the history, in this and earlier attempts
  bool is_row_saved_ = false;             // the file has a row
  bool is_row_reported_ = false;
  std::map<std::string, std::string> summary_;  // not written yet
  std::map<std::string, std::string> written_summary_;
  std::map<std::string, WandbPoint> newest_;  // of each key, in this and earlier attempts
};

}  // namespace

std::unique_ptr<Sink> make_wandb_sink(const WandbSettings& settings, const SinkContext& context) {
  return std::make_unique<WandbSink>(settings, context);
}

}  // namespace oarlock
