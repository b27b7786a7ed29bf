#include "trainer/tracking/sink.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <system_error>

#include "common/cpu.h"
#include "common/files.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/tracking/record_file.h"
#include "trainer/tracking/run_files.h"
#include "trainer/tracking/wandb_directory.h"
#include "trainer/tracking/wandb_file.h"
#include "trainer/tracking/wandb_history.h"
#include "trainer/tracking/wandb_run.h"

namespace oarlock {
namespace {

using nlohmann::json;

constexpr size_t kMaxStateBytes = size_t{64} << 20;  // of each file with the state of the run
constexpr int64_t kNoWandbStep = -1;
constexpr char kRuntimeKey[] = "_runtime";

double wandb_seconds(SystemTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// Returns the settings with the directory of the runs, by default the one of the checkpoints.
WandbSettings with_directory(WandbSettings settings, const std::filesystem::path& state_directory) {
  if (settings.dir.empty()) settings.dir = state_directory.empty() ? "." : state_directory.parent_path();
  return settings;
}

class WandbSink final : public Sink {
 public:
  WandbSink(WandbSettings settings, const SinkContext& context)
      : settings_(with_directory(std::move(settings), context.directory)),
        state_directory_(context.directory),
        logger_(context.logger),
        directory_(settings_.dir, logger_),
        media_(directory_, logger_),
        row_file_(row_path()) {}

  ~WandbSink() override { media_.drop_waiting(); }

  std::string_view name() const override { return "wandb"; }
  bool is_remote() const override { return false; }
  void set_guard(WriteGuard may_write) override {
    directory_.set_guard(may_write);
    media_.set_guard(may_write);
    guard_ = std::move(may_write);
  }

  Result<void> fence_earlier_process() override {
    load_state();
    const std::string& id = settings_.run_id.empty() ? run_id_ : settings_.run_id;
    if (id.empty()) return {};  // the state is saved before the first log is created
    return directory_.fence_earlier_process(id);
  }

  Result<size_t> write(std::span<const Event> events) override {
    for (const Event& event : events) std::visit([&](const auto& content) { add(event, content); }, event.content);
    RETURN_IF_ERROR(flush());
    return events.size();
  }

  Result<void> flush() override {
    if (!file_) return {};
    const Result<void> media = media_.flush();
    add_summary();
    RETURN_IF_ERROR(flush_log());
    save_row();
    if (is_finished_) {
      write_summary_file();
      save_state();
    }
    return media;
  }

  // The files of images and texts, and the state, are synced when they are written.
  Result<void> sync() override {
    if (!file_) return {};
    RETURN_IF_ERROR(file_->sync());
    RETURN_IF_ERROR(directory_.sync());
    return row_file_.sync();
  }

 private:
  static constexpr auto kEssential = RecordFile::Importance::kEssential;

  struct KnownPoint {
    WandbPoint point;
    bool is_in_summary = true;
  };

  bool may_write() const { return guard_(); }

  // ---- start and end of an attempt ---------------------------------------------------------------------------------

  void add(const Event& event, const RunStarted& run) {
    end_session();
    row_ = {};
    last_row_step_ = kNoWandbStep;
    newest_.clear();
    written_summary_.clear();
    summary_.clear();
    start_time_ = event.time;
    load_state();
    const RunPlace place{run.place, run.uid};
    if (settings_.run_id.empty() && is_copied(place_, place)) leave_run(run);
    if (!run.place.empty()) place_ = place;
    run_id_ = choose_wandb_id(settings_.run_id, run_id_, run.uid);
    directory_.begin(run_id_, start_time_, [this](WandbContents& contents) { add_earlier(contents); });
    load_row();
    runtime_ = std::max(runtime_, earlier_runtime());
    runtime_end_ = start_time_;
    save_state();

    run_ = describe_wandb_run(settings_, run_id_, run, event.time);
    versions_ = run.versions;

    records_.emplace(run_id_);
    file_ = std::make_unique<RecordFile>(
        RecordFormat{
            .new_path = [this]() -> Result<std::filesystem::path> {
              RETURN_IF_ERROR(directory_.make());
              return directory_.log();
            },
            .new_suffix = kWandbNewLogSuffix,
            .header = wandb_header(),
            .first_records = [this] { return first_records(); },
            .frame = [](std::string_view record, size_t offset,
                        int64_t number) { return frame_wandb_record(number_wandb_record(number, record), offset); },
            .may_write = [this] { return may_write(); }},
        logger_, std::string(name()));
    file_->add(records_->environment(run_, "oarlock-trainer", usable_cpus()), kEssential);
    WandbItems earlier;
    for (const auto& [key, known] : newest_) earlier.emplace_back(key, known.point.value_json);
    if (!earlier.empty()) file_->add(records_->summary(earlier), kEssential);
  }

  std::vector<std::string> first_records() const {
    const auto version = versions_.find("oarlock");
    return {records_->version("oarlock " + (version == versions_.end() ? "" : version->second)), records_->run(run_)};
  }

  // Ends the session of an earlier RunStarted of this process.
  void end_session() {
    static_cast<void>(flush());
    media_.drop_waiting();
    is_finished_ = false;
    file_.reset();
    records_.reset();
    has_run_files_ = false;
  }

  void add(const Event& event, const RunFinished& finished) {
    if (!records_) return;
    for (const auto& [key, value] : finished.summary) summary_[key] = wandb_json(value);
    if (!finished.reason.empty()) summary_["exit_reason"] = dump_json(finished.reason);
    if (!finished.time_table.empty()) add(event, Text{"time", finished.time_table});
    // The next attempt may have further values of this step, such as an evaluation, and continues the row.
    if (!finished.resumes || state_directory_.empty()) end_row();
    take_points();
    for (const auto& [key, value] : written_summary_)
      summary_.try_emplace(key, value);  // a record may have been dropped
    add_summary(kEssential);
    const auto seconds = static_cast<int64_t>(wandb_seconds(event.time) - wandb_seconds(start_time_));
    if (finished.resumes) file_->add(records_->preempting(), kEssential);
    file_->add(records_->exit(finished.success ? 0 : 1, seconds), kEssential);
    is_finished_ = true;
  }

  // Begins a new run, because this checkpoint directory is a copy: if both continued one run, the server would keep the
  // points of one of them only.
  void leave_run(const RunStarted& run) {
    const std::string id = std::exchange(run_id_, {});
    logger_.warn("W&B: the checkpoint directory is a copy, which gets a new run; the original has the other one",
                 {{"original", shortened(place_.directory)},
                  {"run_id", id},
                  {"remedy", "to continue the run of the original, set tracking.wandb.run_id"}});
    newest_.clear();
    last_row_step_ = kNoWandbStep;
    runtime_ = 0;
    run_id_ = choose_wandb_id(settings_.run_id, run_id_, run.uid);
    if (run_id_ == id) run_id_ = random_wandb_id();  // both are of the same job
  }

  void write_summary_file() {
    if (!directory_.exists() || !may_write()) return;
    std::string text;
    std::map<std::string, std::string> values = written_summary_;
    for (const auto& [key, known] : newest_) values.try_emplace(key, known.point.value_json);
    for (const auto& [key, value] : values)
      text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", dump_json(key), value);
    // The run does not depend on this file.
    (void)write_file_atomically(directory_.path() / "files/wandb-summary.json", fmt::format("{{{}}}\n", text));
  }

  // ---- earlier attempts --------------------------------------------------------------------------------------------

  std::filesystem::path state_path() const { return state_directory_ / "wandb.json"; }

  // Returns the content of a file of the previous attempt; nullopt if it does not exist or cannot be read.
  std::optional<std::string> read_state_file(const std::filesystem::path& path) const {
    Result<std::string> content = read_regular_file(path, kMaxStateBytes);
    if (content) return std::move(*content);
    warn_of_state(path, content.error());
    return std::nullopt;
  }

  void warn_of_state(const std::filesystem::path& path, const Error& failure) const {
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::symlink_status(path, error)))
      logger_.warn("W&B: the state of an earlier attempt is ignored", {{"error", failure.message}});
  }

