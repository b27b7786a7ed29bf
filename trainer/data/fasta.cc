#include "trainer/data/fasta.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace oarlock {
namespace {

constexpr size_t kBuffer = 1 << 20;

enum CharacterClass : uint8_t { kWrong = 0, kBlank = 1, kPartOfSequence = 2 };

constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> classes{};
  for (int c = 'A'; c <= 'Z'; ++c) classes[static_cast<size_t>(c)] = kPartOfSequence;
  for (int c = 'a'; c <= 'z'; ++c) classes[static_cast<size_t>(c)] = kPartOfSequence;
  for (const char c : {'*', '-'}) classes[static_cast<uint8_t>(c)] = kPartOfSequence;
  for (const char c : {' ', '\t'}) classes[static_cast<uint8_t>(c)] = kBlank;
  return classes;
}

constexpr std::array<uint8_t, 256> kClassOf = make_classes();

CharacterClass class_of(char c) { return static_cast<CharacterClass>(kClassOf[static_cast<uint8_t>(c)]); }

std::string shown(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return byte >= 0x20 && byte < 0x7f ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02x}", byte);
}

bool is_text(char c) { return static_cast<uint8_t>(c) >= 0x20 || c == '\t'; }

}  // namespace

Result<FastaReader> FastaReader::open(const std::filesystem::path& path) {
  Result<GzFile> file = GzFile::open(path);
  if (!file) return tl::make_unexpected(file.error());
  return FastaReader(path, std::move(*file));
}

tl::unexpected<Error> FastaReader::bad(const std::string& what) const {
  return fail(ExitCode::kDataErr, fmt::format("{}:{}: {}", path_.string(), line_, what));
}

Result<std::optional<std::string_view>> FastaReader::next_line() {
  size_t searched = 0;  // of the line, for its end
  for (;;) {
    const auto* from = buffer_.data() + begin_;
    const size_t have = end_ - begin_;
    const void* newline = have > searched ? std::memchr(from + searched, '\n', have - searched) : nullptr;
    size_t length = newline ? static_cast<size_t>(static_cast<const uint8_t*>(newline) - from) : have;
    if (!newline) {
      searched = have;
      // What is left of the buffer moves to its front; a line that is longer than the buffer makes it larger.
      if (begin_ > 0) std::memmove(buffer_.data(), from, have);
      begin_ = 0;
      end_ = have;
      if (have >= kLongest) {
        ++line_;
        return bad(fmt::format("a line of more than {} characters; this is no FASTA file", kLongest));
      }
      if (buffer_.size() < have + kBuffer) buffer_.resize(have + kBuffer);
      Result<size_t> got = file_.read(std::span(buffer_).subspan(have, kBuffer));
      if (!got)
        return fail(got.error().code, fmt::format("{} (it was read up to line {})", got.error().message, line_));
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

Result<void> FastaReader::take(std::string_view line) {
  const auto wrong = std::find_if(line.begin(), line.end(), [](char c) { return class_of(c) == kWrong; });
  if (wrong != line.end()) {
    return bad(fmt::format("{} at column {} of a sequence, which holds letters, '*' and '-'", shown(*wrong),
                           wrong - line.begin() + 1));
  }
  if (sequence_.size() + line.size() > kLongest) {
    return bad(fmt::format("a sequence of more than {} characters; this is no file of proteins", kLongest));
  }
  std::copy_if(line.begin(), line.end(), std::back_inserter(sequence_),
               [](char c) { return class_of(c) == kPartOfSequence; });
  return {};
}

Result<void> FastaReader::read_until_header() {
  next_header_.reset();
  for (;;) {
    Result<std::optional<std::string_view>> line = next_line();
    if (!line) return tl::make_unexpected(line.error());
    if (!line->has_value()) return {};
    const std::string_view text = **line;
    if (text.empty() || text.front() == ';') continue;
    if (text.front() == '>') {
      const auto binary = std::find_if_not(text.begin(), text.end(), is_text);
      if (binary != text.end()) return bad(fmt::format("{} in a header; this is no FASTA file", shown(*binary)));
      next_header_ = text.substr(1);
      next_header_line_ = line_;
      return {};
    }
    if (!started_) {
      return bad(
          fmt::format("starts with {}, expected the '>' of a header; this is no FASTA file", shown(text.front())));
    }
    if (const Result<void> taken = take(text); !taken) return taken;
  }
}

Result<std::optional<FastaRecord>> FastaReader::next() {
  if (!started_) {
    if (const Result<void> found = read_until_header(); !found) return tl::make_unexpected(found.error());
    started_ = true;
  }
  if (!next_header_) return std::nullopt;
  header_ = std::move(*next_header_);
  const int64_t line = next_header_line_;
  sequence_.clear();
  if (const Result<void> read = read_until_header(); !read) return tl::make_unexpected(read.error());
  return FastaRecord{.header = header_, .sequence = sequence_, .line = line};
}

}  // namespace oarlock
