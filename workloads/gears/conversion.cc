#include "workloads/gears/conversion.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "common/files.h"
#include "common/memory_limit.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/work_progress.h"
#include "workloads/gears/anndata.h"
#include "workloads/gears/cell_store.h"
#include "workloads/gears/splits.h"

namespace oarlock::gears {

namespace {

double absolute_t(const GroupSums& sums, int64_t group, int64_t reference, int64_t gene) {
  const auto share = [&](int64_t g) {
    return sums.variance(g, gene) / static_cast<double>(sums.cells[static_cast<size_t>(g)]);
  };
  const double t = (sums.mean(group, gene) - sums.mean(reference, gene)) / std::sqrt(share(group) + share(reference));
  return std::isnan(t) ? 0 : std::abs(t);
}

}  // namespace

std::vector<int64_t> rank_genes(const GroupSums& sums, int64_t group, int64_t reference) {
  std::vector<double> scores;
  for (int64_t gene = 0; gene < sums.genes; ++gene) scores.push_back(absolute_t(sums, group, reference, gene));
  std::vector<int64_t> ranking(static_cast<size_t>(sums.genes));
  std::iota(ranking.begin(), ranking.end(), 0);
  std::stable_sort(ranking.begin(), ranking.end(), [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  return ranking;
}

std::vector<int64_t> top_non_dropout(std::span<const int64_t> ranking, std::span<const double> means,
                                     std::span<const double> control_means) {
  std::vector<int64_t> top;
  for (const int64_t gene : ranking) {
    const auto at = static_cast<size_t>(gene);
    if (means[at] == 0 && control_means[at] != 0) continue;
    top.push_back(gene);
    if (std::ssize(top) == kTopGenes) break;
  }
  return top;
}

namespace {

namespace fs = std::filesystem;

struct Condition {
  std::string name;
  std::string full_name;  // the key in uns: CELLTYPE_CONDITION_DOSE
  int32_t first_group = 0;
};

// The conditions of the cells, and the groups over which statistics are computed: cells of one condition and one type.
struct Cells {
  std::vector<Condition> conditions;
  std::vector<int32_t> condition_of;
  std::vector<int32_t> group_of;
  std::vector<std::pair<int32_t, int32_t>> groups;  // condition and cell type

  int32_t control_group_of(int32_t group) const;
};

// Returns the control cells of the same type, or of any type if there are none.
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
  ASSIGN_OR_RETURN(const Labels condition, obs.labels("condition"));
  ASSIGN_OR_RETURN(const Labels type, column_or_empty(obs, "cell_type"));
  ASSIGN_OR_RETURN(const Labels full_name, column_or_empty(obs, "condition_name"));
  Cells cells;
  std::map<int32_t, int32_t> numbers;
  std::map<std::pair<int32_t, int32_t>, int32_t> groups;
  for (size_t row = 0; row < condition.codes.size(); ++row) {
    if (condition.codes[row] < 0) {
      return fail(ExitCode::kDataErr, fmt::format("{}: /obs/condition of cell {} is missing", file, row));
    }
    const auto [number, is_new] = numbers.emplace(condition.codes[row], std::ssize(cells.conditions));
    const std::pair key{number->second, type.codes[row]};
    const auto [group, is_new_group] = groups.emplace(key, std::ssize(cells.groups));
    if (is_new_group) cells.groups.push_back(key);
    if (is_new) {
      const std::string name = name_at(condition, row);
      const char* dose = name.find('+') == std::string::npos ? "1" : "1+1";
      const std::string given = name_at(full_name, row);
      cells.conditions.push_back(
          {.name = name,
           .full_name = given.empty() ? fmt::format("{}_{}_{}", name_at(type, row), name, dose) : given,
           .first_group = group->second});
    }
    cells.condition_of.push_back(number->second);
    cells.group_of.push_back(group->second);
  }
  const auto is_control = [](const Condition& c) { return c.name == kControl; };
  if (std::none_of(cells.conditions.begin(), cells.conditions.end(), is_control)) {
    return fail(ExitCode::kDataErr, fmt::format("{}: no cell has the condition \"{}\" in /obs/condition, which "
                                                "perturbations are compared with",
                                                file, kControl));
  }
  return cells;
}

// An array of a condition: uns/NAME/CONDITION.
struct UnsEntry {
  Hdf5Group group;
  std::string name;
};

// Returns uns/NAME/CONDITION, if it exists.
Result<std::optional<UnsEntry>> find_uns(const Hdf5Group& root, const char* name, const Condition& condition) {
  const std::string path = fmt::format("uns/{}", name);
  if (!root.has_group(path)) return std::nullopt;
  ASSIGN_OR_RETURN(Hdf5Group group, root.group(path));
  if (!group.has(condition.full_name)) return std::nullopt;
  return std::optional(UnsEntry{std::move(group), condition.full_name});
}

// Translates gene names in the file to indices.
class GeneNumbers {
 public:
  explicit GeneNumbers(const std::vector<std::string>& ids) {
    for (size_t i = 0; i < ids.size(); ++i) numbers_.emplace(ids[i], static_cast<int64_t>(i));
  }

  Result<std::vector<int64_t>> of(const UnsEntry& entry) const {
    ASSIGN_OR_RETURN(const std::vector<std::string> read, read_string_array(entry.group, entry.name));
    std::vector<int64_t> out;
    for (const std::string& name : read) {
      const auto at = numbers_.find(name);
      if (at == numbers_.end()) {
        return hdf5_fail(entry.group.place().below(entry.name),
                         fmt::format("has the gene {}, which is not in var", shortened(name)));
      }
      out.push_back(at->second);
    }
    return out;
  }

 private:
  std::unordered_map<std::string, int64_t> numbers_;
};

class Summary {
 public:
  Summary(const Hdf5Group& root, const Cells& cells, const GroupSums& sums, const std::vector<std::string>& gene_ids)
      : root_(root), cells_(cells), sums_(sums), numbers_(gene_ids) {}

  Result<void> write(const fs::path& directory, const std::vector<std::string>& genes) const {
    nlohmann::json about{{"format", 1}, {"genes", genes}, {"conditions", nlohmann::json::array()}};
    std::ofstream means(directory / "means.f64", std::ios::binary);
    std::ofstream counted(directory / "counted.u8", std::ios::binary);
    const std::vector<double> control = means_of(kControl);
    for (const Condition& condition : cells_.conditions) {
      const std::vector<double> own = means_of(condition.name);
      ASSIGN_OR_RETURN(const nlohmann::json entry, describe(condition, own, control));
      ASSIGN_OR_RETURN(const std::vector<uint8_t> mask, counted_of(condition, own));
      about["conditions"].push_back(entry);
      means.write(reinterpret_cast<const char*>(own.data()), static_cast<std::streamsize>(own.size() * sizeof(double)));
      counted.write(reinterpret_cast<const char*>(mask.data()), static_cast<std::streamsize>(mask.size()));
    }
    std::ofstream numbers(directory / "condition.i32", std::ios::binary);
    numbers.write(reinterpret_cast<const char*>(cells_.condition_of.data()),
                  static_cast<std::streamsize>(cells_.condition_of.size() * sizeof(int32_t)));
    for (std::ofstream* file : {&means, &counted, &numbers}) {
      file->close();
      if (file->fail()) return fail(ExitCode::kIoErr, fmt::format("{}: cannot be written", directory.string()));
    }
    return write_file_atomically(directory / "about.json", about.dump());
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
      ASSIGN_OR_RETURN(const std::vector<int64_t> ranking, ranking_of(condition));
      top.assign(ranking.begin(), ranking.begin() + std::min(kTopGenes, std::ssize(ranking)));
      ASSIGN_OR_RETURN(const std::optional<UnsEntry> given, find_uns(root_, "top_non_dropout_de_20", condition));
      ASSIGN_OR_RETURN(
          std::vector<int64_t> read,
          given ? numbers_.of(*given) : Result<std::vector<int64_t>>(top_non_dropout(ranking, means, control)));
      non_dropout = std::move(read);
    }
    entry["de"] = top;
    entry["non_dropout_de"] = non_dropout;
    return entry;
  }

  Result<std::vector<int64_t>> ranking_of(const Condition& condition) const {
    ASSIGN_OR_RETURN(const std::optional<UnsEntry> given, find_uns(root_, "rank_genes_groups_cov_all", condition));
    if (given) return numbers_.of(*given);
    return rank_genes(sums_, condition.first_group, cells_.control_group_of(condition.first_group));
  }

  Result<std::vector<uint8_t>> counted_of(const Condition& condition, const std::vector<double>& means) const {
    std::vector<uint8_t> mask(means.size(), condition.name == kControl ? 1 : 0);
    if (condition.name == kControl) return mask;
    ASSIGN_OR_RETURN(const std::optional<UnsEntry> given, find_uns(root_, "non_zeros_gene_idx", condition));
    if (!given) {
      for (size_t gene = 0; gene < mask.size(); ++gene) mask[gene] = means[gene] != 0 ? 1 : 0;
    } else {
      ASSIGN_OR_RETURN(const Hdf5Dataset numbers, given->group.dataset(given->name));
      ASSIGN_OR_RETURN(const std::vector<int64_t> genes, numbers.read<int64_t>());
      for (const int64_t gene : genes) {
        if (gene < 0 || gene >= std::ssize(mask)) {
          return hdf5_fail(numbers.place(), fmt::format("has gene {} of {}", gene, mask.size()));
        }
        mask[static_cast<size_t>(gene)] = 1;
      }
    }
    // For a condition without any expression, all genes count, because the loss divides by their number.
    if (std::find(mask.begin(), mask.end(), 1) == mask.end()) std::fill(mask.begin(), mask.end(), 1);
    return mask;
  }

  const Hdf5Group& root_;
  const Cells& cells_;
  const GroupSums& sums_;
  GeneNumbers numbers_;
};

}  // namespace

Result<void> convert_anndata(const fs::path& h5ad, const fs::path& directory, const Logger& log) {
  ASSIGN_OR_RETURN(const Hdf5Group root, Hdf5Group::open_file(h5ad));
  ASSIGN_OR_RETURN(const AnnDataFrame obs, AnnDataFrame::open(root, "obs"));
  ASSIGN_OR_RETURN(const AnnDataFrame var, AnnDataFrame::open(root, "var"));
  ASSIGN_OR_RETURN(const ExpressionMatrix matrix, ExpressionMatrix::open(root));
  if (matrix.rows() != obs.rows() || matrix.columns() != var.rows()) {
    return fail(ExitCode::kDataErr, fmt::format("{}: /X is {} x {}, but /obs has {} rows and /var {}", h5ad.string(),
                                                matrix.rows(), matrix.columns(), obs.rows(), var.rows()));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> ids, var.index());
  ASSIGN_OR_RETURN(const std::vector<std::string> genes, var.has("gene_name") ? var.strings("gene_name") : ids);
  ASSIGN_OR_RETURN(const Cells cells, read_cells(obs, h5ad.string()));

  RETURN_IF_ERROR(
      expect_memory(static_cast<uint64_t>(std::ssize(cells.groups)) * static_cast<uint64_t>(matrix.columns()),
                    GroupSums::kBytes, h5ad.string() + ": the sums of the conditions"));
  CellWriter writer(directory, cells.group_of, std::ssize(cells.groups), matrix.columns());
  const Result<void> read = matrix.for_each_block([&](const SparseRows& block) -> Result<void> {
    RETURN_IF_ERROR(writer.add(block));
    report_work(LongWork::kPrepareData, block.first + block.rows(), matrix.rows());
    return {};
  });
  if (!read) return read;
  RETURN_IF_ERROR(writer.finish());
  RETURN_IF_ERROR(Summary(root, cells, writer.sums(), ids).write(directory, genes));
  log.info("cells converted", {{"file", h5ad.string()},
                               {"cells", matrix.rows()},
                               {"genes", matrix.columns()},
                               {"conditions", cells.conditions.size()}});
  return {};
}

}  // namespace oarlock::gears
