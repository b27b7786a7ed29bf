// AnnData files of each encoding, and their conversion to the training data of GEARS.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/support/gears_goldens.h"
#include "tests/support/temporary_directory.h"
#include "workloads/formats/hdf5/writer.h"
#include "workloads/gears/anndata.h"
#include "workloads/gears/cell_store.h"
#include "workloads/gears/conversion.h"

namespace oarlock::gears {
namespace {

using test::gears_file;
using test::gears_golden;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;
namespace fs = std::filesystem;

Hdf5Group open(const std::string& path) {
  Result<Hdf5Group> root = Hdf5Group::open_file(path);
  if (!root) throw std::runtime_error(root.error().message);
  return std::move(*root);
}

std::vector<float> row_sums(const ExpressionMatrix& matrix) {
  std::vector<float> sums;
  const Result<void> read = matrix.for_each_block([&](const SparseRows& block) -> Result<void> {
    EXPECT_EQ(block.first, std::ssize(sums));
    for (int64_t row = 0; row < block.rows(); ++row) {
      const auto begin = block.values.begin();
      sums.push_back(std::accumulate(begin + block.begin[static_cast<size_t>(row)],
                                     begin + block.begin[static_cast<size_t>(row) + 1], 0.0F));
    }
    return {};
  });
  EXPECT_TRUE(read) << read.error().message;
  return sums;
}

// A real file, as written before 0.7 and as anndata 0.12 reads it.
class Encoding : public ::testing::TestWithParam<const char*> {};

TEST_P(Encoding, CellsGenesAndLabelsAreThoseThatAnndataReads) {
  const Hdf5Group root = open(gears_file(GetParam()));
  const AnnDataFrame obs = AnnDataFrame::open(root, "obs").value();
  const AnnDataFrame var = AnnDataFrame::open(root, "var").value();
  EXPECT_EQ(obs.rows(), 40);
  EXPECT_EQ(var.rows(), 30);
  EXPECT_EQ(obs.index()->front(), "AAAGCCTGGCTAAC-1");
  EXPECT_EQ(var.index()->back(), "SMAP2");
  const std::vector<std::string> labels = obs.strings("bulk_labels").value();
  EXPECT_EQ(labels[0], "CD14+ Monocyte");
  EXPECT_EQ(labels[1], "Dendritic");
  EXPECT_EQ(labels[38], "CD8+/CD45RA+ Naive Cytotoxic");
  const ExpressionMatrix matrix = ExpressionMatrix::open(root).value();
  EXPECT_EQ(matrix.rows(), 40);
  EXPECT_EQ(matrix.columns(), 30);
  const std::vector<float> sums = row_sums(matrix);
  ASSERT_EQ(sums.size(), 40U);
  EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), 656.617, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(All, Encoding, ::testing::Values("legacy.h5ad", "anndata_0.7.h5ad", "nullable.h5ad"));

// The layer "dense" is what anndata reads from X (make_gears_anndata_0_12.py).
TEST(Anndata012, IsReadAsByAnndata) {
  const Hdf5Group root = open(gears_file("anndata_0.12.h5ad"));
  const AnnDataFrame obs = AnnDataFrame::open(root, "obs").value();
  const AnnDataFrame var = AnnDataFrame::open(root, "var").value();
  EXPECT_THAT(obs.strings("condition").value(), ElementsAre("ctrl", "A+ctrl", "ctrl", "B,b+ctrl", "A+ctrl", "ctrl"));
  EXPECT_THAT(obs.strings("cell_type").value(), ElementsAre("T", "", "T", "T", "B", "B"));
  EXPECT_EQ(obs.index()->back(), "cell5");
  EXPECT_THAT(var.strings("gene_name").value(), ElementsAre("A", "B,b", "C \"c\"", "Ångström-γ"));
  const std::vector<float> dense = root.dataset("layers/dense").value().read<float>().value();
  std::vector<float> read(dense.size());
  const Result<void> done = ExpressionMatrix::open(root).value().for_each_block([&](const SparseRows& block) {
    for (int64_t row = 0; row < block.rows(); ++row) {
      for (auto i = static_cast<size_t>(block.begin[static_cast<size_t>(row)]);
           i < static_cast<size_t>(block.begin[static_cast<size_t>(row) + 1]); ++i)
        read[static_cast<size_t>((block.first + row) * 4 + block.columns[i])] = block.values[i];
    }
    return Result<void>();
  });
  EXPECT_TRUE(done);
  EXPECT_EQ(read, dense);
}

TEST(AnnDataFrame, AMissingStringIsMissing) {
  const AnnDataFrame obs = AnnDataFrame::open(open(gears_file("nullable.h5ad")), "obs").value();
  EXPECT_EQ(obs.labels("bulk_labels")->codes.back(), -1);
  EXPECT_FALSE(obs.has("phase"));
  const auto missing = obs.labels("phase");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr("gears_nullable.h5ad"), HasSubstr("/obs/phase does not exist")));
}

