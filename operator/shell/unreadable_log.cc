#include "operator/shell/unreadable_log.h"

#include <string_view>
#include <utility>

#include "common/text.h"

namespace oarlock::control {
namespace {

constexpr size_t kMaxRemembered = 10'000;
constexpr size_t kMaxErrorText = 300;

UnreadableLog::Write write_to(const Logger& log) {
  return [log](const UnreadableLog::Line& line) {
    if (line.resource.empty()) {
      log.warn(line.message);
    } else {
      log.warn(line.message, {{"resource", line.resource},
                              {"namespace", line.namespace_name},
                              {"name", line.name},
                              {"error", line.error}});
    }
  };
}

}  // namespace

UnreadableLog::UnreadableLog(std::shared_ptr<const Clock> clock, const Logger& log)
    : UnreadableLog(std::move(clock), write_to(log)) {}

UnreadableLog::UnreadableLog(std::shared_ptr<const Clock> clock, Write write)
    : clock_(std::move(clock)), write_(std::move(write)) {}

int64_t UnreadableLog::next_minute() {
  const SteadyTime now = clock_->steady();
  if (minute_ != SteadyTime{} && now - minute_ < std::chrono::minutes(1)) return 0;
  minute_ = now;
  lines_ = 0;
  return std::exchange(others_, 0);
}

void UnreadableLog::write_others(int64_t others) const {
  if (others == 0) return;
  write_({.message = "ignored " + counted(others, "further unreadable object"),
          .resource = "",
          .namespace_name = "",
          .name = "",
          .error = ""});
}

void UnreadableLog::record(const std::string& resource, const kube::ObjectKey& key, const Error& error) {
  Line line{.message = "ignored an unreadable object",
            .resource = resource,
            .namespace_name = shortened(key.namespace_name),
            .name = shortened(key.name),
            .error = shortened(error.message, kMaxErrorText)};
  std::string identity;
  for (const std::string& part : {resource, key.namespace_name, key.name, line.error}) identity += part + '\0';
  const size_t hash = std::hash<std::string>()(identity);
  int64_t others = 0;
  bool is_due = false;
  {
    const std::lock_guard lock(mutex_);
    others = next_minute();
    const bool is_known = logged_.contains(hash);
    is_due = !is_known && lines_ < kLinesPerMinute;
    if (is_due) {
      ++lines_;
      if (logged_.size() >= kMaxRemembered) logged_.clear();
      logged_.insert(hash);
    } else if (!is_known) {
      ++others_;
    }
  }
  write_others(others);
  if (is_due) write_(line);
}

void UnreadableLog::flush() {
  int64_t others = 0;
  {
    const std::lock_guard lock(mutex_);
    others = next_minute();
  }
  write_others(others);
}

}  // namespace oarlock::control
