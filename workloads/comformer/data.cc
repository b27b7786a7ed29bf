#include "workloads/comformer/data.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/std.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <array>
#include <numeric>
#include <string>
#include <string_view>

#include "common/files.h"
#include "common/status_macros.h"
#include "trainer/data/fingerprint.h"
#include "trainer/data/random.h"

namespace oarlock::comformer {

Result<CrystalSplit> split_crystals(int64_t size, const SplitConfig& config) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  if (!config.keep_order) PythonRandom(static_cast<uint64_t>(config.seed)).shuffle(order);
  const auto share = [&](double ratio) { return static_cast<int64_t>(ratio * static_cast<double>(size)); };
  const int64_t train = share(config.train_ratio);
  const int64_t val = share(config.val_ratio);
  const int64_t test = share(config.test_ratio);
  if (train == 0 || val == 0 || (test == 0 && config.test_ratio > 0)) {
    return fail(ExitCode::kDataErr,
                fmt::format("{} structures give {} for training, {} for validation and {} for the test: add "
                            "structures, or change the ratios of the split",
                            size, train, val, test));
  }
  const auto end = order.end();
  return CrystalSplit{.train = {order.begin(), order.begin() + train},
                      .val = {end - (val + test), end - test},
                      .test = {end - test, end}};
}

void CrystalDataset::make_batch(std::span<const int64_t> indices, uint64_t /*seed*/, Batch& batch) const {
  std::vector<int64_t> graphs;
  graphs.reserve(indices.size());
  for (const int64_t index : indices) graphs.push_back(graphs_.at(static_cast<size_t>(index)));
  collation_->collate(graphs, batch);
}

at::Tensor CrystalDataset::labels() const {
  return collation_->arrays().graphs.at("label").index_select(0, at::tensor(graphs_));
}

std::string CrystalDataset::fingerprint() const {
  FingerprintBuilder out;
  out.add(labels());
  out.add(collation_->arrays().graphs.at("content").index_select(0, at::tensor(graphs_)));
  return out.text();
}

LabelScaler::LabelScaler(const at::Tensor& labels) : mean_(labels.mean(0)) {
  deviation_ = labels.size(0) > 1 ? labels.std(0, /*unbiased=*/true) : at::ones_like(mean_);
  deviation_ = at::where(deviation_ > 0, deviation_, at::ones_like(deviation_));
}

void LabelScaler::move_to(at::Device device) {
  if (mean_.device() == device) return;
  mean_ = mean_.to(device);
  deviation_ = deviation_.to(device);
}

at::Tensor LabelScaler::standardize(const at::Tensor& labels) const { return (labels - mean_) / deviation_; }

at::Tensor LabelScaler::restore(const at::Tensor& standardize) const {
  return standardize.to(at::kDouble) * deviation_ + mean_;
}

namespace {

// Row z - 1 has the 92 bits of element z, highest bit first, as 23 hexadecimal digits. Group, period,
// electronegativity, covalent radius, valence electrons, ionization energy, electron affinity, block and atomic volume,
// each one-hot.
constexpr std::array<std::string_view, kFeaturedElements> kRows{
    "40001002080200008042020", "00003000080100001002008", "40000810008200100042040", "20000804010100020802200",
    "00040802020080020081200", "00020801020040010021200", "00010800420020008201020", "00008800240010008021020",
    "00004800140008004005020", "00002800040004002001020", "40000410004200100042010", "20000408004100040002020",
    "00040404008080080041080", "00020404008040040021040", "00010402010020010041020", "00008401010010010011020",
    "00004400410008008005010", "00002400010004004001008", "40000220001200200042002", "20000210002100080082008",
    "10000208004080080080820", "08000208008040040080840", "04000204008020040040880", "02000204008010040040900",
    "01000204008008040000900", "00800204008004040080900", "00400204010002040040900", "00200202010001040020900",
    "00100204010000840020900", "00080204008000420000880", "00040204008080080041040", "00020202008040040021040",
    "00010202008020020041040", "00008201008010020011020", "00004200410008010005010", "00002200008004008001004",
    "40000120000a00200042001", "20000110001100080082004", "10000108002080080080810", "08000108004040080040820",
    "04000104004020040040840", "02000102004010040040880", "01000102008008040040880", "00800102008004040020880",
    "00400101008002040020880", "00200102008000420040880", "00100102008000840020880", "00080104008000420000840",
    "00040104004080080081020", "00020102004040040021020", "00010102004020020021010", "00008102008010020011010",
    "00004100808008010005008", "00002100808004010081002", "400000a0000600200042001", "20000090001100100082004",
    "80000090002100080040410", "80000090002100080040410", "80000090002100100040410", "80000090002100080010410",
    "80000080002100080000400", "80000090002100080000410", "80000080002100080040408", "80000090002100080000410",
    "80000080002100080020410", "80000088002100080040410", "80000088002100080000410", "80000088002100080000410",
    "80000088002100080020420", "80000080002100080080408", "10000090002080100080820", "08000088004040040080840",
    "04000088004020040080840", "02000084008010040040880", "01000084008008040080880", "00800082008004020020880",
    "00400082008002020020880", "00200082008001020010880", "00100081008000820010880", "00080084008000410000820",
    "00040084004080080041020", "00020084004040040041010", "00010084004020040041010", "00008082004010020011010",
    "00004082004008020009000", "00002080004004010001000", "40000060000a00200042000", "20000050001100100082002",
    "80000050001100100040410", "80000048002100080000410", "80000048002100080000420", "80000044002100080000440",
    "80000048002100080000410", "80000048002100080000400", "80000040002100080000410", "80000040002100080000410",
    "80000040002100080000400", "80000040002100080000400", "80000040002100080000400", "80000040002100080000400"};

int digit_value(char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; }

}  // namespace

at::Tensor atom_features() {
  at::Tensor table = at::zeros({kFeaturedElements + 1, kAtomFeatures}, at::kFloat);
  auto* feature = table.mutable_data_ptr<float>() + kAtomFeatures;
  for (const std::string_view row : kRows) {
    for (const char digit : row) {
      for (int bit = 3; bit >= 0; --bit) *feature++ = static_cast<float>((digit_value(digit) >> bit) & 1);
    }
  }
  return table;
}

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
    RETURN_IF_ERROR(make_writable_directory(path.parent_path()));
  }
  return write_file_atomically(path, text);
}

}  // namespace oarlock::comformer