  void load_state() {
    run_id_.clear();
    place_ = {};
    runtime_ = 0;
    if (state_directory_.empty()) return;
    const std::optional<std::string> text = read_state_file(state_path());
    if (!text) return;
    const json state = parse_untrusted_json(*text, kMaxStateBytes);
    if (!state.is_object()) return;
    // A run that is configured explicitly may be another one than the last.
    const std::string id = state.value("run_id", json()).is_string() ? state["run_id"].get<std::string>() : "";
    if (!is_wandb_id(id) || (!settings_.run_id.empty() && settings_.run_id != id)) return;
    run_id_ = id;
    place_ = {text_at(state, "place"), text_at(state, "uid")};
    runtime_ = runtime_of(member(state, "runtime"));
    if (const auto row = state.find("last_row"); row != state.end() && row->is_number_integer())
      last_row_step_ = row->get<int64_t>();
    const auto points = state.find("points");
    if (points == state.end() || !points->is_object()) return;
    for (const auto& [key, point] : points->items()) {
      if (point.is_array() && point.size() == 2 && point[0].is_number_integer() && point[1].is_string())
        newest_[key].point = {point[0].get<int64_t>(), point[1].get<std::string>()};
    }
  }

  // Without it, only points of directories that were deleted would be repeated, and a run whose id is random would not
  // continue.
  void save_state() {
    if (state_directory_.empty() || !may_write()) return;
    json points = json::object();
    for (const auto& [key, known] : newest_) points[key] = {known.point.step, known.point.value_json};
    const json state = {{"run_id", run_id_},   {"place", place_.directory},  {"uid", place_.uid},
                        {"runtime", runtime_}, {"last_row", last_row_step_}, {"points", std::move(points)}};
    const Result<void> saved = make_writable_directory(state_directory_).and_then([&]() -> Result<void> {
      return write_file_atomically(state_path(), dump_json(state));
    });
    is_state_saved_ = saved.has_value();
    if (!saved && !std::exchange(is_state_reported_, true))
      logger_.warn("W&B: cannot save the state of the run", {{"error", saved.error().message}});
  }