TEST(ExpressionMatrix, DenseAndSparseOfAnyNumbersAreTheSame) {
  const test::TemporaryDirectory directory;
  const auto sums_of = [&](const std::string& name, const std::function<void(Hdf5Writer&)>& write) {
    const fs::path path = directory.path() / name;
    {
      Hdf5Writer file(path);
      write(file);
    }
    return row_sums(ExpressionMatrix::open(open(path)).value());
  };
  EXPECT_THAT(sums_of("f64", [](Hdf5Writer& f) { f.numbers<double>("X", {0, 1.5, 2, 0, 0, 0, 3, 0, 4}, {3, 3}); }),
              ElementsAre(3.5F, 0, 7));
  EXPECT_THAT(sums_of("u8", [](Hdf5Writer& f) { f.numbers<uint8_t>("X", {0, 1, 2, 250}, {2, 2}, 1); }),
              ElementsAre(1, 252));
  const auto csr = [](Hdf5Writer& f) {
    f.group("X");
    f.attribute("X", "encoding-type", "csr_matrix");
    f.attribute("X", "shape", std::vector<int64_t>{3, 3});
    f.numbers<int64_t>("X/data", {1, 2, 3}, {3});
    f.numbers<int64_t>("X/indices", {0, 2, 1}, {3});
    f.numbers<int64_t>("X/indptr", {0, 2, 2, 3}, {4});
  };
  EXPECT_THAT(sums_of("csr", csr), ElementsAre(3, 0, 3));
}

// Each row is what scipy.sparse.csr_matrix((data, indices, indptr)).toarray() returns.
TEST(ExpressionMatrix, SumsDuplicatesAndSortsColumnsLikeScipy) {
  struct Row {
    const char* name;
    std::vector<float> data;
    std::vector<int32_t> indices;
    std::vector<int64_t> indptr;
    std::vector<int64_t> columns;  // of the elements that are read
    std::vector<float> values;
  };
  const Row kRows[] = {
      {.name = "duplicates next to each other",
       .data = {1, 2, 4},
       .indices = {1, 1, 2},
       .indptr = {0, 3, 3},
       .columns = {1, 2},
       .values = {3, 4}},
      {.name = "unsorted",
       .data = {1, 2, 4},
       .indices = {2, 0, 1},
       .indptr = {0, 2, 3},
       .columns = {0, 2, 1},
       .values = {2, 1, 4}},
      {.name = "unsorted duplicates in the second row, of more values than columns",
       .data = {7, 1, 2, 4, 8, 16},
       .indices = {0, 2, 0, 2, 0, 2},
       .indptr = {0, 1, 6},
       .columns = {0, 0, 2},
       .values = {7, 10, 21}},
      {.name = "duplicates that cancel out",
       .data = {1, -1},
       .indices = {1, 1},
       .indptr = {0, 2, 2},
       .columns = {1},
       .values = {0}},
      {.name = "values after the last row",
       .data = {1, 2, 4},
       .indices = {0, 1, 2},
       .indptr = {0, 1, 2},
       .columns = {0, 1},
       .values = {1, 2}},
  };
  for (const Row& row : kRows) {
    const test::TemporaryDirectory directory;
    {
      Hdf5Writer file(directory.path() / "csr");
      file.group("X");
      file.attribute("X", "encoding-type", "csr_matrix");
      file.attribute("X", "shape", std::vector<int64_t>{2, 3});
      file.numbers("X/data", row.data, {row.data.size()});
      file.numbers("X/indices", row.indices, {row.indices.size()});
      file.numbers("X/indptr", row.indptr, {row.indptr.size()});
    }
    const auto matrix = ExpressionMatrix::open(open(directory.path() / "csr"));
    ASSERT_TRUE(matrix) << row.name << ": " << matrix.error().message;
    const Result<void> read = matrix->for_each_block([&](const SparseRows& block) -> Result<void> {
      EXPECT_THAT(block.columns, ::testing::ElementsAreArray(row.columns)) << row.name;
      EXPECT_EQ(block.values, row.values) << row.name;
      EXPECT_EQ(block.begin.size(), 3U) << row.name;
      EXPECT_EQ(block.begin.back(), std::ssize(row.values)) << row.name;
      return {};
    });
    EXPECT_TRUE(read) << row.name;
  }
}

