// Structured logging to standard error: one JSON object per line, or one readable line per message for terminals.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/error.h"
#include "common/log_field.h"

namespace oarlock {

enum class LogLevel { kDebug, kInfo, kWarn, kError };
enum class LogFormat { kJson, kText };

// Parses "debug", "info", "warn" or "error"; otherwise fails with kUsage.
Result<LogLevel> log_level_from(std::string_view name);

// A thread-safe logger; copies are cheap and share the sink. JSON lines have the keys ts, level and msg, followed by
// the fields of the logger and those of the call. Text lines have the form "[prefix] time LEVEL msg key=value".
class Logger {
 public:
  // Messages below `level` are discarded. Only the text format shows `prefix` ("RANK 0").
  Logger(LogFormat format, LogLevel level, std::string prefix = "");
  ~Logger();
  Logger(const Logger&) = default;
  Logger& operator=(const Logger&) = default;

  // Returns a logger that discards all messages, for tests.
  static Logger silent();

  // Returns a logger that adds these fields to every line.
  Logger with(LogFields fields) const;

  void debug(std::string_view message, LogFields fields = {}) const { write(LogLevel::kDebug, message, fields); }
  void info(std::string_view message, LogFields fields = {}) const { write(LogLevel::kInfo, message, fields); }
  void warn(std::string_view message, LogFields fields = {}) const { write(LogLevel::kWarn, message, fields); }
  void error(std::string_view message, LogFields fields = {}) const { write(LogLevel::kError, message, fields); }
  void write(LogLevel level, std::string_view message, LogFields fields) const;

 private:
  struct Sink;
  explicit Logger(std::shared_ptr<const Sink> sink);
  std::shared_ptr<const Sink> sink_;
  std::string fields_;  // of every line, rendered in the sink's format
};

}  // namespace oarlock
