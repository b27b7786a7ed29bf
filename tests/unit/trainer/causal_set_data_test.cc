// Conversion of stores to graphs: zarr and HDF5, both orders of axes, several stores; splits; errors with their place.
#include "workloads/causal_set/data.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "common/files.h"
#include "tests/support/temporary_directory.h"
#include "workloads/causal_set/generator.h"
#include "workloads/formats/hdf5/writer.h"
#include "workloads/formats/zarr/array.h"

namespace oarlock::causal_set {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<TargetSpec> kTargets = {{.array = "manifold_like", .width = 1, .classes = {0, 1}}};

class CausalSetData : public testing::Test {
 protected:
  fs::path generate(const std::string& name, int64_t samples, uint64_t seed = 1, bool reversed = false) {
    const fs::path path = directory_.path() / name;
    const Result<void> written = write_generated_store(
        path, {.samples = samples, .min_elements = 8, .max_elements = 12, .seed = seed, .reversed = reversed});
    EXPECT_TRUE(written) << written.error().message;
    return path;
  }

  static CausalSetDataConfig config_of(const std::vector<fs::path>& paths) {
    CausalSetDataConfig config;
    for (const fs::path& path : paths) config.paths.push_back(path.string());
    return config;
  }

  static CausalSetSplits open(const CausalSetDataConfig& config) {
    const Result<void> prepared = prepare_causal_sets(config, kTargets, Logger::silent());
    if (!prepared) throw std::runtime_error(prepared.error().message);
    Result<CausalSetSplits> splits = open_causal_sets(config, kTargets);
    if (!splits) throw std::runtime_error(splits.error().message);
    return std::move(*splits);
  }

  static Error refusal(const CausalSetDataConfig& config) {
    const Result<void> prepared = prepare_causal_sets(config, kTargets, Logger::silent());
    EXPECT_FALSE(prepared);
    return prepared ? Error{} : prepared.error();
  }

  // Replaces the one chunk of an array [samples] of small numbers.
  static void set_column(const fs::path& array, const std::vector<double>& values) {
    const std::string metadata =
        R"({"zarr_format": 2, "shape": [)" + std::to_string(values.size()) + R"(], "chunks": [)" +
        std::to_string(values.size()) +
        R"(], "dtype": "<f8", "fill_value": 0, "order": "C", "filters": null, "compressor": null})";
    std::ofstream(array / ".zarray") << metadata;
    std::ofstream(array / "0", std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(8 * values.size()));
  }

  // Writes the one chunk of an array of zarr version 3, which is the file c/0.
  static void set_chunk_v3(const fs::path& array, const std::vector<double>& values) {
    std::ofstream(array / "c" / "0", std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(8 * values.size()));
  }

