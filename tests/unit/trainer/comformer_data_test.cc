// Conversion of crystal files to mapped graphs: lists, labels, the cache, splits, and the errors for invalid files.
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/trainer/comformer_files.h"
#include "tests/unit/trainer/comformer_golden.h"
#include "tests/unit/trainer/expect_close.h"
#include "trainer/data/graph_archive.h"
#include "workloads/comformer/data.h"
#include "workloads/comformer/generator.h"
#include "workloads/comformer/graph_cache.h"
#include "workloads/formats/json_list.h"

namespace oarlock::comformer {
namespace {

namespace fs = std::filesystem;
using test::expect_close;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;

void write_crystals(const fs::path& path, CrystalFamily family, int64_t count, uint64_t seed = 1) {
  std::ofstream out(path);
  for (int64_t i = 0; i < count; ++i) out << extxyz_frame(generated_crystal(family, i, seed), kProperty);
}

CrystalDataConfig config_of(const fs::path& path) {
  CrystalDataConfig config;
  config.path = path;
  config.target_property = kProperty;
  return config;
}

std::vector<std::string> entries(const fs::path& directory, const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with(prefix)) names.push_back(entry.path().filename());
  }
  return names;
}

std::string prepare_error(const std::string& text, const CrystalGraphOptions& options = {}) {
  const TemporaryDirectory directory;
  write(directory.path() / "c.xyz", text);
  CrystalDataConfig config = config_of(directory.path() / "c.xyz");
  config.graph = options;
  const auto prepared = prepare_crystal_graphs(config, 1, Logger::silent());
  if (prepared) return "it was prepared";
  EXPECT_EQ(prepared.error().code, ExitCode::kDataErr);
  EXPECT_TRUE(entries(directory.path() / "c.xyz.oarlock", "graphs-").empty());
  return prepared.error().message;
}

// Functions on JSON are recursive, and a value can be as long as the file.
TEST(GraphCache, WrongLabelsAndElementsAreNamedByLine) {
  const std::string good = "1\nLattice=\"3 0 0 0 3 0 0 0 3\" formation_energy_per_atom=1\nFe 0 0 0\n";
  const auto second = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return prepare_error(good + text.replace(text.find(from), from.size(), to));
  };
  EXPECT_EQ(second("=1", "=2"), "it was prepared");
  EXPECT_THAT(second("=1", "=nan"),
              AllOf(HasSubstr("c.xyz:5 (frame 1): "), HasSubstr("is nan: a label must be a finite")));
  EXPECT_THAT(second("=1", "=one"), HasSubstr("'one' is not a number"));
  EXPECT_THAT(second("=1", "=\"1 2\""), HasSubstr("has 2 numbers, but model.output_features is 1"));
  EXPECT_THAT(second("formation_", ""),
              AllOf(HasSubstr("no 'formation_energy_per_atom'"), HasSubstr("energy_per_atom")));
  EXPECT_THAT(second("Fe 0", "Lr 0"),
              AllOf(HasSubstr("(frame 1): there are no features of the element Lr"), HasSubstr("Fm")));
}

struct BadCell {
  const char* lattice;
  const char* atom = "Fe 0 0 0";
  double cutoff = 4;
  const char* reason;
};