// Sizes that agree with each other, but not with the file.
TEST(ExpressionMatrix, RejectsImpossibleSizes) {
  const test::TemporaryDirectory directory;
  const auto error_of = [&](std::vector<int64_t> shape, const std::vector<int64_t>& indptr,
                            int64_t values) -> std::string {
    const fs::path path = directory.path() / "csr";
    {
      Hdf5Writer file(path);
      file.group("X");
      file.attribute("X", "encoding-type", "csr_matrix");
      file.attribute("X", "shape", shape);
      const auto count = static_cast<hsize_t>(values);
      const hsize_t chunk = std::min<hsize_t>(count, 1000);
      H5Dclose(file.dataset("X/data", H5T_NATIVE_FLOAT, {count}, chunk));
      H5Dclose(file.dataset("X/indices", H5T_NATIVE_INT32, {count}, chunk));
      file.numbers<int64_t>("X/indptr", indptr, {indptr.size()});
    }
    const Result<void> read = ExpressionMatrix::open(open(path)).and_then([](const ExpressionMatrix& matrix) {
      return matrix.for_each_block([](const SparseRows&) { return Result<void>(); });
    });
    if (read) return "it was read";
    EXPECT_EQ(read.error().code, ExitCode::kDataErr);
    return read.error().message;
  };
  EXPECT_THAT(error_of({-1, 3}, {}, 0), HasSubstr("does not fit together"));
  EXPECT_THAT(error_of({INT64_MAX, 3}, {0}, 0), HasSubstr("does not fit together"));
  constexpr int64_t kMany = int64_t{1} << 40;  // of one cell, which a block contains as a whole
  EXPECT_THAT(error_of({1, 3}, {0, kMany}, kMany), HasSubstr("cannot contain"));
}

// A small file that GEARS can use, with one thing wrong.
struct TinyFile {
  test::TemporaryDirectory directory;
  fs::path path = directory.path() / "tiny.h5ad";
  std::vector<std::string> conditions{"ctrl", "A+ctrl", "ctrl"};
  std::vector<float> values{1, 2, 3, 4};
  std::vector<int32_t> indices{0, 1, 0, 1};
  std::vector<int64_t> begin{0, 2, 3, 4};
  std::string encoding = "csr_matrix";
  std::string condition_column = "condition";
  std::vector<std::string> genes{"A", "B"};
  bool nullable = false;  // as anndata 0.12 with pandas 3: strings are groups of values and mask, also of categories

  static void write_nullable(Hdf5Writer& file, const std::string& name, const std::vector<std::string>& values) {
    file.group(name);
    file.attribute(name, "encoding-type", "nullable-string-array");
    file.strings(name + "/values", values);
    file.numbers<uint8_t>(name + "/mask", std::vector<uint8_t>(values.size()), {values.size()});
  }

  void write_conditions(Hdf5Writer& file) const {
    const std::string column = "obs/" + condition_column;
    if (!nullable) return file.strings(column, conditions);
    file.group(column);
    file.attribute(column, "encoding-type", "categorical");
    std::vector<int8_t> codes(conditions.size());
    std::iota(codes.begin(), codes.end(), 0);
    file.numbers(column + "/codes", codes, {codes.size()});
    write_nullable(file, column + "/categories", conditions);
  }

