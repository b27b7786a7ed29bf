#include "trainer/tasks/comformer/predictions.h"

#include <fmt/format.h>

#include <string>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock::comformer {

Metrics regression_metrics(const EvalRows& rows) {
  const at::Tensor& target = rows.columns.at("target");
  const at::Tensor error = rows.columns.at("prediction") - target;
  const at::Tensor spread = (target - target.mean(0)).square().sum(0);
  const at::Tensor r2 = 1 - error.square().sum(0) / spread;
  return {{"mae", error.abs().mean().item<double>()},
          {"rmse", error.square().mean().sqrt().item<double>()},
          {"r2", r2.mean().item<double>()}};
}

Result<void> write_predictions(const std::filesystem::path& path, const EvalRows& rows) {
  const at::Tensor& target = rows.columns.at("target");
  const at::Tensor& prediction = rows.columns.at("prediction");
  const int64_t targets = target.size(1);
  std::string text = "id";
  for (const char* column : {"target", "prediction"}) {
    for (int64_t i = 0; i < targets; ++i)
      text += targets == 1 ? fmt::format(",{}", column) : fmt::format(",{}_{}", column, i);
  }
  text += "\n";
  const auto* structure = rows.columns.at("structure").const_data_ptr<double>();
  for (int64_t row = 0; row < target.size(0); ++row) {
    text += fmt::format("{}", static_cast<int64_t>(structure[row]));
    for (const at::Tensor& column : {target, prediction}) {
      const at::Tensor values = column[row].contiguous();
      for (int64_t i = 0; i < targets; ++i) text += fmt::format(",{}", values.const_data_ptr<double>()[i]);
    }
    text += "\n";
  }
  if (path.has_parent_path()) {
    RETURN_IF_ERROR(make_writable_folder(path.parent_path()));
  }
  return write_file_atomically(path, text);
}

}  // namespace oarlock::comformer
