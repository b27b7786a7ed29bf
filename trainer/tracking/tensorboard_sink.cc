#include "trainer/tracking/tensorboard_sink.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/tracking/event_file.h"

namespace oarlock {
namespace {

constexpr char kFilePrefix[] = "events.out.tfevents.";

double seconds_of(SystemTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

// TensorBoard reads the files of a folder in the order of their names, which begin with a time.
int64_t newest_file_time(const std::filesystem::path& folder) {
  int64_t newest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kFilePrefix))
      newest = std::max<int64_t>(newest, std::strtoll(name.c_str() + sizeof kFilePrefix - 1, nullptr, 10));
  }
  return newest;
}

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
    out.emplace(path, value.is_array() ? nlohmann::json(value.dump()) : value);
  }
}

std::string as_code(const std::string& text) {
  std::string out = "    ";
  for (const char c : text) out += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return out;
}

class TensorboardSink final : public Sink {
 public:
  explicit TensorboardSink(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::string_view name() const override { return "tensorboard"; }
  bool is_remote() const override { return false; }

  Result<size_t> write(std::span<const Event> events) override {
    for (const Event& event : events) std::visit([&](const auto& content) { add(event, content); }, event.content);
    RETURN_IF_ERROR(append());
    return events.size();
  }

 private:
  void add(const Event& event, const RunStarted& run) {
    steps_ = highest_steps(folder_, run.restart_step);
    const double time = seconds_of(event.time);
    if (file_.open()) file_.close();  // a new session in the same process
    record(session_start_event(time, run.restart_step));
    std::map<std::string, nlohmann::json> hparams;
    flatten(run.config, "", hparams);
    for (const auto& [name, value] : run.derived) hparams[name] = value;
    for (const auto& [name, value] : run.versions) hparams["versions/" + name] = value;
    std::set<std::string> metrics = {"loss"};
    if (!run.monitor.empty()) metrics.insert(run.monitor);
    if (is_new("_hparams_/session_start_info", 0)) {
      record(hparams_experiment_event(time, run.name, hparams, {metrics.begin(), metrics.end()}));
      record(hparams_start_event(time, run.name, hparams));
    }
    if (is_new("config", 0)) record(text_event(time, 0, {"config", as_code(run.config.dump(2))}));
  }

  void add(const Event& event, const Scalars& scalars) {
    Scalars fresh;
    for (const auto& [name, value] : scalars.values) {
      if (is_new(name, event.step)) fresh.values.emplace_back(name, value);
    }
    if (!fresh.values.empty()) record(scalars_event(seconds_of(event.time), event.step, fresh));
  }

  void add(const Event& event, const Histogram& histogram) {
    if (is_new(histogram.name, event.step)) record(histogram_event(seconds_of(event.time), event.step, histogram));
  }

  void add(const Event& event, const Text& text) {
    if (is_new(text.name, event.step)) record(text_event(seconds_of(event.time), event.step, text));
  }

  void add(const Event& event, const Image& image) {
    if (is_new(image.name, event.step)) record(image_event(seconds_of(event.time), event.step, image));
  }

  void add(const Event& event, const RunFinished& finished) {
    const double time = seconds_of(event.time);
    if (!finished.time_table.empty() && is_new("time", event.step))
      record(text_event(time, event.step, {"time", finished.time_table}));
    if (!finished.reason.empty() && is_new("exit_reason", event.step))
      record(text_event(time, event.step, {"exit_reason", finished.reason}));
    if (!finished.resumes && is_new("_hparams_/session_end_info", 0))
      record(hparams_end_event(time, finished.success ? SessionStatus::kSuccess : SessionStatus::kFailure));
  }

  // Whether this point is not in the files; remembers it.
  bool is_new(const std::string& tag, int64_t step) {
    const auto [highest, is_first] = steps_.emplace(tag, step);
    if (is_first) return true;
    if (step <= highest->second) return false;
    highest->second = step;
    return true;
  }

  void record(const std::string& event) { pending_ += frame_record(event); }

  // Appends the pending records with one call, so that a process that is killed leaves whole records.
  Result<void> append() {
    if (pending_.empty()) return {};
    std::string bytes = std::exchange(pending_, {});
    if (!file_.open()) RETURN_IF_ERROR(open_file(bytes));
    if (const int error = write_all(file_.get(), bytes); error != 0) {
      remove_partial_record();
      return fail_errno(error, fmt::format("{}: write", path_.string()));
    }
    size_ += bytes.size();
    return {};
  }

  // After a failure the file may end with a part of a record, where readers stop. If it cannot be removed, the next
  // records go to a new file. A full disk must not leave a new file for each failure.
  void remove_partial_record() {
    if (size_ > 0 && ::ftruncate(file_.get(), static_cast<off_t>(size_)) == 0) return;
    if (size_ == 0) ::unlink(path_.c_str());
    file_.close();
  }

  Result<void> open_file(std::string& bytes) {
    RETURN_IF_ERROR(make_writable_folder(folder_));
    const SystemTime now = std::chrono::system_clock::now();
    const int64_t time = std::max<int64_t>(std::chrono::system_clock::to_time_t(now), newest_file_time(folder_) + 1);
    path_ = folder_ / fmt::format("{}{}.{}.{}.oarlock", kFilePrefix, time, own_host_name(), getpid());
    file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (!file_.open()) return fail_errno(errno, fmt::format("{}: open", path_.string()));
    size_ = 0;
    bytes.insert(0, frame_record(file_version_event(seconds_of(now))));
    return {};
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
  FileDescriptor file_;
  size_t size_ = 0;  // of the file: complete records
  std::string pending_;
  std::map<std::string, int64_t> steps_;  // the highest step of each tag in the files
};

}  // namespace

std::filesystem::path tensorboard_folder(const TensorboardConfig& config,
                                         const std::filesystem::path& tracking_folder) {
  if (!config.dir.empty()) return config.dir;
  return tracking_folder.empty() ? std::filesystem::path("tensorboard") : tracking_folder.parent_path() / "tensorboard";
}

std::unique_ptr<Sink> make_tensorboard_sink(const TensorboardConfig& config, const SinkContext& context) {
  return std::make_unique<TensorboardSink>(tensorboard_folder(config, context.folder));
}

}  // namespace oarlock