  // ---- the row that is not in the history yet ----------------------------------------------------------------------

  std::filesystem::path row_path() const { return state_directory_ / "wandb-row.json"; }

  void save_row() {
    if (state_directory_.empty() || !records_ || (row_.items.empty() && !is_row_saved_) || !may_write()) return;
    is_row_saved_ = !row_.items.empty();
    const Result<void> saved = row_file_.save(
        {.run_id = run_id_, .directory = directory_.path().filename(), .last_row_step = last_row_step_, .row = row_});
    if (!saved && !std::exchange(is_row_reported_, true))
      logger_.warn("W&B: cannot save the points of the current step, which are lost if the process is killed",
                   {{"error", saved.error().message}});
  }

  // Continues the row of the attempt before, unless the row is in the history.
  void load_row() {
    if (state_directory_.empty()) return;
    // After a failure of the node, the log may lack rows that were written after the last sync(): the row of that time
    // is continued then, and later ones are reported again. The log of a directory that was deleted was uploaded.
    const auto has_earlier_rows = [this](const WandbRowState& saved) {
      return saved.last_row_step <= last_row_step_ || !directory_.has_attempt(saved.directory);
    };
    Result<std::optional<WandbRowState>> state = WandbRowFile::load(row_path(), has_earlier_rows);
    if (!state) return warn_of_state(row_path(), state.error());
    if (!*state || (*state)->run_id != run_id_) return;
    last_row_step_ = std::max(last_row_step_, (*state)->last_row_step);
    if ((*state)->row.step <= last_row_step_) return;
    row_ = std::move((*state)->row);
    for (const auto& [key, value] : row_.items) newest_[key].point = {row_.step, value};
  }

