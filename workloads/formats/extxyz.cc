#include "workloads/formats/extxyz.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>

#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock {
namespace {

constexpr size_t kBuffer = 1 << 20;
constexpr size_t kMaxLine = size_t{64} << 20;    // bytes
constexpr int64_t kMaxFrame = int64_t{1} << 30;  // bytes; a frame is read as a whole
constexpr int64_t kMaxAtoms = 1'000'000;         // of a frame
constexpr std::string_view kBlank = " \t\r\v\f";
constexpr std::string_view kDefaultProperties = "species:S:1:pos:R:3";

tl::unexpected<Error> invalid(std::string message) { return fail(ExitCode::kDataErr, std::move(message)); }

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Returns 0 if the line is not a valid number of atoms.
int64_t atom_count(std::string_view line) {
  const int64_t count = parse_integer<int64_t>(trimmed(line)).value_or(0);
  return count > 0 && count <= kMaxAtoms ? count : 0;
}

// Processes the lines of a file in order, and finds the lines at which frames begin.
class FrameFinder {
 public:
  // Returns whether the next line begins a frame. It may also belong to a frame, or be empty after the last one.
  Result<bool> begins_frame(std::string_view line) {
    ++line_;
    if (missing_ > 0) {
      --missing_;
      return false;
    }
    if (trimmed(line).empty()) {
      ended_ = true;
      return false;
    }
    const int64_t atoms = ended_ ? 0 : atom_count(line);
    if (atoms == 0) {
      constexpr size_t kShown = 40;
      return invalid(
          fmt::format("'{}' is not a number of atoms, with which a frame begins", shortened(trimmed(line), kShown)));
    }
    missing_ = atoms + 1;
    return true;
  }

  int64_t line() const { return line_; }
  int64_t missing() const { return missing_; }  // lines that the current frame still lacks

 private:
  int64_t line_ = 0;
  int64_t missing_ = 0;
  bool ended_ = false;  // an empty line was found in place of a frame
};

// Splits a text into lines without their line endings.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  std::string_view next() {
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return line;
  }

 private:
  std::string_view rest_;
};

// The columns of the lines of atoms, according to Properties.
struct Columns {
  size_t count = 0;
  std::optional<size_t> symbol;
  std::optional<size_t> number;
  std::optional<size_t> position;  // the first of three
};

Result<Columns> columns_of(std::string_view properties) {
  constexpr size_t kMaxWidth = 10'000;
  Columns columns;
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= properties.size();) {
    const size_t end = std::min(properties.find(':', at), properties.size());
    parts.push_back(properties.substr(at, end - at));
    at = end + 1;
  }
  if (parts.size() % 3 != 0)
    return invalid(fmt::format("Properties '{}' does not have the form name:type:columns:...", shortened(properties)));
  for (size_t i = 0; i < parts.size(); i += 3) {
    const std::string_view name = parts[i];
    const size_t width = parse_integer<size_t>(parts[i + 2]).value_or(0);
    if (width == 0 || width > kMaxWidth)
      return invalid(fmt::format("Properties: '{}' has an invalid number of columns '{}'", shortened(name),
                                 shortened(parts[i + 2])));
    if (name == "species" && width == 1) columns.symbol = columns.count;
    if ((name == "Z" || name == "numbers") && width == 1) columns.number = columns.count;
    if (name == "pos" && width == 3) columns.position = columns.count;
    columns.count += width;
  }
  if (!columns.symbol && !columns.number) return invalid("Properties has no column species:S:1 or Z:I:1");
  if (!columns.position) return invalid("Properties has no columns pos:R:3");
  return columns;
}

