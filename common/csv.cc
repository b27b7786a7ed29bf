#include "common/csv.h"

#include <algorithm>

#include "common/status_macros.h"

namespace oarlock {

std::string csv_field(std::string_view field) {
  if (field.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(field);
  std::string out = "\"";
  for (const char c : field) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

Result<std::string> CsvReader::take_quoted() {
  std::string field;
  for (;;) {
    const size_t end = rest_.find('"', 1);
    if (end == std::string_view::npos) return fail(ExitCode::kDataErr, "a quote is not closed");
    const std::string_view part = rest_.substr(1, end - 1);
    next_line_ += std::count(part.begin(), part.end(), '\n');
    field += part;
    rest_.remove_prefix(end + 1);
    if (!rest_.starts_with('"')) return field;
    field += '"';  // a doubled quote: the next part begins with it
  }
}

bool CsvReader::ends_line() const {
  return rest_.empty() || rest_.starts_with('\n') || rest_ == "\r" || rest_.starts_with("\r\n");
}

Result<bool> CsvReader::next(std::vector<std::string>& fields) {
  fields.clear();
  if (rest_.empty()) return false;
  line_ = next_line_;
  for (bool ends = ends_line(); !ends; ends = ends_line()) {
    std::string field;
    if (rest_.front() == '"') {
      ASSIGN_OR_RETURN(field, take_quoted());
    }
    const size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
    std::string_view bare = rest_.substr(0, end);
    const bool has_next = rest_.substr(end).starts_with(',');
    if (!has_next && bare.ends_with('\r')) bare.remove_suffix(1);
    field += bare;
    if (fields.size() < max_fields_) fields.push_back(std::move(field));
    rest_.remove_prefix(has_next ? end + 1 : end);
  }
  if (!rest_.empty()) rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size() - 1) + 1);
  ++next_line_;
  return true;
}

}  // namespace oarlock
