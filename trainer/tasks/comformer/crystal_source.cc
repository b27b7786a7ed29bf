#include "trainer/tasks/comformer/crystal_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "trainer/data/extxyz.h"
#include "trainer/tasks/comformer/structure_list.h"

namespace oarlock {
namespace {

class ExtxyzCrystals final : public CrystalSource {
 public:
  ExtxyzCrystals(ExtxyzFile file, CrystalSourceOptions options)
      : file_(std::move(file)), options_(std::move(options)) {}

  int64_t size() const override { return file_.size(); }
  std::string place(int64_t structure) const override { return file_.place(structure); }

  Result<LabelledCrystal> read(int64_t structure) const override {
    Result<ExtxyzFrame> frame = file_.read(structure);
    if (!frame) return tl::make_unexpected(frame.error());
    Result<std::vector<double>> label = label_of(frame->info);
    if (!label) return fail(ExitCode::kDataErr, fmt::format("{}: {}", place(structure), label.error().message));
    return LabelledCrystal{.crystal = std::move(frame->crystal), .label = std::move(*label)};
  }

 private:
  Result<std::vector<double>> label_of(const ExtxyzInfo& info) const {
    const auto found = info.find(options_.target_property);
    if (found == info.end()) {
      std::vector<std::string> keys;
      for (const auto& [key, value] : info) keys.push_back(key);
      return fail(ExitCode::kDataErr, fmt::format("no '{}' (data.target_property) among {}", options_.target_property,
                                                  fmt::join(keys, ", ")));
    }
    Result<std::vector<double>> numbers = extxyz_numbers(found->second);
    if (!numbers) numbers.error().message = options_.target_property + ": " + numbers.error().message;
    return numbers.and_then(
        [&](const std::vector<double>& label) { return check_label(label, options_).map([&] { return label; }); });
  }

  ExtxyzFile file_;
  CrystalSourceOptions options_;
};

}  // namespace

Result<void> check_label(const std::vector<double>& label, const CrystalSourceOptions& options) {
  if (label.size() != static_cast<size_t>(options.targets)) {
    return fail(ExitCode::kDataErr, fmt::format("'{}' has {} numbers, but model.output_features is {}",
                                                options.target_property, label.size(), options.targets));
  }
  for (const double number : label) {
    if (!std::isfinite(number))
      return fail(ExitCode::kDataErr, fmt::format("'{}' is {}: a label is a finite number; take the structure out of "
                                                  "the file, or pick others by data.index",
                                                  options.target_property, number));
  }
  return {};
}

Result<std::unique_ptr<CrystalSource>> open_crystals(const CrystalSourceOptions& options) {
  if (options.path.extension() == ".json") return open_structure_list(options);
  return ExtxyzFile::open(options.path).map([&](ExtxyzFile file) -> std::unique_ptr<CrystalSource> {
    return std::make_unique<ExtxyzCrystals>(std::move(file), options);
  });
}

}  // namespace oarlock
