#include "trainer/tasks/gears/data/conversion.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "common/files.h"
#include "trainer/tasks/gears/anndata/expression.h"
#include "trainer/tasks/gears/anndata/frame.h"
#include "trainer/tasks/gears/data/cell_writer.h"
#include "trainer/tasks/gears/data/ranking.h"
#include "trainer/tasks/gears/splits/condition.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

struct Condition {
  std::string name;
  std::string full_name;  // the key in uns: CELLTYPE_CONDITION_DOSE
  int32_t first_group = 0;
};

// The cells' conditions, and the groups that the statistics are taken over: cells of one condition and one type.
struct Cells {
  std::vector<Condition> conditions;
  std::vector<int32_t> condition_of;
  std::vector<int32_t> group_of;
  std::vector<std::pair<int32_t, int32_t>> groups;  // condition and cell type

  int32_t control_group_of(int32_t group) const;
};

// The control cells of the same type; where there are none, those of any.
int32_t Cells::control_group_of(int32_t group) const {
  std::optional<int32_t> any;
  for (int32_t other = 0; other < std::ssize(groups); ++other) {
    if (conditions[static_cast<size_t>(groups[static_cast<size_t>(other)].first)].name != kControl) continue;
    if (groups[static_cast<size_t>(other)].second == groups[static_cast<size_t>(group)].second) return other;
    if (!any) any = other;
  }
  return any.value_or(group);
}

Result<Labels> column_or_empty(const AnnDataFrame& frame, const std::string& column) {
  if (frame.has(column)) return frame.labels(column);
  return Labels{{""}, std::vector<int32_t>(static_cast<size_t>(frame.rows()), 0)};
}

std::string name_at(const Labels& labels, size_t row) {
  return labels.codes[row] < 0 ? "" : labels.names[static_cast<size_t>(labels.codes[row])];
}

Result<Cells> read_cells(const AnnDataFrame& obs, const std::string& file) {
  const Result<Labels> condition = obs.labels("condition");
  if (!condition) return tl::make_unexpected(condition.error());
  const Result<Labels> type = column_or_empty(obs, "cell_type");
  if (!type) return tl::make_unexpected(type.error());
  const Result<Labels> full_name = column_or_empty(obs, "condition_name");
  if (!full_name) return tl::make_unexpected(full_name.error());
  Cells cells;
  std::map<int32_t, int32_t> numbers;
  std::map<std::pair<int32_t, int32_t>, int32_t> groups;
  for (size_t row = 0; row < condition->codes.size(); ++row) {
    if (condition->codes[row] < 0) {
      return fail(ExitCode::kDataErr, fmt::format("{}: /obs/condition of cell {} is missing", file, row));
    }
    const auto [number, is_new] = numbers.emplace(condition->codes[row], std::ssize(cells.conditions));
    const std::pair key{number->second, type->codes[row]};
    const auto [group, is_new_group] = groups.emplace(key, std::ssize(cells.groups));
    if (is_new_group) cells.groups.push_back(key);
    if (is_new) {
      const std::string name = name_at(*condition, row);
      const char* dose = name.find('+') == std::string::npos ? "1" : "1+1";
      const std::string given = name_at(*full_name, row);
      cells.conditions.push_back(
          {.name = name,
           .full_name = given.empty() ? fmt::format("{}_{}_{}", name_at(*type, row), name, dose) : given,
           .first_group = group->second});
    }
    cells.condition_of.push_back(number->second);
    cells.group_of.push_back(group->second);
  }
  const auto is_control = [](const Condition& c) { return c.name == kControl; };
  if (std::none_of(cells.conditions.begin(), cells.conditions.end(), is_control)) {
    return fail(ExitCode::kDataErr,
                fmt::format("{}: no cell has the condition \"{}\" in /obs/condition: what is a perturbation "
                            "compared with?",
                            file, kControl));
  }
  return cells;
}

// What the file says about genes by name, as their numbers.
class GeneNumbers {
 public:
  explicit GeneNumbers(const std::vector<std::string>& ids) {
    for (size_t i = 0; i < ids.size(); ++i) numbers_.emplace(ids[i], static_cast<int64_t>(i));
  }

