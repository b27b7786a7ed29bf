// FASTA: records of a header line, '>' and a name, and of lines that make up one sequence. Plain or gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "trainer/data/gz_file.h"

namespace oarlock {

struct FastaRecord {
  std::string_view header;    // behind the '>'
  std::string_view sequence;  // letters, '*' (stop) and '-' (gap) as they stand there; may be empty
  int64_t line = 0;           // of the header, from 1
};

// One record after the other, in memory as large as the longest.
class FastaReader {
 public:
  static constexpr size_t kLongest = 64 << 20;  // characters of a record; more is no protein and no FASTA

  // kNoInput: not there.
  static Result<FastaReader> open(const std::filesystem::path& path);

  // The next record, valid until the next call; nothing at the end. Blanks inside of a sequence, empty lines, comments
  // (lines that begin with ';') and CRLF are let be. kDataErr, naming the line: text before the first header, a
  // character that no sequence holds, a record without end; a gzip stream that is truncated or damaged.
  Result<std::optional<FastaRecord>> next();

  // Of the file as it lies on the disk.
  int64_t bytes_read() const { return file_.offset(); }

 private:
  FastaReader(std::filesystem::path path, GzFile file) : path_(std::move(path)), file_(std::move(file)) {}

  // The next line without its end; nothing at the end of the file.
  Result<std::optional<std::string_view>> next_line();
  // Goes on to the next header, and fills sequence_ with what stands before it.
  Result<void> read_until_header();
  Result<void> take(std::string_view line);
  tl::unexpected<Error> bad(const std::string& what) const;

  std::filesystem::path path_;
  GzFile file_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0;  // of what is not read yet
  size_t end_ = 0;
  int64_t line_ = 0;  // the last one that was read
  bool started_ = false;
  std::optional<std::string> next_header_;  // where the last call stopped
  int64_t next_header_line_ = 0;
  std::string header_;
  std::string sequence_;
};

}  // namespace oarlock
