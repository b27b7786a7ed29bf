#include "workloads/gears/cell_store.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock::gears {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxAboutBytes = size_t{1} << 30;

template <typename T>
std::span<const T> as(const MappedFile& file) {
  return {reinterpret_cast<const T*>(file.bytes().data()), file.bytes().size() / sizeof(T)};
}

tl::unexpected<Error> damaged(const fs::path& directory, const std::string& what) {
  return fail(ExitCode::kDataErr,
              fmt::format("{}: {}; remove the directory; it is then created again", directory.string(), what));
}

Result<at::Tensor> read_matrix(const fs::path& path, int64_t rows, int64_t columns, at::ScalarType type) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path, MappedFile::Access::kSequential));
  at::Tensor matrix = at::empty({rows, columns}, type);
  if (file.bytes().size() != matrix.nbytes()) return damaged(path.parent_path(), path.filename().string() + " is cut");
  if (matrix.nbytes() > 0) std::memcpy(matrix.mutable_data_ptr(), file.bytes().data(), matrix.nbytes());
  return matrix;
}

}  // namespace

Result<CellStore> CellStore::open(const fs::path& directory) {
  std::vector<MappedFile> files;
  for (const char* name : {"values.f32", "columns.i32", "begin.i64", "condition.i32"}) {
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(directory / name, MappedFile::Access::kRandom));
    files.push_back(std::move(file));
  }
  CellStore store(std::move(files[0]), std::move(files[1]), std::move(files[2]), std::move(files[3]));
  RETURN_IF_ERROR(store.read_about(directory));
  RETURN_IF_ERROR(store.check(directory));
  store.cells_of_.resize(store.conditions_.size());
  for (int64_t cell = 0; cell < store.cells(); ++cell) {
    store.cells_of_[static_cast<size_t>(store.condition_of(cell))].push_back(cell);
  }
  return store;
}

Result<void> CellStore::read_about(const fs::path& directory) {
  ASSIGN_OR_RETURN(const std::string text, read_regular_file(directory / "about.json", kMaxAboutBytes));
  const nlohmann::json about = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (about.is_discarded()) return damaged(directory, "about.json is not JSON");
  try {
    genes_ = about.at("genes").get<std::vector<std::string>>();
    for (const nlohmann::json& condition : about.at("conditions")) {
      conditions_.push_back({.name = condition.at("name"),
                             .cells = condition.at("cells"),
                             .de = condition.at("de"),
                             .non_dropout_de = condition.at("non_dropout_de")});
    }
  } catch (const nlohmann::json::exception& error) {
    return damaged(directory, fmt::format("about.json has other contents ({})", error.what()));
  }
  const int64_t conditions = std::ssize(conditions_);
  ASSIGN_OR_RETURN(const at::Tensor means, read_matrix(directory / "means.f64", conditions, gene_count(), at::kDouble));
  ASSIGN_OR_RETURN(const at::Tensor counted,
                   read_matrix(directory / "counted.u8", conditions, gene_count(), at::kByte));
  means_ = means;
  counted_ = counted.to(at::kBool);
  return {};
}

Result<void> CellStore::check(const fs::path& directory) const {
  const auto begin = as<int64_t>(begin_);
  const auto condition = as<int32_t>(condition_);
  const bool whole = std::ssize(begin) == cells() + 1 && begin.front() == 0 &&
                     std::is_sorted(begin.begin(), begin.end()) && begin.back() == std::ssize(as<float>(values_)) &&
                     begin.back() == std::ssize(as<int32_t>(columns_));
  const bool known = std::all_of(condition.begin(), condition.end(),
                                 [&](int32_t number) { return number >= 0 && number < std::ssize(conditions_); });
  if (!whole || !known) return damaged(directory, "its files do not fit together");
  return {};
}

int64_t CellStore::index_of(const std::string& condition) const {
  const auto at = std::find_if(conditions_.begin(), conditions_.end(),
                               [&](const CellCondition& entry) { return entry.name == condition; });
  return at == conditions_.end() ? -1 : at - conditions_.begin();
}

int64_t CellStore::condition_of(int64_t cell) const { return as<int32_t>(condition_)[static_cast<size_t>(cell)]; }

void CellStore::expression(int64_t cell, std::span<float> out) const {
  std::fill(out.begin(), out.end(), 0.0F);
  const auto begin = as<int64_t>(begin_);
  const auto values = as<float>(values_);
  const auto columns = as<int32_t>(columns_);
  for (auto i = static_cast<size_t>(begin[static_cast<size_t>(cell)]);
       i < static_cast<size_t>(begin[static_cast<size_t>(cell) + 1]); ++i) {
    const auto column = static_cast<size_t>(columns[i]);
    if (column >= out.size()) {
      throw ErrorException(
          {ExitCode::kDataErr, fmt::format("cell {} of the prepared data has gene {} of {}; remove the "
                                           "directory of the prepared data; it is then created again",
                                           cell, columns[i], out.size())});
    }
    out[column] = values[i];
  }
}

namespace {

template <typename T>
void write(std::ofstream& out, const T* data, size_t count) {
  out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(count * sizeof(T)));
}

}  // namespace

double GroupSums::mean(int64_t group, int64_t gene) const {
  return sum[static_cast<size_t>(group * genes + gene)] / static_cast<double>(cells[static_cast<size_t>(group)]);
}

double GroupSums::variance(int64_t group, int64_t gene) const {
  const auto n = static_cast<double>(cells[static_cast<size_t>(group)]);
  if (n < 2) return 0;
  const double average = mean(group, gene);
  const double biased = squares[static_cast<size_t>(group * genes + gene)] / n - average * average;
  return std::max(biased, 0.0) * n / (n - 1);
}

CellWriter::CellWriter(const std::filesystem::path& directory, std::vector<int32_t> groups, int64_t group_count,
                       int64_t genes)
    : directory_(directory),
      groups_(std::move(groups)),
      sums_(group_count, genes),
      values_(directory / "values.f32", std::ios::binary),
      columns_(directory / "columns.i32", std::ios::binary),
      begin_(directory / "begin.i64", std::ios::binary) {
  write(begin_, &written_, 1);
}

Result<void> CellWriter::add(const SparseRows& block) {
  for (int64_t row = 0; row < block.rows(); ++row) {
    const int32_t group = groups_[static_cast<size_t>(block.first + row)];
    const auto from = static_cast<size_t>(block.begin[static_cast<size_t>(row)]);
    const auto to = static_cast<size_t>(block.begin[static_cast<size_t>(row) + 1]);
    ++sums_.cells[static_cast<size_t>(group)];
    for (size_t i = from; i < to; ++i) {
      const auto at = static_cast<size_t>(group * sums_.genes + block.columns[i]);
      const double value = block.values[i];
      sums_.sum[at] += value;
      sums_.squares[at] += value * value;
    }
    write(values_, block.values.data() + from, to - from);
    write(columns_, block.columns.data() + from, to - from);
    written_ += static_cast<int64_t>(to - from);
    write(begin_, &written_, 1);
  }
  return values_ && columns_ && begin_ ? Result<void>() : write_error();
}

tl::unexpected<Error> CellWriter::write_error() const {
  return fail_errno(errno == 0 ? EIO : errno, fmt::format("{}: cannot be written", directory_.string()));
}

Result<void> CellWriter::finish() {
  for (std::ofstream* file : {&values_, &columns_, &begin_}) {
    file->close();
    if (file->fail()) return write_error();
  }
  return {};
}

}  // namespace oarlock::gears