  Result<void> convert() {
    {
      Hdf5Writer file(path);
      file.group("X");
      file.attribute("X", "encoding-type", encoding);
      file.attribute("X", "shape", std::vector<int64_t>{3, 2});
      file.numbers("X/data", values, {values.size()});
      file.numbers("X/indices", indices, {indices.size()});
      file.numbers("X/indptr", begin, {begin.size()});
      file.group("obs");
      file.attribute("obs", "_index", "_index");
      file.strings("obs/_index", {"c0", "c1", "c2"});
      write_conditions(file);
      file.group("var");
      file.attribute("var", "_index", "_index");
      if (nullable) {
        write_nullable(file, "var/_index", genes);
        file.group("uns");
        file.group("uns/top_non_dropout_de_20");
        write_nullable(file, "uns/top_non_dropout_de_20/_A+ctrl_1+1", {genes[1]});
      } else {
        file.strings("var/_index", genes);
      }
    }
    fs::create_directories(directory.path() / "out");
    return convert_anndata(path, directory.path() / "out", Logger::silent());
  }
};

TEST(GearsConversion, AFileWithoutStatisticsGetsThem) {
  TinyFile file;
  ASSERT_TRUE(file.convert());
  const CellStore store = CellStore::open(file.directory.path() / "out").value();
  EXPECT_EQ(store.cells(), 3);
  EXPECT_THAT(store.genes(), ElementsAre("A", "B"));
  EXPECT_EQ(store.conditions()[0].name, "ctrl");
  EXPECT_EQ(store.conditions()[0].cells, 2);
  EXPECT_THAT(store.cells_of(0), ElementsAre(0, 2));
  EXPECT_EQ(store.index_of("A+ctrl"), 1);
  EXPECT_EQ(store.index_of("B+ctrl"), -1);
  std::vector<float> cell(2);
  store.expression(2, cell);
  EXPECT_THAT(cell, ElementsAre(0, 4));
  EXPECT_DOUBLE_EQ(store.means()[0][1].item<double>(), 3);
  EXPECT_TRUE(store.counted()[1][0].item<bool>());
  EXPECT_FALSE(store.counted()[1][1].item<bool>()) << "zero in every perturbed cell";
  EXPECT_EQ(store.conditions()[1].de.size(), 2U);
}

TEST(GearsConversion, ReadsNullableStringsOfAnndata012) {
  TinyFile file;
  file.nullable = true;
  const Result<void> converted = file.convert();
  ASSERT_TRUE(converted) << converted.error().message;
  const CellStore store = CellStore::open(file.directory.path() / "out").value();
  EXPECT_THAT(store.genes(), ElementsAre("A", "B"));
  EXPECT_EQ(store.index_of("A+ctrl"), 1);
  EXPECT_THAT(store.conditions()[1].non_dropout_de, ElementsAre(1));
}

TEST(GearsConversion, SumsDuplicatesInStatistics) {
  TinyFile file;
  file.values = {1, 2, 3, 1, 3};
  file.indices = {0, 1, 0, 1, 1};
  file.begin = {0, 2, 3, 5};
  const Result<void> converted = file.convert();
  ASSERT_TRUE(converted) << converted.error().message;
  const CellStore store = CellStore::open(file.directory.path() / "out").value();
  std::vector<float> cell(2);
  store.expression(2, cell);
  EXPECT_THAT(cell, ElementsAre(0, 4));
  EXPECT_DOUBLE_EQ(store.means()[0][1].item<double>(), 3);
}

TEST(GearsConversion, ReadsNamesOfLatin1AndWithCommas) {
  TinyFile file;
  file.genes = {"IFN-\xDF", "a,\"b\""};
  const Result<void> converted = file.convert();
  ASSERT_TRUE(converted) << converted.error().message;
  EXPECT_THAT(CellStore::open(file.directory.path() / "out").value().genes(), ElementsAre("IFN-ß", "a,\"b\""));
}