  TemporaryDirectory directory_;
};

void expect_same_graphs(const GraphCollation& a, const GraphCollation& b) {
  EXPECT_EQ(a.arrays().node_offsets, b.arrays().node_offsets);
  EXPECT_EQ(a.arrays().edge_offsets, b.arrays().edge_offsets);
  EXPECT_TRUE(at::equal(a.arrays().edge_index, b.arrays().edge_index));
  EXPECT_TRUE(at::equal(a.arrays().nodes.at("x"), b.arrays().nodes.at("x")));
  EXPECT_TRUE(at::equal(a.arrays().graphs.at("targets"), b.arrays().graphs.at("targets")));
}

// The arrays of a generated store as an HDF5 file.
void copy_to_hdf5(const fs::path& store, const fs::path& path, const std::vector<std::string>& names) {
  Hdf5Writer file(path);
  for (const std::string& name : names) {
    const zarr::Array array = *zarr::Array::open(store / name);
    const std::vector<int64_t> begin(array.shape().size(), 0);
    const std::vector<hsize_t> shape(array.shape().begin(), array.shape().end());
    file.numbers<double>(name, *array.read_doubles(begin, array.shape()), shape, 1);
  }
}

const std::vector<std::string> kArrays = {"link_matrix", "cset_size",        "manifold_like",      "in_degree",
                                          "out_degree",  "max_pathlen_past", "max_pathlen_future", "adjacency_matrix"};

TEST_F(CausalSetData, TheSameGraphsFromEveryKindOfStore) {
  const fs::path store = generate("sets.zarr", 20);
  const CausalSetSplits expected = open(config_of({store}));
  EXPECT_EQ(expected.train.graphs().size(), 20);
  const auto expect_same = [&](const CausalSetDataConfig& config) {
    expect_same_graphs(open(config).train.graphs(), expected.train.graphs());
  };
  expect_same(config_of({generate("julia.zarr", 20, 1, true)}));  // its axes are identified by their lengths
  const fs::path reversed = generate("julia12.zarr", 12, 1, true);
  EXPECT_THAT(refusal(config_of({reversed})).message,
              AllOf(HasSubstr("julia12.zarr/link_matrix: shape [12, 12, 12]"), HasSubstr("set data.axes")));
  CausalSetDataConfig declared = config_of({reversed});
  declared.axes = AxisOrder::kReversed;
  EXPECT_EQ(open(declared).train.graphs().size(), 12);
  copy_to_hdf5(store, directory_.path() / "sets.h5", kArrays);
  expect_same(config_of({directory_.path() / "sets.h5"}));
  copy_to_hdf5(directory_.path() / "julia.zarr", directory_.path() / "julia.h5", kArrays);
  expect_same(config_of({directory_.path() / "julia.h5"}));
  // Links, degrees and lengths are computed where a store has relations only.
  copy_to_hdf5(store, directory_.path() / "relations.h5", {"adjacency_matrix", "cset_size", "manifold_like"});
  expect_same(config_of({directory_.path() / "relations.h5"}));
}

TEST_F(CausalSetData, RelationsAreMoreThanLinks) {
  CausalSetDataConfig config = config_of({generate("sets.zarr", 20)});
  const int64_t links = open(config).train.graphs().arrays().edge_index.size(1);
  config.edges = EdgeKind::kRelations;
  EXPECT_GT(open(config).train.graphs().arrays().edge_index.size(1), links);
}

TEST_F(CausalSetData, StoresFollowOneAnother) {
  const fs::path one = generate("one.zarr", 20, 1);
  const fs::path two = generate("two.zarr", 10, 2);
  const CausalSetSplits both = open(config_of({one, two}));
  ASSERT_EQ(both.train.graphs().size(), 30);
  const CausalSetSplits second = open(config_of({two}));
  const std::vector<int64_t> last = {20, 25, 29};
  const std::vector<int64_t> same = {0, 5, 9};
  Batch a;
  Batch b;
  both.train.graphs().collate(last, a);
  second.train.graphs().collate(same, b);
  for (const char* name : {"x", "edge_index", "targets", "ptr"}) EXPECT_TRUE(at::equal(a[name], b[name])) << name;
}

TEST_F(CausalSetData, SamplesThatAreAllocatedAndNotThereAreLeftOut) {
  const fs::path store = generate("sets.zarr", 20);
  fs::create_directory(store / "num_samples");
  set_column(store / "num_samples", {15});
  EXPECT_EQ(open(config_of({store})).train.graphs().size(), 15);
}

TEST_F(CausalSetData, NumberOfSamplesMustBeACount) {
  const fs::path store = generate("sets.zarr", 20);
  fs::create_directory(store / "num_samples");
  for (const double count : {std::nan(""), -1.0, 2.5, 21.0, 1e300}) {
    set_column(store / "num_samples", {count});
    EXPECT_THAT(refusal(config_of({store})).message, HasSubstr("samples, but there are 20 matrices")) << count;
  }
}

TEST_F(CausalSetData, AConversionIsMadeOnceAndAgainWhenTheStoreChanges) {
  const fs::path store = generate("sets.zarr", 20);
  open(config_of({store}));
  const fs::path cache = directory_.path() / "sets.zarr.oarlock";
  const auto conversions = [&] {
    std::map<std::string, fs::file_time_type> out;
    for (const auto& entry : fs::directory_iterator(cache))
      if (entry.is_directory()) out[entry.path()] = fs::last_write_time(entry.path() / "graphs.json");
    return out;
  };
  const auto first = conversions();
  ASSERT_EQ(first.size(), 1U);
  open(config_of({store}));
  EXPECT_EQ(conversions(), first);
  set_column(store / "manifold_like", std::vector<double>(20, 1));
  EXPECT_EQ(open(config_of({store})).train.graphs().arrays().graphs.at("targets").sum().item<double>(), 20);
  EXPECT_EQ(conversions().size(), 1U) << "the outdated one is removed";
  CausalSetDataConfig elsewhere = config_of({store});
  elsewhere.cache = (directory_.path() / "cache").string();
  open(elsewhere);
  EXPECT_TRUE(fs::exists(directory_.path() / "cache/sets.zarr.oarlock"));
}

// zarr-python 3 writes the chunk, and nothing else, for array[:] = values.
TEST_F(CausalSetData, AChangedChunkIsConvertedAgain) {
  const fs::path store = generate("sets.zarr", 20);
  const fs::path array = store / "manifold_like";
  fs::remove_all(array);
  fs::create_directories(array / "c");
  std::ofstream(array / "zarr.json")
      << R"({"zarr_format": 3, "node_type": "array", "shape": [20], "data_type": "float64", "fill_value": 0,
             "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [20]}},
             "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
             "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]})";
  set_chunk_v3(array, std::vector<double>(20, 0));
  const auto time = fs::last_write_time(array / "c" / "0");
  const auto sum = [&] { return open(config_of({store})).train.graphs().arrays().graphs.at("targets").sum(); };
  EXPECT_EQ(sum().item<double>(), 0);
  set_chunk_v3(array, std::vector<double>(20, 1));
  EXPECT_EQ(sum().item<double>(), 20);
  set_chunk_v3(array, std::vector<double>(20, 0));
  fs::last_write_time(array / "c" / "0", time);
  EXPECT_EQ(sum().item<double>(), 0);
}

TEST_F(CausalSetData, ABatchNamesItsSamples) {
  const CausalSetSplits splits = open(config_of({generate("sets.zarr", 20)}));
  const Batch batch = make_batch(splits.test, std::vector<int64_t>{1, 0});
  EXPECT_EQ(batch["sample"][0].item<int64_t>(), splits.test.samples()[1]);
  EXPECT_EQ(batch["sample"][1].item<int64_t>(), splits.test.samples()[0]);
  EXPECT_EQ(batch["targets"].sizes(), (at::IntArrayRef{2, 1}));
  EXPECT_EQ(batch["x"].size(1), 4);
}

TEST(CausalSetSplit, PartsAreDisjointAndWholeAndDependOnTheSeedAlone) {
  const SplitConfig config{.train = 0.8, .validation = 0.1, .seed = 42};
  const SplitIndices split = split_samples(15, config);
  EXPECT_EQ(split.train.size(), 12U);
  EXPECT_EQ(split.validation.size(), 1U);
  EXPECT_EQ(split.test.size(), 2U);
  std::set<int64_t> all;
  for (const auto* part : {&split.train, &split.validation, &split.test}) all.insert(part->begin(), part->end());
  EXPECT_EQ(all.size(), 15U);
  EXPECT_EQ(*all.rbegin(), 14);
  EXPECT_EQ(split_samples(15, config).train, split.train);
  EXPECT_NE(split_samples(15, {.train = 0.8, .validation = 0.1, .seed = 43}).train, split.train);
  // torch.randperm(10, generator=torch.Generator().manual_seed(42)) of PyTorch 2.11
  EXPECT_THAT(split_samples(10, {.train = 1, .validation = 0, .seed = 42}).train,
              testing::ElementsAre(2, 6, 1, 8, 4, 5, 0, 9, 3, 7));
  EXPECT_EQ(split_samples(30, {.train = 0.7, .validation = 0.1, .seed = 1}).validation.size(), 3U);
}

TEST_F(CausalSetData, NamesTheMissingAndTheExistingArrays) {
  const fs::path store = generate("sets.zarr", 6);
  CausalSetDataConfig config = config_of({store});
  config.node_features.push_back("relation_dimension");
  EXPECT_THAT(refusal(config).message, AllOf(HasSubstr("sets.zarr: contains no array 'relation_dimension'; it contains "
                                                       "adjacency_matrix, cset_size"),
                                             HasSubstr("out_degree")));
  fs::remove_all(store / "link_matrix");
  fs::remove_all(store / "adjacency_matrix");
  EXPECT_THAT(refusal(config_of({store})).message,
              HasSubstr("contains no array 'adjacency_matrix' (nor 'link_matrix'); it contains cset_size"));
  const Error none = refusal(config_of({directory_.path() / "nothing.h5"}));
  EXPECT_EQ(none.code, ExitCode::kNoInput);
  EXPECT_THAT(none.message, AllOf(HasSubstr("nothing.h5"), HasSubstr("data.paths")));
}

TEST_F(CausalSetData, WhatIsWrongWithASampleIsNamedWithItsPlace) {
  const fs::path store = generate("sets.zarr", 6);
  set_column(store / "manifold_like", {1, 0, 1, std::numeric_limits<double>::quiet_NaN(), 1, 0});
  EXPECT_THAT(refusal(config_of({store})).message,
              HasSubstr("sets.zarr/manifold_like: sample 3: nan is not a finite number"));
  set_column(store / "manifold_like", {1, 0, 1, 0, 2, 0});
  EXPECT_THAT(refusal(config_of({store})).message,
              HasSubstr("sets.zarr/manifold_like: sample 4: 2 is none of the classes 0, 1"));
  set_column(store / "manifold_like", {1, 0, 1, 0});
  EXPECT_THAT(refusal(config_of({store})).message,
              HasSubstr("sets.zarr/manifold_like: shape [4] does not have 6 samples"));
  set_column(store / "manifold_like", {1, 0, 1, 0, 1, 0});
  set_column(store / "cset_size", {12, 12, 13, 12, 12, 12});
  EXPECT_THAT(refusal(config_of({store})).message,
              HasSubstr("sets.zarr/cset_size: sample 2: 13 elements in a matrix of 12"));
  set_column(store / "cset_size", {1, 8, 8, 8, 8, 8});
  EXPECT_THAT(refusal(config_of({store})).message,
              AllOf(HasSubstr("sets.zarr/link_matrix: sample 0: ["), HasSubstr("is 1, but there are 1 elements")));
  fs::remove(store / "link_matrix/4.0.0");
  CausalSetDataConfig strict = config_of({store});
  strict.missing_chunks = zarr::MissingChunks::kError;
  const Error missing = refusal(strict);
  EXPECT_EQ(missing.code, ExitCode::kDataErr);
  EXPECT_THAT(missing.message, AllOf(HasSubstr("sets.zarr/link_matrix: chunk [4, 0, 0] ("), HasSubstr("is missing"),
                                     HasSubstr("missing_chunks: fill")));
}

// Their bytes would overflow.
TEST_F(CausalSetData, MatricesThatTheFileCannotContainAreAnError) {
  const fs::path path = directory_.path() / "large.h5";
  {
    Hdf5Writer file(path);
    constexpr hsize_t kElements = hsize_t{1} << 26;
    H5Dclose(file.dataset("link_matrix", H5T_NATIVE_FLOAT, {2, kElements, kElements}, 0));
    file.numbers<int64_t>("manifold_like", {0, 1}, {2});
  }
  const Error error = refusal(config_of({path}));
  EXPECT_EQ(error.code, ExitCode::kDataErr);
  EXPECT_THAT(error.message, AllOf(HasSubstr("large.h5: /link_matrix"), HasSubstr("cannot contain")));
}

TEST_F(CausalSetData, RejectsCycles) {
  std::vector<double> matrices(2 * 3 * 3, 0);
  matrices[1] = 1;      // sample 0: 0 before 1
  matrices[9 + 1] = 1;  // sample 1: 0 before 1
  matrices[9 + 3] = 1;  // and 1 before 0
  {
    Hdf5Writer file(directory_.path() / "cycle.h5");
    file.numbers<double>("link_matrix", matrices, {2, 3, 3});
    file.numbers<double>("manifold_like", {0, 1}, {2});
  }
  EXPECT_THAT(refusal(config_of({directory_.path() / "cycle.h5"})).message,
              AllOf(HasSubstr("cycle.h5: /link_matrix: sample 1"), HasSubstr("cycle")));
}

}  // namespace
}  // namespace oarlock::causal_set
