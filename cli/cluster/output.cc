#include "cli/cluster/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cli/launch/process.h"
#include "common/terminal.h"
#include "common/text.h"
#include "yaml/writer.h"

namespace oarlock::cli {
namespace {

constexpr std::pair<std::string_view, OutputFormat> kFormats[] = {{"table", OutputFormat::kTable},
                                                                  {"wide", OutputFormat::kWide},
                                                                  {"json", OutputFormat::kJson},
                                                                  {"yaml", OutputFormat::kYaml},
                                                                  {"name", OutputFormat::kName}};

std::string_view escape_sequence(Color color) {
  switch (color) {
    case Color::kGreen:
      return "\x1b[32m";
    case Color::kYellow:
      return "\x1b[33m";
    case Color::kRed:
      return "\x1b[31m";
    case Color::kBold:
      return "\x1b[1m";
    case Color::kFaint:
      return "\x1b[2m";
    case Color::kNone:
      break;
  }
  return "";
}

struct DurationUnit {
  std::string_view suffix;
  int64_t milliseconds;
};
constexpr DurationUnit kDurationUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};

const DurationUnit* find_unit(std::string_view suffix) {
  const auto* unit = std::find_if(std::begin(kDurationUnits), std::end(kDurationUnits),
                                  [&](const auto& one) { return one.suffix == suffix; });
  return unit == std::end(kDurationUnits) ? nullptr : unit;
}

constexpr auto kInterval = std::chrono::seconds(1);

void show(const std::function<std::string()>& text, int columns, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  bool is_shown = false;
  while (!stopped.wait_for(lock, stop, kInterval, [&] { return stop.stop_requested(); })) {
    const std::string line = cut_to_width(printable(text()), static_cast<size_t>(columns - 1));
    std::fputs(("\r" + line + "\x1b[K").c_str(), stderr);
    is_shown = true;
  }
  if (is_shown) std::fputs("\r\x1b[K", stderr);
}

}  // namespace

std::optional<OutputFormat> parse_output_format(std::string_view name) {
  for (const auto& [known, format] : kFormats) {
    if (known == name) return format;
  }
  return std::nullopt;
}

std::string Style::paint(Color color, std::string_view text) const {
  if (!colors || color == Color::kNone || text.empty()) return std::string(text);
  return fmt::format("{}{}\x1b[0m", escape_sequence(color), text);
}

Style detect_style() {
  if (::isatty(STDOUT_FILENO) != 1) return {};
  Style style;
  style.colors = launch::environment_variable("NO_COLOR").empty() && launch::environment_variable("TERM") != "dumb";
  winsize size{};
  style.width = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  return style;
}

// ---- Tables --------------------------------------------------------------------------------------------------------

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string fit(std::string_view text, size_t width) {
  if (width == 0 || display_width(text) <= width) return std::string(text);
  size_t end = 0;
  for (size_t count = 1; count < width && end < text.size(); ++count)
    end += std::max<size_t>(first_utf8_character(text.substr(end)).length, 1);
  return std::string(text.substr(0, end)) + "…";
}

std::string Table::to_text(const Style& style, std::string_view indent) const {
  constexpr size_t kGap = 3;
  std::vector<std::vector<Cell>> lines;
  lines.emplace_back(headers_.begin(), headers_.end());
  for (const std::vector<Cell>& row : rows_) {
    std::vector<Cell>& line = lines.emplace_back();
    for (size_t i = 0; i < headers_.size(); ++i) {
      const std::string text = i < row.size() ? printable(row[i].text) : "";
      line.emplace_back(text.empty() ? "-" : text, i < row.size() ? row[i].color : Color::kNone);
    }
  }
  std::vector<size_t> widths(headers_.size(), 0);
  for (const std::vector<Cell>& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], display_width(line[i].text));
  }
  std::string out;
  for (const std::vector<Cell>& line : lines) {
    out += indent;
    size_t left =
        style.width == 0 ? SIZE_MAX : static_cast<size_t>(style.width) - std::min<size_t>(indent.size(), style.width);
    for (size_t i = 0; i < line.size() && left > 0; ++i) {
      const std::string shown = left == SIZE_MAX ? line[i].text : fit(line[i].text, left);
      out += style.paint(line[i].color, shown);
      if (left != SIZE_MAX) left -= std::min(left, widths[i] + kGap);
      if (i + 1 < line.size() && left > 0) out.append(widths[i] - display_width(line[i].text) + kGap, ' ');
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    out += '\n';
  }
  return out;
}

// ---- Texts ---------------------------------------------------------------------------------------------------------

std::string duration_text(std::chrono::seconds duration) {
  const int64_t all = std::max<int64_t>(duration.count(), 0);
  const int64_t days = all / 86400;
  const int64_t hours = all / 3600 % 24;
  const int64_t minutes = all / 60 % 60;
  const int64_t seconds = all % 60;
  if (days >= 10) return fmt::format("{}d", days);
  if (days > 0) return hours > 0 ? fmt::format("{}d{}h", days, hours) : fmt::format("{}d", days);
  if (hours > 0) return minutes > 0 ? fmt::format("{}h{}m", hours, minutes) : fmt::format("{}h", hours);
  if (minutes >= 10) return fmt::format("{}m", minutes);
  if (minutes > 0) return seconds > 0 ? fmt::format("{}m{}s", minutes, seconds) : fmt::format("{}m", minutes);
  return fmt::format("{}s", seconds);
}

std::string age_text(std::optional<SystemTime> then, SystemTime now) {
  if (!then) return "";
  return duration_text(std::chrono::duration_cast<std::chrono::seconds>(now - *then));
}

std::string number_text(double value) {
  if (std::isfinite(value) && std::abs(value) >= 1000 && std::abs(value) < 1e9) return fmt::format("{:.0f}", value);
  return fmt::format("{:.4g}", value);
}

std::string progress_bar(double share, int width) {
  const double clamped = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
  const int full = static_cast<int>(clamped * width);
  return fmt::format("[{}{}]", std::string(static_cast<size_t>(full), '#'),
                     std::string(static_cast<size_t>(width - full), '-'));
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  constexpr int64_t kMaxMilliseconds = int64_t{1000} * 86400 * 365 * 1000;
  if (text.empty()) return std::nullopt;
  int64_t total = 0;
  while (!text.empty()) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 0) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    const std::string_view suffix = text.substr(0, std::min(text.find_first_of("0123456789"), text.size()));
    text.remove_prefix(suffix.size());
    const DurationUnit* unit = find_unit(suffix.empty() ? "s" : suffix);
    if (unit == nullptr || number > kMaxMilliseconds / unit->milliseconds) return std::nullopt;
    total += number * unit->milliseconds;
    if (total > kMaxMilliseconds) return std::nullopt;
  }
  return std::chrono::milliseconds(total);
}

// ---- Documents -----------------------------------------------------------------------------------------------------

std::string document_text(const nlohmann::json& value, OutputFormat format) {
  if (format == OutputFormat::kYaml) return yaml::to_yaml(value);
  const bool is_safe = is_printable(value.dump());
  return value.dump(2, ' ', /*ensure_ascii=*/!is_safe) + "\n";
}

WaitingLine::WaitingLine(std::function<std::string()> text) {
  const int columns = terminal_columns(STDERR_FILENO);
  if (columns <= 0) return;
  thread_ = std::jthread([text = std::move(text), columns](const std::stop_token& stop) { show(text, columns, stop); });
}

}  // namespace oarlock::cli