void split(std::string_view line, std::vector<std::string_view>& words) {
  words.clear();
  for (size_t at = 0; (at = line.find_first_not_of(kBlank, at)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kBlank, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
}

// Returns the word as symbols of elements are written, as ase does: programs write CU or cu for Cu.
std::string capitalized(std::string_view word) {
  std::string out;
  for (const char c : word) {
    const auto letter = static_cast<unsigned char>(c);
    out += static_cast<char>(out.empty() ? std::toupper(letter) : std::tolower(letter));
  }
  return out;
}

Result<uint8_t> element_of(const std::vector<std::string_view>& words, const Columns& columns) {
  if (columns.symbol) {
    const auto number = atomic_number(capitalized(words[*columns.symbol]));
    if (number) return *number;
    return invalid(fmt::format("'{}' is not a chemical element", shortened(words[*columns.symbol])));
  }
  const std::optional<double> number = parse_double(words[*columns.number]);
  if (number && *number >= 1 && *number <= kElements && *number == std::floor(*number))
    return static_cast<uint8_t>(*number);
  return invalid(fmt::format("'{}' is not an atomic number", shortened(words[*columns.number])));
}

Result<void> add_atom(std::string_view line, const Columns& columns, std::vector<std::string_view>& words,
                      Crystal& crystal) {
  split(line, words);
  if (words.size() != columns.count)
    return invalid(fmt::format("expected {} columns according to Properties, found {}", columns.count, words.size()));
  ASSIGN_OR_RETURN(const uint8_t number, element_of(words, columns));
  Vector3 position{};
  for (size_t axis = 0; axis < 3; ++axis) {
    const std::string_view word = words[*columns.position + axis];
    const std::optional<double> coordinate = parse_double(word);
    if (!coordinate || !std::isfinite(*coordinate))
      return invalid(fmt::format("'{}' is not a finite coordinate", shortened(word)));
    position[axis] = *coordinate;
  }
  crystal.numbers.push_back(number);
  crystal.positions.push_back(position);
  return {};
}

Result<Matrix3> lattice_of(const ExtxyzInfo& info) {
  const auto found = info.find("Lattice");
  if (found == info.end()) return invalid("Lattice=\"ax ay az bx by bz cx cy cz\" is missing");
  const Result<std::vector<double>> parsed = extxyz_numbers(found->second);
  if (!parsed) return invalid("Lattice: " + parsed.error().message);
  const std::vector<double>& numbers = *parsed;
  if (numbers.size() != 9) return invalid(fmt::format("Lattice has {} numbers, expected 9", numbers.size()));
  Matrix3 lattice{};
  for (size_t i = 0; i < 9; ++i) lattice[i / 3][i % 3] = numbers[i];
  if (!spans_volume(lattice))
    return invalid(
        fmt::format("Lattice=\"{}\" spans no volume: its vectors must be finite and linearly independent; "
                    "correct it, or remove the frame from the file",
                    shortened(found->second, 200)));
  return lattice;
}

// As in ase, a lattice without pbc means that the crystal is periodic in all directions.
Result<void> check_periodic(const ExtxyzInfo& info) {
  const auto found = info.find("pbc");
  if (found == info.end()) return {};
  const Result<std::vector<bool>> flags = extxyz_flags(found->second);
  if (!flags) return invalid("pbc: " + flags.error().message);
  if (flags->size() != 3 && flags->size() != 1)
    return invalid(fmt::format("pbc has {} values, expected 1 or 3", flags->size()));
  if (std::find(flags->begin(), flags->end(), false) != flags->end()) {
    return invalid(
        fmt::format("pbc=\"{}\": a crystal must be periodic in all directions; if the lattice contains a vacuum "
                    "layer that is to be kept, write pbc=\"T T T\"",
                    shortened(found->second)));
  }
  return {};
}

Result<std::string> read_exactly(int fd, int64_t begin, int64_t end) {
  std::string text(static_cast<size_t>(end - begin), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t got =
        ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(static_cast<size_t>(begin) + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "cannot be read");
    if (got == 0) return fail(ExitCode::kIoErr, "was truncated while it was read");
    done += static_cast<size_t>(got);
  }
  return text;
}

}  // namespace

Result<ExtxyzFile> ExtxyzFile::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(FileDescriptor fd, open_regular_file(path));
  ExtxyzFile file(path, std::move(fd));
  RETURN_IF_ERROR(file.find_frames());
  return file;
}

