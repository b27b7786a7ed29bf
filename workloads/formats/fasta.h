// FASTA files, plain or gzip. A record is a header line ('>' and a name) and the lines of one sequence.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "workloads/formats/gzip_file.h"

namespace oarlock {

struct FastaRecord {
  std::string_view header;    // without the '>'
  std::string_view sequence;  // letters, '*' (stop) and '-' (gap), unchanged; may be empty
  int64_t line = 0;           // line number of the header, from 1
};

// Reads a file record by record. Memory use is proportional to the longest record.
class FastaReader {
 public:
  // Characters of a line, of a sequence, and of the rest of a record; longer ones are not proteins.
  static constexpr size_t kMaxLength = 64 << 20;

  // Returns kNoInput if the file does not exist.
  static Result<FastaReader> open(const std::filesystem::path& path);

  // Returns the next record, which is valid until the next call, or nothing at the end of the file. Ignores spaces in
  // sequences, empty lines, comments (lines that begin with ';') and carriage returns. Returns kDataErr, naming the
  // line, if there is text before the first header, an invalid character, a record that is too long (kMaxLength), or a
  // gzip stream that is truncated or damaged.
  Result<std::optional<FastaRecord>> next();

  // Returns the number of bytes of the file on disk that were read so far.
  int64_t bytes_read() const { return file_.offset(); }

 private:
  FastaReader(std::filesystem::path path, GzipFile file) : path_(std::move(path)), file_(std::move(file)) {}

  // Returns the next line without its line ending, or nothing at the end of the file.
  Result<std::optional<std::string_view>> next_line();
  // Reads up to the next header, and appends the lines before it to sequence_.
  Result<void> read_until_header();
  Result<void> append_to_sequence(std::string_view line);
  tl::unexpected<Error> invalid(const std::string& reason) const;

  std::filesystem::path path_;
  GzipFile file_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0;  // buffer_[begin_, end_) is not processed yet
  size_t end_ = 0;
  int64_t line_ = 0;  // number of the line that was read last
  bool started_ = false;
  std::optional<std::string> next_header_;  // the header that ended the current record
  int64_t next_header_line_ = 0;
  std::string header_;
  std::string sequence_;
};

}  // namespace oarlock
