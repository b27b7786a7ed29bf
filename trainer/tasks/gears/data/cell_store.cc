#include "trainer/tasks/gears/data/cell_store.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "common/files.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

template <typename T>
std::span<const T> as(const MappedFile& file) {
  return {reinterpret_cast<const T*>(file.bytes().data()), file.bytes().size() / sizeof(T)};
}

tl::unexpected<Error> damaged(const fs::path& folder, const std::string& what) {
  return fail(ExitCode::kDataErr,
              fmt::format("{}: {}; remove the folder, so that it is made again", folder.string(), what));
}

Result<at::Tensor> read_matrix(const fs::path& path, int64_t rows, int64_t columns, at::ScalarType type) {
  const Result<MappedFile> file = MappedFile::open(path, MappedFile::Access::kSequential);
  if (!file) return tl::make_unexpected(file.error());
  at::Tensor matrix = at::empty({rows, columns}, type);
  if (file->bytes().size() != matrix.nbytes()) return damaged(path.parent_path(), path.filename().string() + " is cut");
  if (matrix.nbytes() > 0) std::memcpy(matrix.mutable_data_ptr(), file->bytes().data(), matrix.nbytes());
  return matrix;
}

}  // namespace

Result<CellStore> CellStore::open(const fs::path& folder) {
  std::vector<MappedFile> files;
  for (const char* name : {"values.f32", "columns.i32", "begin.i64", "condition.i32"}) {
    Result<MappedFile> file = MappedFile::open(folder / name, MappedFile::Access::kRandom);
    if (!file) return tl::make_unexpected(file.error());
    files.push_back(std::move(*file));
  }
  CellStore store(std::move(files[0]), std::move(files[1]), std::move(files[2]), std::move(files[3]));
  if (const Result<void> read = store.read_about(folder); !read) return tl::make_unexpected(read.error());
  if (const Result<void> sound = store.check(folder); !sound) return tl::make_unexpected(sound.error());
  store.cells_of_.resize(store.conditions_.size());
  for (int64_t cell = 0; cell < store.cells(); ++cell) {
    store.cells_of_[static_cast<size_t>(store.condition_of(cell))].push_back(cell);
  }
  return store;
}

Result<void> CellStore::read_about(const fs::path& folder) {
  const Result<std::string> text = read_file(folder / "about.json");
  if (!text) return tl::make_unexpected(text.error());
  const nlohmann::json about = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (about.is_discarded()) return damaged(folder, "about.json is no JSON");
  genes_ = about.at("genes").get<std::vector<std::string>>();
  for (const nlohmann::json& condition : about.at("conditions")) {
    conditions_.push_back({.name = condition.at("name"),
                           .cells = condition.at("cells"),
                           .de = condition.at("de"),
                           .non_dropout_de = condition.at("non_dropout_de")});
  }
  const int64_t conditions = std::ssize(conditions_);
  const Result<at::Tensor> means = read_matrix(folder / "means.f64", conditions, gene_count(), at::kDouble);
  if (!means) return tl::make_unexpected(means.error());
  const Result<at::Tensor> counted = read_matrix(folder / "counted.u8", conditions, gene_count(), at::kByte);
  if (!counted) return tl::make_unexpected(counted.error());
  means_ = *means;
  counted_ = counted->to(at::kBool);
  return {};
}

Result<void> CellStore::check(const fs::path& folder) const {
  const auto begin = as<int64_t>(begin_);
  const auto condition = as<int32_t>(condition_);
  const bool whole = std::ssize(begin) == cells() + 1 && std::is_sorted(begin.begin(), begin.end()) &&
                     begin.back() == std::ssize(as<float>(values_)) &&
                     begin.back() == std::ssize(as<int32_t>(columns_));
  const bool known = std::all_of(condition.begin(), condition.end(),
                                 [&](int32_t number) { return number >= 0 && number < std::ssize(conditions_); });
  if (!whole || !known) return damaged(folder, "its files do not fit together");
  return {};
}

int64_t CellStore::number_of(const std::string& condition) const {
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
    out[static_cast<size_t>(columns[i])] = values[i];
  }
}

}  // namespace oarlock