  // Adds what the log of an earlier attempt contains.
  void add_earlier(WandbContents& contents) {
    for (const auto& [key, point] : contents.newest) last_row_step_ = std::max(last_row_step_, point.step);
    for (auto& [key, point] : contents.newest) {
      const auto [known, is_new] = newest_.try_emplace(key, KnownPoint{.point = point});
      if (!is_new && point.step >= known->second.point.step) known->second.point = std::move(point);
    }
  }

  static double runtime_of(const json& value) {
    const double seconds = value.is_number() ? value.get<double>() : 0;
    return std::isfinite(seconds) ? std::max(0.0, seconds) : 0;
  }

  // The runtime of the last row of the earlier attempts, to which wandb adds that of a resumed run: whatever the clocks
  // of the attempts are, it does not decrease.
  double earlier_runtime() const {
    const auto known = newest_.find(kRuntimeKey);
    return known == newest_.end() ? 0 : runtime_of(parse_untrusted_json(known->second.point.value_json));
  }

  // ---- points ------------------------------------------------------------------------------------------------------

  void add(const Event& event, const Scalars& scalars) {
    for (const auto& [name, value] : scalars.values) add_value(event, name, [&] { return wandb_json(value); });
  }

  void add(const Event& event, const Histogram& histogram) {
    add_value(event, histogram.name, [&] { return wandb_histogram(histogram); });
  }

  void add(const Event& event, const Text& text) {
    add_media(event, text.name, "html", "html", wandb_html(text.text), {{"_type", "html-file"}});
  }

  void add(const Event& event, const Image& image) {
    add_media(event, image.name, "images", "png", image.png,
              {{"_type", "image-file"}, {"format", "png"}, {"width", image.width}, {"height", image.height}});
  }

  // The value is in the row of its step, and the record of its file before that of the end of the run, also if the file
  // cannot be written yet.
  void add_media(const Event& event, const std::string& name, const char* directory, const char* extension,
                 std::string content, json value) {
    if (!records_ || !is_new(replace_invalid_utf8(name), event.step)) return;
    const std::string hash = hex_sha256(content);
    const std::string path = wandb_media_path(directory, name, event.step, hash, extension);
    value["path"] = path;
    value["sha256"] = hash;
    value["size"] = content.size();
    if (!media_.add(path, std::move(content))) return;
    add_value(event, name, [&] { return dump_json(value); });
    file_->add(records_->file(path, WandbFileType::kMedia));
  }

  bool is_new(const std::string& key, int64_t step) const {
    const auto known = newest_.find(key);
    return known == newest_.end() || step > known->second.point.step;
  }

  template <typename Value>
  void add_value(const Event& event, const std::string& name, Value value) {
    if (!records_) return;
    std::string replaced;
    const std::string_view key = to_valid_utf8(name, replaced);  // as it is in the files
    auto known = newest_.find(key);
    if (known == newest_.end()) {
      known = newest_.emplace(key, KnownPoint{}).first;
    } else if (event.step <= known->second.point.step) {
      return;
    }
    known->second.is_in_summary = false;
    known->second.point.step = event.step;
    known->second.point.value_json = value();
    // The history cannot be rewound: a value of an earlier step, such as that of a pass with the best weights, is in
    // the summary only.
    if (event.step <= last_row_step_ || (!row_.items.empty() && event.step < row_.step)) return;
    if (!row_.items.empty() && row_.step != event.step) end_row();
    row_.step = event.step;
    row_.time = event.time;
    row_.items.emplace_back(key, known->second.point.value_json);
  }

  // Writes the values of one step as a row of the history.
  void end_row() {
    if (row_.items.empty()) return;
    runtime_ += std::max(0.0, wandb_seconds(row_.time) - wandb_seconds(runtime_end_));
    runtime_end_ = row_.time;
    last_row_step_ = row_.step;
    last_row_ = {{"_step", fmt::format("{}", row_.step)},
                 {"_timestamp", wandb_json(wandb_seconds(row_.time))},
                 {kRuntimeKey, wandb_json(runtime_)}};
    row_.items.insert(row_.items.end(), last_row_.begin(), last_row_.end());
    file_->add(records_->history(row_.step, row_.items));
    row_.items.clear();
  }