TEST(GearsConversion, MalformedFilesAreOneClearLine) {
  const auto message_of = [](const std::function<void(TinyFile&)>& spoil) {
    TinyFile file;
    spoil(file);
    const Result<void> converted = file.convert();
    EXPECT_FALSE(converted);
    if (converted) return std::string();
    EXPECT_EQ(to_int(converted.error().code), to_int(ExitCode::kDataErr));
    EXPECT_EQ(converted.error().message.find('\n'), std::string::npos);
    EXPECT_THAT(converted.error().message, HasSubstr("tiny.h5ad"));
    return converted.error().message;
  };
  EXPECT_THAT(message_of([](TinyFile& f) { f.condition_column = "perturbation"; }),
              HasSubstr("/obs/condition does not exist"));
  EXPECT_THAT(message_of([](TinyFile& f) { f.conditions = {"A+ctrl", "A+ctrl", "B+ctrl"}; }),
              HasSubstr("no cell has the condition \"ctrl\""));
  EXPECT_THAT(message_of([](TinyFile& f) { f.conditions = {"ctrl"}; }), HasSubstr("/obs/condition has 1 rows"));
  EXPECT_THAT(message_of([](TinyFile& f) { f.values[2] = std::nanf(""); }),
              AllOf(HasSubstr("/X/data"), HasSubstr("cell 1, gene 0: nan")));
  EXPECT_THAT(message_of([](TinyFile& f) { f.indices[3] = 2; }),
              AllOf(HasSubstr("/X/data"), HasSubstr("cell 2 has a value of gene 2, but there are 2 genes")));
  EXPECT_THAT(message_of([](TinyFile& f) { f.indices[3] = -1; }), HasSubstr("cell 2 has a value of gene -1"));
  EXPECT_THAT(message_of([](TinyFile& f) { f.begin.back() = 9; }),
              HasSubstr("/X does not fit together: indptr ends with 9, but data has 4 values"));
  EXPECT_THAT(message_of([](TinyFile& f) { f.begin.front() = 1; }), HasSubstr("indptr begins with 1, expected 0"));
  EXPECT_THAT(message_of([](TinyFile& f) { f.begin[2] = 1; }), HasSubstr("indptr decreases to 1 at row 1"));
  EXPECT_THAT(message_of([](TinyFile& f) { f.begin.pop_back(); }), HasSubstr("indptr has 3 numbers for 3 rows"));
  EXPECT_THAT(message_of([](TinyFile& f) { f.values.pop_back(); }),
              HasSubstr("/X does not fit together: data has 3 values, indices has 4"));
  EXPECT_THAT(message_of([](TinyFile& f) { f.encoding = "csc_matrix"; }), HasSubstr("tocsr()"));
}

std::set<int64_t> number_set_of(const nlohmann::json& names, const std::vector<std::string>& genes) {
  std::set<int64_t> out;
  for (const std::string name : names) out.insert(std::find(genes.begin(), genes.end(), name) - genes.begin());
  return out;
}