// Without a bound, preparing these data would not end.
TEST(GraphCache, RejectsCellsWhoseNeighborSearchIsTooLong) {
  const BadCell cells[] = {
      {.lattice = "0 0 0 0 0 0 0 0 0", .reason = "spans no volume"},
      {.lattice = "1 2 3 2 4 6 0 0 1", .reason = "spans no volume"},
      {.lattice = "nan 0 0 0 3 0 0 0 3", .reason = "must be finite and linearly independent"},
      {.lattice = "inf 0 0 0 3 0 0 0 3", .reason = "must be finite and linearly independent"},
      {.lattice = "1e-3 0 0 0 1e-3 0 0 0 1e-3", .reason = "within 4 angstrom"},
      {.lattice = "1e-100 0 0 0 1e-100 0 0 0 1e-100", .reason = "too small"},
      {.lattice = "1 0 0 0 1 0 0 0 1e-5", .reason = "a volume of 1e-05"},
      {.lattice = "1e-4 0 0 0 1 0 0 0 1e4", .reason = "edges of 0.0001, 1 and 1e+04 angstrom"},
      {.lattice = "1 0 0 1 2e-6 0 0 0 1", .reason = "too small, thin, oblique"},
      {.lattice = "0.2 0 0 0 0.2 0 0 0 0.2", .cutoff = 100, .reason = "reduce data.cutoff"},
      {.lattice = "1e100 0 0 0 1e100 0 0 0 1e100", .reason = "or large"},
      {.lattice = "1e150 0 0 0 1 0 0 0 1", .reason = "or large"},
      {.lattice = "3 0 0 0 3 0 0 0 3",
       .atom = "Fe 0 7e9 0",
       .reason = "atom 0 at 0 7e+09 0 is more than 1000000 cells"},
      {.lattice = "3 0 0 0 3 0 0 0 3", .atom = "Fe 0 0 1e300", .reason = "cells away"},
  };
  const std::string good = "1\nLattice=\"3 0 0 0 3 0 0 0 3\" formation_energy_per_atom=1\nFe 0 0 0\n";
  for (const BadCell& cell : cells) {
    for (const Ties ties : {Ties::kTolerant, Ties::kExact}) {
      SCOPED_TRACE(std::string(cell.lattice) + ", " + cell.atom);
      CrystalGraphOptions options;
      options.nearest.ties = ties;
      options.nearest.cutoff = cell.cutoff;
      const std::string text =
          std::string("1\nLattice=\"") + cell.lattice + "\" formation_energy_per_atom=1\n" + cell.atom + "\n";
      EXPECT_THAT(prepare_error(good + text, options),
                  AllOf(HasSubstr("c.xyz:5 (frame 1): "), HasSubstr(cell.reason), HasSubstr("correct ")));
    }
  }
}

TEST(GraphCache, NamesTheStructureOfAListWhoseCellIsTooSmall) {
  const TemporaryDirectory directory;
  write(directory.path() / "list.json",
        R"([{"lattice": [[1e-3,0,0],[0,1e-3,0],[0,0,1e-3]], "species": ["H"], "frac_coords": [[0,0,0]],
             "formation_energy_per_atom": 1}])");
  const auto prepared = prepare_crystal_graphs(config_of(directory.path() / "list.json"), 1, Logger::silent());
  ASSERT_FALSE(prepared);
  EXPECT_THAT(prepared.error().message, AllOf(HasSubstr("list.json (structure 0): "), HasSubstr("0.001 angstrom"),
                                              HasSubstr("leave the structure out by data.index")));
}

// Large, but not without bound: 1.6e7 pairs of atoms.
TEST(GraphCache, AcceptsCellsOfFourThousandAtoms) {
  std::string text = "4096\nLattice=\"48 0 0 0 48 0 0 0 48\" formation_energy_per_atom=1\n";
  for (int i = 0; i < 4096; ++i) text += fmt::format("Fe {} {} {}\n", i % 16 * 3, i / 16 % 16 * 3, i / 256 * 3);
  EXPECT_EQ(prepare_error(text), "it was prepared");
}

TEST(GraphCache, GraphsAreBuiltOnceForAContent) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "c.xyz";
  const fs::path cache = directory.path() / "c.xyz.oarlock";
  write_crystals(path, CrystalFamily::kTriclinic, 40);
  CrystalDataConfig config = config_of(path);
  const auto prepared = [&] {
    const auto done = prepare_crystal_graphs(config, 1, Logger::silent());
    EXPECT_TRUE(done) << done.error().message;
    const auto graphs = open_crystal_graphs(config, 1, Logger::silent());
    EXPECT_TRUE(graphs) << graphs.error().message;
    return graphs->graphs.size();
  };
  EXPECT_EQ(prepared(), 40);
  ASSERT_EQ(entries(cache, "graphs-").size(), 1U);
  const fs::path built = cache / entries(cache, "graphs-")[0];
  const auto when = fs::last_write_time(built / "graphs.json");

  EXPECT_EQ(prepared(), 40);
  // A copy with another time of change is the same content.
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(prepared(), 40);
  EXPECT_EQ(entries(cache, "graphs-").size(), 1U);
  EXPECT_EQ(fs::last_write_time(built / "graphs.json"), when);

  config.index = "::10";
  EXPECT_EQ(prepared(), 4);
  config.index = ":";
  config.graph.nearest.count = 12;
  EXPECT_EQ(prepared(), 40);
  EXPECT_EQ(entries(cache, "graphs-").size(), 3U);

  write_crystals(path, CrystalFamily::kTriclinic, 41);
  EXPECT_EQ(prepared(), 41);
  EXPECT_EQ(entries(cache, "graphs-").size(), 1U) << "those of the earlier content are removed";
}