  // Adds the points since the last call to the summary, unless it has other values of their names.
  void take_points() {
    for (auto& [key, known] : newest_) {
      if (!std::exchange(known.is_in_summary, true)) summary_.try_emplace(key, known.point.value_json);
    }
    for (auto& [key, value] : std::exchange(last_row_, {})) summary_[key] = std::move(value);
  }

  void add_summary(RecordFile::Importance importance = RecordFile::Importance::kNormal) {
    if (!records_) return;
    take_points();
    if (summary_.empty()) return;
    file_->add(records_->summary({summary_.begin(), summary_.end()}), importance);
    for (auto& [key, value] : std::exchange(summary_, {})) written_summary_[key] = value;
  }

  // After a failure, the points wait for the next call.
  Result<void> flush_log() {
    Result<void> flushed = file_->flush();
    if (!flushed && !file_->is_open()) directory_.leave_after_failure();
    RETURN_IF_ERROR(flushed);
    if (!file_->is_open()) {  // a later process of the run has the files
      directory_.remove_if_empty();
      return {};
    }
    if (!is_state_saved_) {
      save_row();
      save_state();
    }
    if (!std::exchange(has_run_files_, true)) {
      report_directory();
      if (const Result<void> written = write_wandb_run_files(directory_.path() / "files", run_, versions_); !written)
        logger_.warn("W&B: cannot describe the run in its directory", {{"error", written.error().message}});
    }
    return {};
  }

  void report_directory() {
    if (settings_.mode == WandbMode::kOnline && !std::exchange(is_mode_reported_, true)) {
      logger_.warn("W&B: the trainer does not upload runs itself; upload the directory with 'wandb sync'",
                   {{"directory", directory_.path().string()}});
    } else {
      logger_.info("W&B: writing a run directory for 'wandb sync'", {{"directory", directory_.path().string()}});
    }
  }

  const WandbSettings settings_;
  const std::filesystem::path state_directory_;
  const Logger logger_;
  WriteGuard guard_ = may_always_write;
  WandbDirectory directory_;  // of this attempt
  WandbMedia media_;
  bool is_mode_reported_ = false;

  std::string run_id_;
  RunPlace place_;  // of the attempts of this run
  WandbRun run_;
  std::map<std::string, std::string> versions_;
  std::optional<WandbRecords> records_;  // none before RunStarted
  std::unique_ptr<RecordFile> file_;     // the same
  bool has_run_files_ = false;           // in the directory, or it was tried
  SystemTime start_time_;                // of this attempt
  double runtime_ = 0;                   // seconds of all attempts up to the last row; never decreases
  SystemTime runtime_end_;               // the time of the last row, or the start of this attempt
  WandbRow row_;
  WandbRowFile row_file_;
  int64_t last_row_step_ = kNoWandbStep;  // of the history, in this and earlier attempts
  bool is_row_saved_ = false;             // the file has a row
  bool is_row_reported_ = false;
  bool is_state_saved_ = true;  // the state at the start of the attempt, or a later one
  bool is_state_reported_ = false;
  bool is_finished_ = false;                    // the end of the run was added
  WandbItems last_row_;                         // the step and the times of the last row, not in the summary yet
  std::map<std::string, std::string> summary_;  // values that are not points, not written yet
  std::map<std::string, std::string> written_summary_;
  std::map<std::string, KnownPoint, std::less<>> newest_;  // of each key, in this and earlier attempts
};

}  // namespace

std::unique_ptr<Sink> make_wandb_sink(const WandbSettings& settings, const SinkContext& context) {
  return std::make_unique<WandbSink>(settings, context);
}

}  // namespace oarlock