// With the original's statistics in uns, and without: then they are computed, and are the same.
TEST(GearsConversion, StatisticsAreTheOriginalsReadOrComputed) {
  const nlohmann::json golden = gears_golden("dataset.json");
  for (const char* name : {"perturb_processed.h5ad", "tiny_input.h5ad"}) {
    const test::TemporaryDirectory directory;
    const Result<void> converted = convert_anndata(gears_file(name), directory.path(), Logger::silent());
    ASSERT_TRUE(converted) << converted.error().message;
    const CellStore store = CellStore::open(directory.path()).value();
    EXPECT_EQ(store.cells(), 384);
    EXPECT_EQ(store.genes(), golden["genes"].get<std::vector<std::string>>());
    std::vector<std::string> names;
    for (size_t i = 0; i < store.conditions().size(); ++i) {
      const CellCondition& condition = store.conditions()[i];
      names.push_back(condition.name);
      const std::string key = golden["condition_name_of"][condition.name];
      if (condition.name == "ctrl") continue;
      // Gene 18 is the same in all cells of this condition: rounding makes scanpy's variance of it negative, its t NaN,
      // and puts it last. Computed here, it is one of the first.
      if (key == "A549_G06+G10_1+1" && std::string(name) == "tiny_input.h5ad") {
        EXPECT_EQ(condition.de[1], 18);
        continue;
      }
      const nlohmann::json ranking = golden["uns"]["rank_genes_groups_cov_all"][key];
      const nlohmann::json top(ranking.begin(), ranking.begin() + 20);
      EXPECT_EQ(std::set(condition.de.begin(), condition.de.end()), number_set_of(top, store.genes())) << key;
      EXPECT_EQ(std::set(condition.non_dropout_de.begin(), condition.non_dropout_de.end()),
                number_set_of(golden["uns"]["top_non_dropout_de_20"][key], store.genes()))
          << key;
      std::vector<int64_t> counted;
      for (int64_t gene = 0; gene < store.gene_count(); ++gene) {
        if (store.counted()[static_cast<int64_t>(i)][gene].item<bool>()) counted.push_back(gene);
      }
      EXPECT_EQ(counted, golden["uns"]["non_zeros_gene_idx"][key].get<std::vector<int64_t>>()) << key;
    }
    EXPECT_EQ(names, golden["conditions_in_order"].get<std::vector<std::string>>());
  }
}

int64_t peak_kib() {
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Zeros that no disk holds: a file whose matrix would be 4 GB in memory.
TEST(GearsConversion, ALargeFileTakesLittleMemory) {
  constexpr hsize_t kCells = 200'000;
  constexpr hsize_t kGenes = 5'000;
  const test::TemporaryDirectory directory;
  const fs::path path = directory.path() / "large.h5ad";
  {
    Hdf5Writer file(path);
    H5Dclose(file.dataset("X", H5T_NATIVE_FLOAT, {kCells, kGenes}, 200));
    file.group("obs");
    file.attribute("obs", "_index", "condition");
    file.group("obs/condition");
    file.strings("obs/condition/categories", {"ctrl", "G1+ctrl"});
    std::vector<int8_t> codes(kCells, 0);
    codes.back() = 1;
    file.numbers("obs/condition/codes", codes, {kCells});
    file.group("var");
    file.attribute("var", "_index", "_index");
    std::vector<std::string> genes;
    for (hsize_t i = 0; i < kGenes; ++i) genes.push_back("G" + std::to_string(i));
    file.strings("var/_index", genes);
  }
  const fs::path out = directory.path() / "out";
  fs::create_directories(out);
  const int64_t before = peak_kib();
  const Result<void> converted = convert_anndata(path, out, Logger::silent());
  ASSERT_TRUE(converted) << converted.error().message;
  const int64_t grown = peak_kib() - before;
  RecordProperty("peak_rss_grew_kib", std::to_string(grown));
  std::printf("peak RSS grew by %ld KiB for a matrix of %llu MiB\n", static_cast<long>(grown),
              kCells * kGenes * sizeof(float) >> 20);
#ifndef OARLOCK_SANITIZED  // AddressSanitizer keeps released memory
  EXPECT_LT(grown, 64 << 10);
#endif
  EXPECT_EQ(CellStore::open(out)->cells(), static_cast<int64_t>(kCells));
}

TEST(GearsRanking, ByWelchsT) {
  GroupSums sums(2, 3);
  sums.cells = {2, 2};
  sums.sum = {2, 10, 4, 4, 10, 4};  // means 1 5 2 | 2 5 2
  sums.squares = {2.5, 50, 9, 8.5, 50, 8};
  EXPECT_DOUBLE_EQ(sums.mean(1, 0), 2);
  EXPECT_DOUBLE_EQ(sums.variance(0, 0), 0.5);
  EXPECT_DOUBLE_EQ(sums.variance(0, 1), 0);
  EXPECT_THAT(rank_genes(sums, 1, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(
      top_non_dropout(std::vector<int64_t>{2, 0, 1}, std::vector<double>{1, 0, 0}, std::vector<double>{1, 1, 0}),
      ElementsAre(2, 0));
}

}  // namespace
}  // namespace oarlock::gears
