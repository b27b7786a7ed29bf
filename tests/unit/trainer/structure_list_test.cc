// Lists of structures in JSON: every form, and what is wrong with them.
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

TEST(StructureList, EveryFormGivesTheCrystalsOfTheExtendedXyzFile) {
  const auto list = opened(test::data_path("comformer_crystals_list.json"));
  ASSERT_TRUE(list) << list.error().message;
  const auto file = opened(test::data_path("comformer_crystals.extxyz"));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ((*list)->size(), 8);
  ASSERT_EQ((*file)->size(), 8);
  for (int64_t i = 0; i < 8; ++i) {
    const auto a = (*list)->read(i);
    const auto b = (*file)->read(i);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->label, b->label);
    EXPECT_EQ(a->crystal.numbers, b->crystal.numbers);
    EXPECT_EQ(a->crystal.lattice, b->crystal.lattice);
    for (size_t atom = 0; atom < a->crystal.positions.size(); ++atom) {
      for (size_t axis = 0; axis < 3; ++axis)
        EXPECT_NEAR(a->crystal.positions[atom][axis], b->crystal.positions[atom][axis], 1e-12);
    }
  }
}

std::string list_error(const std::string& json) {
  const TemporaryDirectory directory;
  write(directory.path() / "list.json", json);
  const auto list = opened(directory.path() / "list.json");
  if (list) return "it was read";
  EXPECT_EQ(list.error().code, ExitCode::kDataErr);
  EXPECT_THAT(list.error().message, AllOf(HasSubstr("list.json: "), testing::Not(HasSubstr("\n"))));
  return list.error().message;
}

TEST(StructureList, WrongStructuresAreNamedByNumber) {
  const std::string good =
      R"({"lattice": [[1,0,0],[0,1,0],[0,0,1]], "species": ["H"], "frac_coords": [[0,0,0]], "formation_energy_per_atom": 1})";
  EXPECT_EQ(list_error("[" + good + "]"), "it was read");
  EXPECT_THAT(list_error("[" + good + ", {}]"), HasSubstr("structure 1: no lattice"));
  EXPECT_THAT(list_error("[" + good), HasSubstr("parse error"));
  EXPECT_THAT(list_error(good), HasSubstr("a list [...] of structures is expected"));
  EXPECT_THAT(list_error("[]"), HasSubstr("contains no structure"));
  EXPECT_THAT(list_error("[1]"), HasSubstr("structure 0: 1 is not an object"));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return list_error("[" + text.replace(text.find(from), from.size(), to) + "]");
  };
  EXPECT_THAT(with("[0,0,1]]", "[0,0]]"), HasSubstr("lattice: [0,0] is not a list of 3 numbers"));
  EXPECT_THAT(with("[0,0,1]]", "[0,1,0]]"), HasSubstr("spans no volume"));
  EXPECT_THAT(with("\"H\"", "\"Xx\""), HasSubstr("\"Xx\" is not a chemical element"));
  EXPECT_THAT(with("\"H\"", "\"H\", \"H\""), HasSubstr("2 atoms, but 1 coordinates"));
  EXPECT_THAT(with(": 1}", ": null}"), HasSubstr("null: a label must be a finite number"));
  EXPECT_THAT(with(": 1}", ": NaN}"), HasSubstr("parse error"));
  EXPECT_THAT(with(": 1}", ": [1, 2]}"), HasSubstr("has 2 numbers, but model.output_features is 1"));
  EXPECT_THAT(with("formation_energy", "band_gap"), HasSubstr("no 'formation_energy_per_atom'"));
}

TEST(StructureList, DeepAndLongValuesAreErrors) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_THAT(list_error(R"([{"lattice": )" + deep + "}]"), HasSubstr("structure 0: nested deeper than 100 levels"));
  EXPECT_THAT(list_error(R"([{"other": )" + deep + "}]"), HasSubstr("structure 0: nested deeper than 100 levels"));
  const std::string error = list_error(R"([{"lattice": ")" + std::string(1'000'000, 'x') + R"("}])");
  EXPECT_THAT(error, HasSubstr("is not 3 x 3"));
  EXPECT_LT(error.size(), 1000U);
}

TEST(StructureList, ElementsThatAreNoObjectsAreErrors) {
  for (const char* element : {"[]", "[[1]]", "5", "null", "\"x\"", "true"})
    EXPECT_THAT(list_error(fmt::format("[{}]", element)), HasSubstr(fmt::format("structure 0: {} is not", element)));
  EXPECT_THAT(list_error("5"), HasSubstr("a list [...] of structures is expected"));
  EXPECT_THAT(list_error("[] []"), HasSubstr("parse error"));
  EXPECT_THAT(list_error("[\"" + std::string(1'000'000, 'x')),
              testing::ResultOf([](const std::string& error) { return error.size(); }, testing::Lt(1000U)));
}

TEST(StructureList, MembersOfAnyTypeAreErrors) {
  const auto site = [](const std::string& species) {
    return R"([{"lattice": [[1,0,0],[0,1,0],[0,0,1]], "formation_energy_per_atom": 1, "sites": [{"abc": [0,0,0], )"
           R"("species": )" +
           species + "}]}]";
  };
  EXPECT_EQ(list_error(site(R"([{"element": "H", "occu": 1}])")), "it was read");
  EXPECT_THAT(list_error(site(R"([{"element": "H", "occu": "x"}])")), HasSubstr("is disordered"));
  EXPECT_THAT(list_error(site(R"([{"element": 5.5}])")), HasSubstr("5.5 is not a chemical element"));
  EXPECT_THAT(list_error(site("[5]")), HasSubstr("null is not a chemical element"));
  EXPECT_THAT(list_error(R"([{"lattice": [[1,0,0],[0,1,0],[0,0,1]], "species": ["H"], "coords": [[0,0,0]], )"
                         R"("cartesian": "yes", "formation_energy_per_atom": 1}])"),
              HasSubstr("cartesian: \"yes\" is neither true nor false"));
}

// A value of 2 bytes takes 16 bytes in memory, and an empty list of 3 bytes about 50.
TEST(StructureList, TooManyValuesAreAnError) {
  std::string text = R"([{"x": [)";
  for (size_t i = 0; i < kMaxListElementValues; ++i) text += "0,";
  EXPECT_THAT(list_error(text + "0]}]"), HasSubstr("structure 0: has more than 8000000 values"));
}

// Within the time limit of the test: in a quadratic time, this would take minutes.
TEST(StructureList, ReadsManyMembersInLinearTime) {
  std::string text = R"([{"lattice": 1, "x": [{})";
  for (size_t i = 0; i < 1'000'000; ++i) text += ",{}";
  EXPECT_THAT(list_error(text + "]}]"), HasSubstr("structure 0: lattice 1 is not 3 x 3"));
}

TEST(StructureList, APipeIsAnError) {
  const TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory.path() / "list.json").c_str(), 0600), 0);
  EXPECT_THAT(opened(directory.path() / "list.json").error().message, HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace oarlock::comformer