Result<void> ExtxyzFile::find_frames() {
  FrameFinder finder;
  std::vector<char> buffer(kBuffer);
  std::string line;  // the part of a line that is in the previous buffer
  int64_t begin = 0;
  int64_t offset = 0;  // of the end of the buffer
  const auto process_line = [&](int64_t end) -> Result<void> {
    const Result<bool> begins = finder.begins_frame(line);
    if (!begins) return invalid(fmt::format("{}:{}: {}", path_.string(), finder.line(), begins.error().message));
    if (*begins) begins_.push_back({.offset = begin, .line = finder.line()});
    if (!begins_.empty() && end - begins_.back().offset > kMaxFrame)
      return invalid(fmt::format("{}:{}: frame {}, which begins at line {}, has more than {} bytes", path_.string(),
                                 finder.line(), begins_.size() - 1, begins_.back().line, kMaxFrame));
    begin = end;
    line.clear();
    return {};
  };
  for (;;) {
    const ssize_t got = ::pread(file_.get(), buffer.data(), buffer.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, fmt::format("{}: cannot be read", path_.string()));
    if (got == 0) break;
    std::string_view rest(buffer.data(), static_cast<size_t>(got));
    offset += got;
    for (size_t end = 0; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      line.append(rest.substr(0, end));
      RETURN_IF_ERROR(process_line(offset - static_cast<int64_t>(rest.size() - end) + 1));
    }
    line.append(rest);
    if (line.size() > kMaxLine)
      return invalid(fmt::format("{}:{}: the line has more than {} bytes; this is not an extxyz file", path_.string(),
                                 finder.line() + 1, kMaxLine));
  }
  if (!line.empty()) {
    RETURN_IF_ERROR(process_line(offset));
  }
  if (begins_.empty()) return invalid(fmt::format("{}: contains no frame", path_.string()));
  if (finder.missing() > 0) {
    return invalid(fmt::format("{}:{}: the file ends {} lines before the end of frame {}, which begins at line {}",
                               path_.string(), finder.line(), finder.missing(), begins_.size() - 1,
                               begins_.back().line));
  }
  begins_.push_back({.offset = offset, .line = finder.line() + 1});
  return {};
}

std::string ExtxyzFile::place(int64_t frame) const {
  return fmt::format("{}:{} (frame {})", path_.string(), begins_[static_cast<size_t>(frame)].line + 1, frame);
}

Result<ExtxyzFrame> ExtxyzFile::read(int64_t frame) const {
  const Begin& begin = begins_[static_cast<size_t>(frame)];
  const Result<std::string> text =
      read_exactly(file_.get(), begin.offset, begins_[static_cast<size_t>(frame) + 1].offset);
  if (!text) return fail(text.error().code, fmt::format("{}: {}", path_.string(), text.error().message));
  Lines lines(*text);
  const int64_t atoms = atom_count(lines.next());
  const auto with_place = [&](const Error& error) {
    return invalid(fmt::format("{}: {}", place(frame), error.message));
  };

  Result<ExtxyzInfo> info = parse_extxyz_comment(lines.next());
  if (!info) return with_place(info.error());
  const auto properties = info->find("Properties");
  const Result<Columns> columns =
      columns_of(properties == info->end() ? kDefaultProperties : std::string_view(properties->second));
  if (!columns) return with_place(columns.error());
  const Result<Matrix3> lattice = lattice_of(*info);
  if (!lattice) return with_place(lattice.error());
  if (const Result<void> periodic = check_periodic(*info); !periodic) return with_place(periodic.error());

  ExtxyzFrame out{.crystal = {.lattice = *lattice, .numbers = {}, .positions = {}}, .info = std::move(*info)};
  std::vector<std::string_view> words;
  for (int64_t atom = 0; atom < atoms; ++atom) {
    if (const Result<void> added = add_atom(lines.next(), *columns, words, out.crystal); !added) {
      return invalid(
          fmt::format("{}:{} (frame {}): {}", path_.string(), begin.line + 2 + atom, frame, added.error().message));
    }
  }
  return out;
}

}  // namespace oarlock
