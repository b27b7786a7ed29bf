// Output of the commands that work on a cluster: formats, colors, tables, and texts for durations, times and progress.
// Apart from detect_style() and WaitingLine, everything is pure. The functions make texts from the cluster safe for a
// terminal, so that callers do not have to.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/error.h"

namespace oarlock::cli {

enum class OutputFormat { kTable, kWide, kJson, kYaml, kName };

// Returns nullopt if there is no format of this name.
std::optional<OutputFormat> parse_output_format(std::string_view name);

enum class Color { kNone, kGreen, kYellow, kRed, kBold, kFaint };

// How text is shown on standard output.
struct Style {
  bool colors = false;
  int width = 0;  // columns of the terminal; 0: standard output is not a terminal, and lines are not cut

  // Returns `text` between the escape sequences of the color, or `text` itself if there are no colors.
  std::string paint(Color color, std::string_view text) const;
};

// Colors are used on a terminal only, and not if NO_COLOR is set to a text that is not empty, or TERM is "dumb".
Style detect_style();

// ---- Tables --------------------------------------------------------------------------------------------------------

struct Cell {
  Cell(std::string content, Color shown_in = Color::kNone)  // NOLINT: implicit, so that a row can be a list of texts
      : text(std::move(content)), color(shown_in) {}
  Cell(const char* content) : text(content) {}  // NOLINT: implicit
  std::string text;
  Color color = Color::kNone;
};

// A table in the style of kubectl: columns are separated by three spaces.
class Table {
 public:
  explicit Table(std::vector<std::string> headers) : headers_(std::move(headers)) {}

  // A row may have fewer cells than there are headers. An empty cell is shown as "-".
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  size_t rows() const { return rows_.size(); }

  // Returns the lines, each after `indent`. Lines are cut to the width of the style.
  std::string to_text(const Style& style, std::string_view indent = "") const;

 private:
  std::vector<std::string> headers_;
  std::vector<std::vector<Cell>> rows_;
};

// Returns the number of characters of a UTF-8 text.
size_t display_width(std::string_view text);

// Returns at most `width` characters of a text; a longer text ends with "…". A width of 0 means no limit.
std::string fit(std::string_view text, size_t width);

// ---- Texts ---------------------------------------------------------------------------------------------------------

// "45s", "3m10s", "42m", "5h20m", "3d4h": at most two units, as kubectl shows ages. Negative durations are "0s".
std::string duration_text(std::chrono::seconds duration);
// The time since `then`; "" if it is absent.
std::string age_text(std::optional<SystemTime> then, SystemTime now);
// Four significant digits: "0.00123", "12.34", "1234".
std::string number_text(double value);
// "[#####-----]" of `width` characters between the brackets. `share` is clamped to 0 ... 1.
std::string progress_bar(double share, int width);
// Splits a duration such as "90", "90s", "5m", "1h30m" or "500ms" into milliseconds. nullopt: not a duration.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// ---- Documents -----------------------------------------------------------------------------------------------------

// Formats a JSON tree as JSON or YAML, such that no text in it can control a terminal. REQUIRES: kJson or kYaml.
std::string document_text(const nlohmann::json& value, OutputFormat format);

// ---- Long operations -----------------------------------------------------------------------------------------------

// A line on the terminal of standard error that shows that an operation still runs, and its progress. It appears one
// second after the construction, and the destructor erases it. It does nothing if standard error is not a terminal. The
// program should not write anything else to the terminal meanwhile.
class WaitingLine {
 public:
  // `text` returns the current content of the line. It is called on another thread, once a second.
  explicit WaitingLine(std::function<std::string()> text);

 private:
  std::jthread thread_;
};

}  // namespace oarlock::cli