// A process was killed while it wrote; another finds what it left.
TEST(GraphCache, IgnoresAPartlyWrittenArchive) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "c.xyz";
  const fs::path cache = directory.path() / "c.xyz.oarlock";
  write_crystals(path, CrystalFamily::kTriclinic, 5);
  const CrystalDataConfig config = config_of(path);
  ASSERT_TRUE(prepare_crystal_graphs(config, 1, Logger::silent()));
  const fs::path built = cache / entries(cache, "graphs-")[0];
  fs::rename(built, built.string() + ".part");
  fs::resize_file(built.string() + ".part/edge_index", 8);

  ASSERT_TRUE(prepare_crystal_graphs(config, 1, Logger::silent()));
  EXPECT_FALSE(fs::exists(built.string() + ".part"));
  EXPECT_EQ(open_crystal_graphs(config, 1, Logger::silent())->graphs.size(), 5);

  // A disk that lost some of it.
  fs::resize_file(built / "edges.vector", 100);
  const auto damaged = open_graphs(built);
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code, ExitCode::kDataErr);
  EXPECT_THAT(damaged.error().message, AllOf(HasSubstr("edges.vector: expected"), HasSubstr("remove its directory")));
  EXPECT_EQ(open_crystal_graphs(config, 1, Logger::silent())->graphs.size(), 5);
  write(built / "graphs.json", "{}");
  EXPECT_THAT(open_graphs(built).error().message, HasSubstr("graphs.json: the format is not"));
  EXPECT_EQ(open_crystal_graphs(config, 1, Logger::silent())->graphs.size(), 5);
}

TEST(GraphCache, WithoutItTheGraphsAreTheSameAndNothingIsLeft) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "c.xyz";
  write_crystals(path, CrystalFamily::kTriclinic, 6);
  CrystalDataConfig config = config_of(path);
  ASSERT_TRUE(prepare_crystal_graphs(config, 1, Logger::silent()));
  const auto kept = open_crystal_graphs(config, 1, Logger::silent());
  fs::remove_all(path.string() + ".oarlock");
  config.cache_graphs = false;
  ASSERT_TRUE(prepare_crystal_graphs(config, 1, Logger::silent()));
  const auto built = open_crystal_graphs(config, 1, Logger::silent());
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_FALSE(fs::exists(path.string() + ".oarlock"));
  EXPECT_TRUE(built->graphs.arrays().edge_index.equal(kept->graphs.arrays().edge_index))
      << "the mapping outlives its files";
  ASSERT_EQ(::setenv("TMPDIR", "/nonexistent", 1), 0);
  const auto homeless = open_crystal_graphs(config, 1, Logger::silent());
  ::unsetenv("TMPDIR");
  ASSERT_FALSE(homeless);
  EXPECT_EQ(homeless.error().code, ExitCode::kCantCreate);
  EXPECT_THAT(homeless.error().message, HasSubstr("set TMPDIR"));
}

TEST(GraphConversion, FilesDoNotDependOnTheNumberOfThreads) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "c.xyz";
  write_crystals(path, CrystalFamily::kTriclinic, 600);
  const auto source = opened(path);
  std::vector<int64_t> all(600);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(all.size() - 1 - i);
  for (const int threads : {1, 3}) {
    const fs::path into = directory.path() / std::to_string(threads);
    fs::create_directory(into);
    ASSERT_TRUE(convert_crystals(**source, all, 1, {}, threads, into, Logger::silent()));
  }
  int files = 0;
  for (const auto& entry : fs::directory_iterator(directory.path() / "1")) {
    ++files;
    EXPECT_EQ(*read_file(entry.path()), *read_file(directory.path() / "3" / entry.path().filename())) << entry.path();
  }
  EXPECT_EQ(files, 10);
}