  Result<std::vector<int64_t>> of(const Hdf5Dataset& names) const {
    const Result<std::vector<std::string>> read = names.read_strings();
    if (!read) return tl::make_unexpected(read.error());
    std::vector<int64_t> out;
    for (const std::string& name : *read) {
      const auto at = numbers_.find(name);
      if (at == numbers_.end())
        return hdf5_fail(names.place(), fmt::format("has the gene {}, which var has not", name));
      out.push_back(at->second);
    }
    return out;
  }

 private:
  std::unordered_map<std::string, int64_t> numbers_;
};

// uns/NAME/CONDITION, where the file has it.
Result<std::optional<Hdf5Dataset>> find_uns(const Hdf5Group& root, const char* name, const Condition& condition) {
  const std::string path = fmt::format("uns/{}", name);
  if (!root.has_group(path)) return std::nullopt;
  const Result<Hdf5Group> group = root.group(path);
  if (!group) return tl::make_unexpected(group.error());
  if (!group->has(condition.full_name)) return std::nullopt;
  Result<Hdf5Dataset> found = group->dataset(condition.full_name);
  if (!found) return tl::make_unexpected(found.error());
  return std::optional(std::move(*found));
}

class Summary {
 public:
  Summary(const Hdf5Group& root, const Cells& cells, const GroupSums& sums, const std::vector<std::string>& gene_ids)
      : root_(root), cells_(cells), sums_(sums), numbers_(gene_ids) {}

  Result<void> write(const fs::path& folder, const std::vector<std::string>& genes) const {
    nlohmann::json about{{"format", 1}, {"genes", genes}, {"conditions", nlohmann::json::array()}};
    std::ofstream means(folder / "means.f64", std::ios::binary);
    std::ofstream counted(folder / "counted.u8", std::ios::binary);
    const std::vector<double> control = means_of(kControl);
    for (const Condition& condition : cells_.conditions) {
      const std::vector<double> own = means_of(condition.name);
      const Result<nlohmann::json> entry = describe(condition, own, control);
      if (!entry) return tl::make_unexpected(entry.error());
      const Result<std::vector<uint8_t>> mask = counted_of(condition, own);
      if (!mask) return tl::make_unexpected(mask.error());
      about["conditions"].push_back(*entry);
      means.write(reinterpret_cast<const char*>(own.data()), static_cast<std::streamsize>(own.size() * sizeof(double)));
      counted.write(reinterpret_cast<const char*>(mask->data()), static_cast<std::streamsize>(mask->size()));
    }
    std::ofstream numbers(folder / "condition.i32", std::ios::binary);
    numbers.write(reinterpret_cast<const char*>(cells_.condition_of.data()),
                  static_cast<std::streamsize>(cells_.condition_of.size() * sizeof(int32_t)));
    for (std::ofstream* file : {&means, &counted, &numbers}) {
      file->close();
      if (file->fail()) return fail(ExitCode::kIoErr, fmt::format("{}: cannot be written", folder.string()));
    }
    return write_file_atomically(folder / "about.json", about.dump());
  }

 private:
  int64_t cells_in(const std::string& condition) const {
    int64_t count = 0;
    for (size_t group = 0; group < cells_.groups.size(); ++group) {
      if (name_of(group) == condition) count += sums_.cells[group];
    }
    return count;
  }

  const std::string& name_of(size_t group) const {
    return cells_.conditions[static_cast<size_t>(cells_.groups[group].first)].name;
  }

  std::vector<double> means_of(const std::string& condition) const {
    std::vector<double> means(static_cast<size_t>(sums_.genes));
    for (size_t group = 0; group < cells_.groups.size(); ++group) {
      if (name_of(group) != condition) continue;
      for (size_t gene = 0; gene < means.size(); ++gene) means[gene] += sums_.sum[group * means.size() + gene];
    }
    const auto count = static_cast<double>(cells_in(condition));
    for (double& mean : means) mean /= count;
    return means;
  }

  Result<nlohmann::json> describe(const Condition& condition, const std::vector<double>& means,
                                  const std::vector<double>& control) const {
    nlohmann::json entry{{"name", condition.name}, {"cells", cells_in(condition.name)}};
    std::vector<int64_t> top;
    std::vector<int64_t> non_dropout;
    if (condition.name != kControl) {
      const Result<std::vector<int64_t>> ranking = ranking_of(condition);
      if (!ranking) return tl::make_unexpected(ranking.error());
      top.assign(ranking->begin(), ranking->begin() + std::min(kTopGenes, std::ssize(*ranking)));
      const Result<std::optional<Hdf5Dataset>> given = find_uns(root_, "top_non_dropout_de_20", condition);
      if (!given) return tl::make_unexpected(given.error());
      Result<std::vector<int64_t>> read =
          *given ? numbers_.of(**given) : Result<std::vector<int64_t>>(top_non_dropout(*ranking, means, control));
      if (!read) return tl::make_unexpected(read.error());
      non_dropout = std::move(*read);
    }
    entry["de"] = top;
    entry["non_dropout_de"] = non_dropout;
    return entry;
  }

