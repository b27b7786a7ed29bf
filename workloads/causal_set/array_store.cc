#include "workloads/causal_set/array_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "workloads/formats/hdf5/reader.h"

namespace oarlock::causal_set {

namespace {

namespace fs = std::filesystem;

class ZarrArray final : public StoredArray {
 public:
  explicit ZarrArray(zarr::Array array) : array_(std::move(array)), place_(array_.directory().string()) {}

  const std::vector<int64_t>& shape() const override { return array_.shape(); }
  int64_t chunk_length(size_t axis) const override { return array_.chunk()[axis]; }
  Result<std::vector<double>> read(std::span<const int64_t> begin, std::span<const int64_t> count) const override {
    return array_.read_doubles(begin, count);
  }
  const std::string& place() const override { return place_; }

 private:
  zarr::Array array_;
  std::string place_;
};

class ZarrStore final : public ArrayStore {
 public:
  ZarrStore(fs::path path, zarr::MissingChunks missing) : path_(std::move(path)), missing_(missing) {}

  const fs::path& path() const override { return path_; }
  std::vector<std::string> names() const override { return zarr::array_names(path_); }
  bool has(const std::string& name) const override {
    std::error_code ignored;
    return fs::exists(path_ / name / "zarr.json", ignored) || fs::exists(path_ / name / ".zarray", ignored);
  }
  Result<std::unique_ptr<StoredArray>> open(const std::string& name) const override {
    return zarr::Array::open(path_ / name, missing_).map([](zarr::Array array) -> std::unique_ptr<StoredArray> {
      return std::make_unique<ZarrArray>(std::move(array));
    });
  }
  std::vector<fs::path> sources(std::span<const std::string> names) const override {
    std::vector<fs::path> out;
    for (const std::string& name : names)
      if (has(name)) out.push_back(path_ / name);
    return out;
  }

 private:
  fs::path path_;
  zarr::MissingChunks missing_;
};

class Hdf5Array final : public StoredArray {
 public:
  explicit Hdf5Array(Hdf5Dataset dataset)
      : dataset_(std::move(dataset)), place_(fmt::format("{}: {}", dataset_.place().file, dataset_.place().path)) {}

  const std::vector<int64_t>& shape() const override { return dataset_.shape(); }
  int64_t chunk_length(size_t /*axis*/) const override { return 1; }
  Result<std::vector<double>> read(std::span<const int64_t> begin, std::span<const int64_t> count) const override {
    return dataset_.read_box(begin, count);
  }
  const std::string& place() const override { return place_; }

 private:
  Hdf5Dataset dataset_;
  std::string place_;
};

class Hdf5Store final : public ArrayStore {
 public:
  Hdf5Store(fs::path path, Hdf5Group root) : path_(std::move(path)), root_(std::move(root)) {}

  const fs::path& path() const override { return path_; }
  std::vector<std::string> names() const override {
    std::vector<std::string> out = root_.names().value_or(std::vector<std::string>());
    std::erase_if(out, [&](const std::string& name) { return !root_.has_dataset(name); });
    std::sort(out.begin(), out.end());
    return out;
  }
  bool has(const std::string& name) const override { return root_.has_dataset(name); }
  Result<std::unique_ptr<StoredArray>> open(const std::string& name) const override {
    return root_.dataset(name).map([](Hdf5Dataset dataset) -> std::unique_ptr<StoredArray> {
      return std::make_unique<Hdf5Array>(std::move(dataset));
    });
  }
  std::vector<fs::path> sources(std::span<const std::string> /*names*/) const override { return {path_}; }

 private:
  fs::path path_;
  Hdf5Group root_;
};

}  // namespace

Result<std::unique_ptr<ArrayStore>> open_store(const fs::path& path, zarr::MissingChunks missing) {
  using Store = std::unique_ptr<ArrayStore>;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return Store(std::make_unique<ZarrStore>(path, missing));
  return Hdf5Group::open_file(path).map(
      [&](Hdf5Group root) { return Store(std::make_unique<Hdf5Store>(path, std::move(root))); });
}

}  // namespace oarlock::causal_set