int64_t peak_kilobytes() {
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// 20,000 crystals, whose graphs take 20 MB and more on the disk: building them takes no memory by their number.
TEST(GraphConversion, TakesAConstantMemory) {
  constexpr int64_t kMaxKilobytes = 8 * 1024;
  const TemporaryDirectory directory;
  write_crystals(directory.path() / "small.xyz", CrystalFamily::kCubic, 600);
  write_crystals(directory.path() / "large.xyz", CrystalFamily::kCubic, 20'000);
  const auto built = [&](const std::string& name) {
    CrystalDataConfig config = config_of(directory.path() / name);
    config.graph.nearest.count = 12;
    return static_cast<bool>(prepare_crystal_graphs(config, 1, Logger::silent()));
  };
  int channel[2];
  ASSERT_EQ(::pipe(channel), 0);
  const pid_t pid = fork();  // the peak of the memory is measured in a separate process
  if (pid == 0) {
    int64_t grown = -1;
    if (built("small.xyz")) {  // the code's own pages are there then
      const int64_t before = peak_kilobytes();
      if (built("large.xyz")) grown = peak_kilobytes() - before;
    }
    _exit(::write(channel[1], &grown, sizeof grown) == sizeof grown ? 0 : 1);
  }
  int64_t grown = -1;
  ASSERT_EQ(::read(channel[0], &grown, sizeof grown), static_cast<ssize_t>(sizeof grown));
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  close(channel[0]);
  close(channel[1]);
  EXPECT_GE(grown, 0) << "it was not converted";
#ifndef OARLOCK_SANITIZED  // AddressSanitizer keeps released memory
  EXPECT_LT(grown, kMaxKilobytes);
#endif
  const fs::path cache = directory.path() / "large.xyz.oarlock";
  uintmax_t size = 0;
  for (const auto& entry : fs::directory_iterator(cache / entries(cache, "graphs-").at(0))) size += entry.file_size();
  EXPECT_GT(size, 20'000'000U);
  RecordProperty("grown_kilobytes", static_cast<int>(grown));
}

TEST(CrystalDataset, BatchesAreTheGraphsOfTheFile) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "crystals.extxyz";
  fs::copy(test::data_path("comformer_crystals.extxyz"), path);
  const CrystalDataConfig config = config_of(path);
  ASSERT_TRUE(prepare_crystal_graphs(config, 1, Logger::silent()));
  const auto graphs =
      std::make_shared<const GraphCollation>(open_crystal_graphs(config, 1, Logger::silent()).value().graphs);
  const CrystalDataset dataset(graphs, {7, 2, 4});
  EXPECT_EQ(dataset.size(), 3);
  const Batch batch = make_batch(dataset, std::vector<int64_t>{2, 0});

  const auto source = opened(path);
  const CrystalBatch expected = test::batch_of(
      {crystal_graph((*source)->read(4)->crystal, {}).value(), crystal_graph((*source)->read(7)->crystal, {}).value()},
      atom_features());
  EXPECT_TRUE(batch["edge_index"].equal(expected.edge_index));
  EXPECT_TRUE(batch["edge_ptr"].equal(expected.edge_begin));
  EXPECT_TRUE(batch["ptr"].equal(expected.atom_begin));
  EXPECT_TRUE(batch["batch"].equal(expected.crystal_of));
  expect_close(batch["vector"], expected.edge_vectors, "vectors", 0);
  expect_close(batch["lattice"], expected.lattices, "lattices", 1e-6);
  expect_close(atom_features().index_select(0, batch["atomic_number"].to(at::kLong)), expected.atoms, "atoms", 0);
  EXPECT_TRUE(batch["structure"].equal(at::tensor({int64_t{4}, int64_t{7}})));
  expect_close(dataset.labels(), at::tensor({-1.95, -1.45, -1.65}, at::kDouble).view({3, 1}), "labels", 1e-15);
}

// The edges, whose last bits may depend on the CPU, are not part of the fingerprint.
TEST(CrystalDataset, FingerprintDependsOnEveryPartOfACrystal) {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "c.extxyz";
  const auto fingerprint = [&](const std::string& lattice, const std::string& atom, const std::string& label) {
    std::ofstream(path) << "2\nLattice=\"" << lattice << "\" formation_energy_per_atom=" << label << "\nFe 0 0 0\n"
                        << atom << "\n";
    auto opened = open_crystal_graphs(config_of(path), 1, Logger::silent());
    EXPECT_TRUE(opened) << opened.error().message;
    return CrystalDataset(std::make_shared<const GraphCollation>(std::move(opened->graphs)), {0}).fingerprint();
  };
  const std::string cubic = "4 0 0 0 4 0 0 0 4";
  const std::string before = fingerprint(cubic, "O 2 2 2", "1");
  EXPECT_NE(fingerprint("4.5 0 0 0 4 0 0 0 4", "O 2 2 2", "1"), before);
  EXPECT_NE(fingerprint(cubic, "Ni 2 2 2", "1"), before);
  EXPECT_NE(fingerprint(cubic, "O 2 2 2.25", "1"), before);
  EXPECT_NE(fingerprint(cubic, "O 2 2 2", "2"), before);
  EXPECT_EQ(fingerprint("4.0000000001 0 0 0 4 0 0 0 4", "O 2 2 1.9999999999", "1"), before);
}

TEST(CrystalSplit, IsThatOfPythonsShuffle) {
  const nlohmann::json golden = nlohmann::json::parse(std::ifstream(test::data_path("comformer_crystals.json")));
  for (const nlohmann::json& expected : golden["splits"]) {
    const auto split = split_crystals(expected["total"], {.seed = expected["seed"]});
    ASSERT_TRUE(split);
    EXPECT_EQ(split->train, expected["train"].get<std::vector<int64_t>>());
    EXPECT_EQ(split->val, expected["val"].get<std::vector<int64_t>>());
    EXPECT_EQ(split->test, expected["test"].get<std::vector<int64_t>>());
  }
  const auto kept = split_crystals(10, {.keep_order = true});
  EXPECT_THAT(kept->test, testing::ElementsAre(9));
  EXPECT_THAT(split_crystals(9, {}).error().message,
              HasSubstr("9 structures give 7 for training, 0 for validation and 0 for the test"));
  EXPECT_TRUE(split_crystals(10, {.test_ratio = 0})->test.empty());
}

TEST(LabelScaler, HasZeroMeanAndUnitDeviationAndAWayBack) {
  const at::Tensor labels =
      at::tensor({1.0, 3.0, 5.0, 11.0, 2.0, 2.0, 2.0, 2.0}, at::kDouble).view({2, 4}).t().contiguous();
  const LabelScaler scale(labels);
  const at::Tensor standardize = scale.standardize(labels);
  EXPECT_NEAR(standardize.select(1, 0).mean().item<double>(), 0, 1e-15);
  EXPECT_NEAR(standardize.select(1, 0).std().item<double>(), 1, 1e-15);
  EXPECT_EQ(standardize.select(1, 1).abs().max().item<double>(), 0) << "labels that are all equal";
  expect_close(scale.restore(standardize), labels, "the way back", 1e-15);
}

// Labels that come from the host in every step cannot be copied while a CUDA graph is captured.
TEST(LabelScaler, StaysOnTheDevice) {
  LabelScaler scale(at::tensor({1.0, 3.0}, at::kDouble).view({2, 1}));
  scale.move_to(at::kMeta);
  EXPECT_TRUE(scale.mean().is_meta());
  EXPECT_TRUE(scale.standardize(at::tensor({1.0}, at::kDouble).view({1, 1}).to(at::kMeta)).is_meta());
  const void* const before = scale.mean().unsafeGetTensorImpl();
  scale.move_to(at::kMeta);
  EXPECT_EQ(scale.mean().unsafeGetTensorImpl(), before) << "copied once";
}

TEST(Predictions, MetricsAndFile) {
  const EvalRows rows{.ids = {0, 1, 2},
                      .columns = {{"structure", at::tensor({17.0, 3.0, 5.0}, at::kDouble)},
                                  {"target", at::tensor({1.0, 2.0, 3.0}, at::kDouble).view({3, 1})},
                                  {"prediction", at::tensor({1.5, 2.0, 2.75}, at::kDouble).view({3, 1})}}};
  const Metrics metrics = regression_metrics(rows);
  EXPECT_DOUBLE_EQ(metrics.at("mae"), 0.25);
  EXPECT_DOUBLE_EQ(metrics.at("rmse"), std::sqrt(0.3125 / 3));
  EXPECT_DOUBLE_EQ(metrics.at("r2"), 1 - 0.3125 / 2);
  const TemporaryDirectory directory;
  const fs::path path = directory.path() / "new" / "test_predictions.csv";
  ASSERT_TRUE(write_predictions(path, rows));
  EXPECT_EQ(*read_file(path), "id,target,prediction\n17,1,1.5\n3,2,2\n5,3,2.75\n");
}

// The labels of the generator have the documented properties.
TEST(CrystalGenerator, LabelsHaveTheDocumentedDistribution) {
  double squares = 0;
  for (int64_t i = 0; i < 4000; ++i) {
    const GeneratedCrystal cubic = generated_crystal(CrystalFamily::kCubic, i, 3);
    const double noise = (cubic.label - (-2.5 + 0.3 * (cubic.crystal.lattice[0][0] - 4))) / 0.1;
    squares += noise * noise / 4000;
  }
  EXPECT_NEAR(squares, 1, 0.1);
  const GeneratedCrystal one = generated_crystal(CrystalFamily::kTriclinic, 5, 3);
  EXPECT_EQ(one.label, generated_crystal(CrystalFamily::kTriclinic, 5, 3).label);
  EXPECT_NE(one.label, generated_crystal(CrystalFamily::kTriclinic, 5, 4).label);
  EXPECT_GE(one.crystal.numbers.size(), 2U);
}

TEST(GraphArchive, ReportsAFullDiskBeforeTheEnd) {
  const std::vector<int64_t> edges(1000, 0);
  const std::vector<uint8_t> atoms(1, 1);
  for (const char* file : {"nodes.atom", "edge_index", "destinations"}) {
    const TemporaryDirectory directory;
    fs::create_symlink("/dev/full", directory.path() / file);
    auto writer = GraphArchiveWriter::create(
        directory.path(), {{.of = GraphColumn::Of::kNodes, .name = "atom", .type = at::kByte, .row = {1}}});
    ASSERT_TRUE(writer) << writer.error().message;
    Result<void> added;
    for (int i = 0; i < 100'000 && added; ++i) {
      added = writer->add(
          {.nodes = 1, .sources = edges, .destinations = edges, .columns = {std::as_bytes(std::span(atoms))}});
    }
    ASSERT_FALSE(added) << file;
    EXPECT_EQ(added.error().code, ExitCode::kIoErr) << file;
    EXPECT_EQ(writer->finish().error().code, ExitCode::kIoErr) << file;
  }
}

TEST(GraphArchive, IsIncompleteWithoutItsDestinations) {
  const TemporaryDirectory directory;
  const std::vector<int64_t> edges(100'000, 0);
  auto writer = GraphArchiveWriter::create(directory.path(), {});
  ASSERT_TRUE(writer) << writer.error().message;
  ASSERT_TRUE(writer->add({.nodes = 1, .sources = edges, .destinations = edges, .columns = {}}));
  fs::resize_file(directory.path() / "destinations", 0);
  EXPECT_FALSE(writer->finish());
}

// A file of 30 KB, whose graphs have 1 GB of edges altogether.
TEST(CrystalCache, GraphsOfOneChunkAreBounded) {
  const TemporaryDirectory directory;
  const fs::path file = directory.path() / "dense.extxyz";
  {
    std::ofstream out(file);
    for (int frame = 0; frame < 2; ++frame) {
      out << "3000\nLattice=\"4 0 0 0 4 0 0 0 4\" Properties=species:S:1:pos:R:3 " << kProperty << "=1\n";
      for (int atom = 0; atom < 3000; ++atom) out << "H 0 0 0\n";
    }
  }
  const auto source = opened(file);
  ASSERT_TRUE(source) << source.error().message;
  const auto converted = convert_crystals(**source, {0, 1}, 1, {}, 2, directory.path(), Logger::silent());
  ASSERT_FALSE(converted);
  EXPECT_EQ(converted.error().code, ExitCode::kDataErr);
  EXPECT_THAT(converted.error().message, AllOf(HasSubstr("dense.extxyz"), HasSubstr("neighbors")));
}

}  // namespace
}  // namespace oarlock::comformer