  Result<std::vector<int64_t>> ranking_of(const Condition& condition) const {
    const Result<std::optional<Hdf5Dataset>> given = find_uns(root_, "rank_genes_groups_cov_all", condition);
    if (!given) return tl::make_unexpected(given.error());
    if (*given) return numbers_.of(**given);
    return rank_genes(sums_, condition.first_group, cells_.control_group_of(condition.first_group));
  }

  Result<std::vector<uint8_t>> counted_of(const Condition& condition, const std::vector<double>& means) const {
    std::vector<uint8_t> mask(means.size(), condition.name == kControl ? 1 : 0);
    if (condition.name == kControl) return mask;
    const Result<std::optional<Hdf5Dataset>> given = find_uns(root_, "non_zeros_gene_idx", condition);
    if (!given) return tl::make_unexpected(given.error());
    if (!*given) {
      for (size_t gene = 0; gene < mask.size(); ++gene) mask[gene] = means[gene] != 0 ? 1 : 0;
    } else {
      const Result<std::vector<int64_t>> genes = (*given)->read<int64_t>();
      if (!genes) return tl::make_unexpected(genes.error());
      for (const int64_t gene : *genes) {
        if (gene < 0 || gene >= std::ssize(mask)) {
          return hdf5_fail((*given)->place(), fmt::format("has gene {} of {}", gene, mask.size()));
        }
        mask[static_cast<size_t>(gene)] = 1;
      }
    }
    // A condition without any expression would divide by nothing.
    if (std::find(mask.begin(), mask.end(), 1) == mask.end()) std::fill(mask.begin(), mask.end(), 1);
    return mask;
  }

  const Hdf5Group& root_;
  const Cells& cells_;
  const GroupSums& sums_;
  GeneNumbers numbers_;
};

}  // namespace

Result<void> convert_anndata(const fs::path& h5ad, const fs::path& folder, const Logger& log) {
  const Result<Hdf5Group> root = Hdf5Group::open_file(h5ad);
  if (!root) return tl::make_unexpected(root.error());
  const Result<AnnDataFrame> obs = AnnDataFrame::open(*root, "obs");
  if (!obs) return tl::make_unexpected(obs.error());
  const Result<AnnDataFrame> var = AnnDataFrame::open(*root, "var");
  if (!var) return tl::make_unexpected(var.error());
  const Result<ExpressionMatrix> matrix = ExpressionMatrix::open(*root);
  if (!matrix) return tl::make_unexpected(matrix.error());
  if (matrix->rows() != obs->rows() || matrix->columns() != var->rows()) {
    return fail(ExitCode::kDataErr, fmt::format("{}: /X is {} x {}, but /obs has {} rows and /var {}", h5ad.string(),
                                                matrix->rows(), matrix->columns(), obs->rows(), var->rows()));
  }
  const Result<std::vector<std::string>> ids = var->index();
  if (!ids) return tl::make_unexpected(ids.error());
  const Result<std::vector<std::string>> genes = var->has("gene_name") ? var->strings("gene_name") : ids;
  if (!genes) return tl::make_unexpected(genes.error());
  const Result<Cells> cells = read_cells(*obs, h5ad.string());
  if (!cells) return tl::make_unexpected(cells.error());

  CellWriter writer(folder, cells->group_of, std::ssize(cells->groups), matrix->columns());
  const Result<void> read = matrix->for_each_block([&](const SparseRows& block) -> Result<void> {
    writer.add(block);
    return {};
  });
  if (!read) return read;
  if (Result<void> finished = writer.finish(); !finished) return finished;
  if (Result<void> written = Summary(*root, *cells, writer.sums(), *ids).write(folder, *genes); !written)
    return written;
  log.info("cells converted", {{"file", h5ad.string()},
                               {"cells", matrix->rows()},
                               {"genes", matrix->columns()},
                               {"conditions", cells->conditions.size()}});
  return {};
}

}  // namespace oarlock
