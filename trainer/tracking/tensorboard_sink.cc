#include "trainer/tracking/sink.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "trainer/tracking/event_file.h"
#include "trainer/tracking/record_file.h"

namespace oarlock {
namespace {

constexpr char kTensorboardName[] = "tensorboard";

double seconds_of(SystemTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

std::string own_host_name() {
  std::string name(256, '\0');
  if (gethostname(name.data(), name.size()) != 0) return "localhost";
  name.resize(name.find('\0') == std::string::npos ? name.size() : name.find('\0'));
  return name;
}

// The values of a configuration by their paths: {"optimizer.lr": 0.1}. Lists are JSON texts.
void flatten(const nlohmann::json& value, const std::string& path, std::map<std::string, nlohmann::json>& out) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) flatten(member, path.empty() ? key : path + "." + key, out);
  } else if (!value.is_null()) {
    out.emplace(path, value.is_array() ? nlohmann::json(dump_json(value)) : value);
  }
}

std::string as_code(const std::string& text) {
  std::string out = "    ";
  for (const char c : text) out += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return out;
}

class TensorboardSink final : public Sink {
 public:
  TensorboardSink(std::filesystem::path directory, const Logger& logger)
      : directory_(std::move(directory)), logger_(logger) {
    begin_session();
  }

  std::string_view name() const override { return kTensorboardName; }
  bool is_remote() const override { return false; }
  void set_guard(WriteGuard may_write) override { may_write_ = std::move(may_write); }

  Result<void> fence_earlier_process() override {
    const std::filesystem::path newest = newest_event_file(directory_);
    return newest.empty() ? Result<void>() : replace_by_copy(newest, kMaxFencedBytes);
  }

  Result<size_t> write(std::span<const Event> events) override {
    for (const Event& event : events) std::visit([&](const auto& content) { add(event, content); }, event.content);
    RETURN_IF_ERROR(file_->flush());
    return events.size();
  }

  Result<void> flush() override { return file_->flush(); }
  Result<void> sync() override { return file_->sync(); }

 private:
  static constexpr auto kEssential = RecordFile::Importance::kEssential;

  // The next records go to a new file.
  void begin_session() {
    file_ = std::make_unique<RecordFile>(
        RecordFormat{.new_path = [this] { return new_path(); },
                     .header = "",
                     .first_records = [this] { return std::vector{file_version_event(seconds_of(opened_))}; },
                     .frame = [](std::string_view record, size_t, int64_t) { return frame_record(record); },
                     .may_write = [this] { return may_write_(); }},
        logger_, kTensorboardName);
  }

  void add(const Event& event, const RunStarted& run) {
    static_cast<void>(file_->flush());  // of another session of this process
    begin_session();
    steps_ = highest_steps(directory_, run.restart_step);
    const double time = seconds_of(event.time);
    file_->add(session_start_event(time, run.restart_step), kEssential);
    std::map<std::string, nlohmann::json> hparams;
    flatten(run.config, "", hparams);
    for (const auto& [name, value] : run.derived) hparams[name] = value;
    for (const auto& [name, value] : run.versions) hparams["versions/" + name] = value;
    std::set<std::string> metrics = {run.loss};
    if (!run.monitor.empty()) metrics.insert(run.monitor);
    if (is_new("_hparams_/session_start_info", 0)) {
      file_->add(hparams_experiment_event(time, run.name, hparams, {metrics.begin(), metrics.end()}), kEssential);
      file_->add(hparams_start_event(time, run.name, hparams), kEssential);
    }
    if (is_new("config", 0)) file_->add(text_event(time, 0, {"config", as_code(dump_json(run.config, 2))}), kEssential);
  }

  void add(const Event& event, const Scalars& scalars) {
    std::vector<ScalarView> fresh;
    fresh.reserve(scalars.values.size());
    for (const auto& [name, value] : scalars.values) {
      if (is_new(name, event.step)) fresh.emplace_back(name, value);
    }
    if (!fresh.empty()) file_->add(scalar_views_event(seconds_of(event.time), event.step, fresh));
  }

  void add(const Event& event, const Histogram& histogram) {
    if (is_new(histogram.name, event.step)) file_->add(histogram_event(seconds_of(event.time), event.step, histogram));
  }

  void add(const Event& event, const Text& text) {
    if (is_new(text.name, event.step)) file_->add(text_event(seconds_of(event.time), event.step, text));
  }

  void add(const Event& event, const Image& image) {
    if (is_new(image.name, event.step)) file_->add(image_event(seconds_of(event.time), event.step, image));
  }

  void add(const Event& event, const RunFinished& finished) {
    const double time = seconds_of(event.time);
    if (!finished.time_table.empty() && is_new("time", event.step))
      file_->add(text_event(time, event.step, {"time", finished.time_table}), kEssential);
    if (!finished.reason.empty() && is_new("exit_reason", event.step))
      file_->add(text_event(time, event.step, {"exit_reason", finished.reason}), kEssential);
    if (!finished.resumes && is_new("_hparams_/session_end_info", 0))
      file_->add(hparams_end_event(time, finished.success ? SessionStatus::kSuccess : SessionStatus::kFailure),
                 kEssential);
  }

  // Whether this point is not in the files; remembers it.
  bool is_new(const std::string& name, int64_t step) {
    std::string replaced;
    const std::string_view tag = to_valid_utf8(name, replaced);  // as it is in the files
    const auto highest = steps_.find(tag);
    if (highest == steps_.end()) {
      steps_.emplace(tag, step);
      return true;
    }
    if (step <= highest->second) return false;
    highest->second = step;
    return true;
  }

  Result<std::filesystem::path> new_path() {
    RETURN_IF_ERROR(make_writable_directory(directory_));
    opened_ = std::chrono::system_clock::now();
    const int64_t number = next_file_number(directory_, std::chrono::system_clock::to_time_t(opened_));
    return directory_ / fmt::format("{}.{}.{}.oarlock", event_file_stem(number), own_host_name(), getpid());
  }

  const std::filesystem::path directory_;
  const Logger logger_;
  WriteGuard may_write_ = may_always_write;
  SystemTime opened_;  // of the last file
  std::unique_ptr<RecordFile> file_;
  StepsByTag steps_;  // the highest step of each tag in the files
};

}  // namespace

std::filesystem::path tensorboard_directory(const TensorboardConfig& config,
                                            const std::filesystem::path& tracking_directory) {
  if (!config.dir.empty()) return config.dir;
  return tracking_directory.empty() ? std::filesystem::path("tensorboard")
                                    : tracking_directory.parent_path() / "tensorboard";
}

std::unique_ptr<Sink> make_tensorboard_sink(const TensorboardConfig& config, const SinkContext& context) {
  return std::make_unique<TensorboardSink>(tensorboard_directory(config, context.directory), context.logger);
}

}  // namespace oarlock
