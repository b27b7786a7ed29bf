// Tables of comma-separated values (RFC 4180).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"

namespace oarlock {

// Returns the field as a CSV file contains it: in quotes, with its own quotes doubled, if it contains a comma, a quote
// or a line break; otherwise unchanged.
std::string csv_field(std::string_view field);

// Reads a table record by record. A field in quotes may contain commas, line breaks and doubled quotes.
class CsvReader {
 public:
  // `text` must outlive the reader. Fields after the first `max_fields` of a record are skipped.
  CsvReader(std::string_view text, size_t max_fields) : rest_(text), max_fields_(max_fields) {}

  // Replaces `fields` by those of the next record; an empty line has none, and a comma at the end of a line is not
  // followed by an empty field. Returns false at the end of the table. Returns kDataErr, without a place, if a quote is
  // not closed.
  Result<bool> next(std::vector<std::string>& fields);

  // Returns the line at which the last record begins, from 1.
  int64_t line() const { return line_; }

 private:
  // Removes a field that begins with a quote, and returns its value.
  Result<std::string> take_quoted();
  bool ends_line() const;

  std::string_view rest_;
  size_t max_fields_;
  int64_t line_ = 0;
  int64_t next_line_ = 1;
};

}  // namespace oarlock
