#include "workloads/gears/gene_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>

#include "common/csv.h"
#include "common/files.h"
#include "common/memory_limit.h"
#include "common/number.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "workloads/gears/string_lists.h"

namespace oarlock::gears {

namespace {

constexpr size_t kMaxTableBytes = size_t{1} << 30;  // the files are read as a whole

constexpr size_t kMaxColumns = 1000;

// Returns the file as UTF-8, without a byte order mark, which Excel writes. Fails with kOsErr if its lines may not fit
// into memory.
Result<std::string> read_table(const std::filesystem::path& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  constexpr uint64_t kMaxMemoryRatio = 32;  // bytes of memory for a byte of the file: of names with one letter
  ASSIGN_OR_RETURN(std::string text, read_regular_file(path, kMaxTableBytes));
  RETURN_IF_ERROR(expect_memory(text.size(), kMaxMemoryRatio, path.string()));
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return to_utf8(std::move(text));
}

tl::unexpected<Error> bad_line(const std::filesystem::path& csv, int64_t line, const std::string& what) {
  return fail(ExitCode::kDataErr, fmt::format("{}:{}: {}", csv.string(), line, what));
}

// Indices of the three columns.
Result<std::array<size_t, 3>> columns_of(const std::filesystem::path& csv, const std::vector<std::string>& names) {
  std::array<size_t, 3> at{};
  const std::array<const char*, 3> wanted{"source", "target", "importance"};
  for (size_t i = 0; i < wanted.size(); ++i) {
    at[i] = static_cast<size_t>(std::find(names.begin(), names.end(), wanted[i]) - names.begin());
    if (at[i] == names.size()) {
      return bad_line(csv, 1, fmt::format("no column {}; expected source,target,importance", wanted[i]));
    }
  }
  return at;
}

}  // namespace

Result<std::vector<NamedEdge>> read_edges(const std::filesystem::path& csv) {
  ASSIGN_OR_RETURN(const std::string text, read_table(csv));
  CsvReader table(text, kMaxColumns);
  std::vector<std::string> cells;
  const auto next = [&]() -> Result<bool> {
    Result<bool> read = table.next(cells);
    if (!read) return bad_line(csv, table.line(), read.error().message);
    return read;
  };
  RETURN_IF_ERROR(next().map([](bool) {}));
  ASSIGN_OR_RETURN(const auto columns, columns_of(csv, cells));
  const auto [source, target, importance] = columns;
  std::vector<NamedEdge> edges;
  for (;;) {
    ASSIGN_OR_RETURN(const bool is_record, next());
    if (!is_record) break;
    const int64_t number = table.line();
    if (cells.empty()) continue;
    if (cells.size() <= std::max({source, target, importance})) return bad_line(csv, number, "has too few columns");
    NamedEdge edge{.source = cells[source], .target = cells[target]};
    const std::string_view value = cells[importance];
    const std::optional<double> parsed = parse_double(value);
    if (!parsed || !(*parsed >= 0 && *parsed <= std::numeric_limits<float>::max())) {
      return bad_line(
          csv, number,
          fmt::format("the importance \"{}\" is not a number of at least 0 that fits in float32", shortened(value)));
    }
    edge.importance = *parsed;
    edges.push_back(std::move(edge));
  }
  return edges;
}

Result<void> write_edges(const std::filesystem::path& csv, const std::vector<NamedEdge>& edges) {
  std::string text = "source,target,importance\n";
  for (const NamedEdge& edge : edges)
    text += fmt::format("{},{},{}\n", csv_field(edge.source), csv_field(edge.target), edge.importance);
  return write_file_atomically(csv, text);
}

Result<GeneTerms> read_gene2go(const std::filesystem::path& json) {
  constexpr char kExpected[] = R"(expected JSON {"GENE": ["GO:0005515", ...], ...})";
  const Result<nlohmann::json> read = read_string_lists(json, kMaxTableBytes);
  if (!read) return fail(read.error().code, fmt::format("{}; {}", read.error().message, kExpected));
  const auto is_list = [](const nlohmann::json& terms) {
    return terms.is_array() &&
           std::all_of(terms.begin(), terms.end(), [](const nlohmann::json& term) { return term.is_string(); });
  };
  if (!std::all_of(read->begin(), read->end(), is_list))
    return fail(ExitCode::kDataErr, fmt::format("{}: {}", json.string(), kExpected));
  return read->get<GeneTerms>();
}

Result<std::vector<std::string>> read_gene_list(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::string text, read_table(path));
  std::vector<std::string> genes;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) genes.push_back(line);
  }
  return genes;
}

}  // namespace oarlock::gears
