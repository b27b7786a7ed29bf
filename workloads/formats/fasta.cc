#include "workloads/formats/fasta.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "common/status_macros.h"

namespace oarlock {
namespace {

constexpr size_t kReadBytes = 1 << 20;

enum CharacterClass : uint8_t { kInvalid = 0, kSpace = 1, kResidue = 2 };

constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> classes{};
  for (int c = 'A'; c <= 'Z'; ++c) classes[static_cast<size_t>(c)] = kResidue;
  for (int c = 'a'; c <= 'z'; ++c) classes[static_cast<size_t>(c)] = kResidue;
  for (const char c : {'*', '-'}) classes[static_cast<uint8_t>(c)] = kResidue;
  for (const char c : {' ', '\t'}) classes[static_cast<uint8_t>(c)] = kSpace;
  return classes;
}

constexpr std::array<uint8_t, 256> kClassOf = make_classes();

CharacterClass class_of(char c) { return static_cast<CharacterClass>(kClassOf[static_cast<uint8_t>(c)]); }

std::string shown(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return byte >= 0x20 && byte < 0x7f ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02x}", byte);
}

// Ctrl-A separates the titles of identical sequences, as in NCBI's nr.
bool is_text(char c) { return static_cast<uint8_t>(c) >= 0x20 || c == '\t' || c == '\x01'; }

}  // namespace

Result<FastaReader> FastaReader::open(const std::filesystem::path& path) {
  return GzipFile::open(path).map([&](GzipFile file) { return FastaReader(path, std::move(file)); });
}

tl::unexpected<Error> FastaReader::invalid(const std::string& reason) const {
  return fail(ExitCode::kDataErr, fmt::format("{}:{}: {}", path_.string(), line_, reason));
}

Result<std::optional<std::string_view>> FastaReader::next_line() {
  size_t searched = 0;  // bytes of the line without a line ending
  for (;;) {
    const auto* from = buffer_.data() + begin_;
    const size_t have = end_ - begin_;
    const void* newline = have > searched ? std::memchr(from + searched, '\n', have - searched) : nullptr;
    size_t length = newline ? static_cast<size_t>(static_cast<const uint8_t*>(newline) - from) : have;
    if (!newline) {
      searched = have;
      // Moves the unprocessed bytes to the front of the buffer, and enlarges the buffer for a long line.
      if (begin_ > 0) std::memmove(buffer_.data(), from, have);
      begin_ = 0;
      end_ = have;
      if (have >= kMaxLength) {
        ++line_;
        return invalid(fmt::format("a line has more than {} characters; this is not a FASTA file", kMaxLength));
      }
      if (buffer_.size() < have + kReadBytes) buffer_.resize(have + kReadBytes);
      Result<size_t> got = file_.read(std::span(buffer_).subspan(have, kReadBytes));
      if (!got) return fail(got.error().code, fmt::format("{} (after line {})", got.error().message, line_));
      end_ += *got;
      if (*got > 0) continue;
      if (have == 0) return std::nullopt;
    }
    ++line_;
    const char* text = reinterpret_cast<const char*>(buffer_.data()) + begin_;
    begin_ += newline ? length + 1 : length;
    if (length > 0 && text[length - 1] == '\r') --length;
    return std::string_view(text, length);
  }
}

Result<void> FastaReader::append_to_sequence(std::string_view line) {
  const auto found = std::find_if(line.begin(), line.end(), [](char c) { return class_of(c) == kInvalid; });
  if (found != line.end()) {
    return invalid(fmt::format("{} at column {} of a sequence, which may contain only letters, '*' and '-'",
                               shown(*found), found - line.begin() + 1));
  }
  if (sequence_.size() + line.size() > kMaxLength) {
    return invalid(fmt::format("a sequence has more than {} characters; this is not a file of proteins", kMaxLength));
  }
  std::copy_if(line.begin(), line.end(), std::back_inserter(sequence_), [](char c) { return class_of(c) == kResidue; });
  return {};
}

Result<void> FastaReader::read_until_header() {
  next_header_.reset();
  size_t skipped = 0;  // characters that are no part of the sequence
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<std::string_view> line, next_line());
    if (!line) return {};
    const std::string_view text = *line;
    if (text.starts_with('>')) {
      const auto binary = std::find_if_not(text.begin(), text.end(), is_text);
      if (binary != text.end()) return invalid(fmt::format("{} in a header; this is not a FASTA file", shown(*binary)));
      next_header_ = text.substr(1);
      next_header_line_ = line_;
      return {};
    }
    const size_t before = sequence_.size();
    const bool is_comment = text.empty() || text.front() == ';';
    if (!is_comment && !started_) {
      return invalid(
          fmt::format("expected a header line with '>', found {}; this is not a FASTA file", shown(text.front())));
    }
    if (!is_comment) RETURN_IF_ERROR(append_to_sequence(text));
    skipped += text.size() + 1 - (sequence_.size() - before);
    if (skipped > kMaxLength) {
      return invalid(fmt::format(
          "more than {} characters of spaces, empty lines and comments in one record; this is not a FASTA file",
          kMaxLength));
    }
  }
}

Result<std::optional<FastaRecord>> FastaReader::next() {
  if (!started_) {
    RETURN_IF_ERROR(read_until_header());
    started_ = true;
  }
  if (!next_header_) return std::nullopt;
  header_ = std::move(*next_header_);
  const int64_t line = next_header_line_;
  sequence_.clear();
  RETURN_IF_ERROR(read_until_header());
  return FastaRecord{.header = header_, .sequence = sequence_, .line = line};
}

}  // namespace oarlock
