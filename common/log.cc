#include "common/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "common/text.h"

namespace oarlock {
namespace {

constexpr const char* kLevelNames[] = {"debug", "info", "warn", "error"};
constexpr const char* kUpperLevelNames[] = {"DEBUG", "INFO", "WARN", "ERROR"};

std::string quote(const std::string& text) {
  // JSON itself escapes the control characters of ASCII only.
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/!is_printable(text),
                                   nlohmann::json::error_handler_t::replace);
}

std::string render(const LogValue& value, LogFormat format) {
  if (const auto* given = std::get_if<std::string>(&value)) {
    const std::string text = abridged(*given);
    const bool plain = format == LogFormat::kText && !text.empty() && text.find_first_of(" \"=") == std::string::npos &&
                       is_printable(text);
    return plain ? text : quote(text);
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  const double number = std::get<double>(value);
  if (!std::isfinite(number))
    return format == LogFormat::kJson ? fmt::format("\"{}\"", number) : fmt::format("{}", number);
  return fmt::format("{:.6g}", number);
}

void append(std::string& line, const LogField& field, LogFormat format) {
  const std::string value = render(field.value, format);
  if (format == LogFormat::kJson) {
    fmt::format_to(std::back_inserter(line), ",{}:{}", quote(std::string(field.key)), value);
  } else {
    fmt::format_to(std::back_inserter(line), " {}={}", field.key, value);
  }
}

}  // namespace

Result<LogLevel> log_level_from(std::string_view name) {
  for (int i = 0; i < 4; ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return fail(ExitCode::kUsage, fmt::format("log level '{}' is unknown; it is one of debug, info, warn, error", name));
}

struct Logger::Sink {
  LogFormat format;
  LogLevel level;
  std::string prefix;
  std::shared_ptr<spdlog::logger> out;  // null: silent
};

Logger::Logger(LogFormat format, LogLevel level, std::string prefix) {
  auto out = std::make_shared<spdlog::logger>("oarlock", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  out->set_pattern("%v");
  out->flush_on(spdlog::level::trace);
  sink_ = std::make_shared<const Sink>(Sink{format, level, std::move(prefix), std::move(out)});
}

Logger::Logger(std::shared_ptr<const Sink> sink) : sink_(std::move(sink)) {}
Logger::~Logger() = default;

Logger Logger::silent() {
  return Logger(std::make_shared<const Sink>(Sink{LogFormat::kJson, LogLevel::kError, "", nullptr}));
}

Logger Logger::with(LogFields fields) const {
  Logger copy = *this;
  for (const LogField& field : fields) append(copy.fields_, field, sink_->format);
  return copy;
}

void Logger::write(LogLevel level, std::string_view message, LogFields fields) const {
  if (sink_->out == nullptr || level < sink_->level) return;
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto index = static_cast<size_t>(level);
  std::string line;
  if (sink_->format == LogFormat::kJson) {
    line = fmt::format("{{\"ts\":\"{:%Y-%m-%dT%H:%M:%S}.{:03}Z\",\"level\":\"{}\",\"msg\":{}",
                       fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), (now - seconds).count(),
                       kLevelNames[index], quote(abridged(message)));
  } else {
    line = fmt::format("{}{:%H:%M:%S}.{:03} {} {}", sink_->prefix.empty() ? "" : "[" + sink_->prefix + "] ",
                       fmt::localtime(std::chrono::system_clock::to_time_t(seconds)), (now - seconds).count(),
                       kUpperLevelNames[index], printable_lines(message));
  }
  line += fields_;
  for (const LogField& field : fields) append(line, field, sink_->format);
  if (sink_->format == LogFormat::kJson) line += '}';
  sink_->out->log(spdlog::level::info, line);
}

}  // namespace oarlock
