// Extended XYZ files as ase and other programs write them, index strings, and messages that name the damaged line.
#include "workloads/formats/extxyz.h"
#include "tests/support/paths.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/temporary_directory.h"
#include "trainer/data/index_slice.h"
#include "workloads/formats/crystal.h"

namespace oarlock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

nlohmann::json golden() { return nlohmann::json::parse(std::ifstream(test::data_path("comformer_crystals.json"))); }

class Written {
 public:
  explicit Written(const std::string& text) { std::ofstream(path()) << text; }
  std::filesystem::path path() const { return directory_.path() / "some.extxyz"; }

 private:
  test::TemporaryDirectory directory_;
};

TEST(Extxyz, RejectsAnythingElseThanARegularFile) {
  const Written file("");
  std::filesystem::remove(file.path());
  ASSERT_EQ(::mkfifo(file.path().c_str(), 0600), 0);
  EXPECT_THAT(ExtxyzFile::open(file.path()).error().message, HasSubstr("not a regular file"));
}

// Each would take the memory of the machine.
TEST(Extxyz, RejectsALineOrAFrameWithoutEnd) {
  const Written file("1\n");
  std::filesystem::resize_file(file.path(), uint64_t{1} << 40);  // sparse
  const auto line = ExtxyzFile::open(file.path());
  ASSERT_FALSE(line);
  EXPECT_EQ(line.error().code, ExitCode::kDataErr);
  EXPECT_THAT(line.error().message, HasSubstr("some.extxyz:2: the line has more than 67108864 bytes"));

  const Written text("1\nLattice=\"1 0 0 0 1 0 0 0 1\"\n" + std::string(100'000, 'X') + " 0 0 0\n");
  const auto frame = ExtxyzFile::open(text.path()).value().read(0);
  ASSERT_FALSE(frame);
  EXPECT_LT(frame.error().message.size(), 1000U);
}

TEST(Extxyz, ReadsCrystalsLikeAse) {
  const auto file = ExtxyzFile::open(test::data_path("comformer_crystals.extxyz"));
  ASSERT_TRUE(file) << file.error().message;
  const nlohmann::json crystals = golden()["crystals"];
  ASSERT_EQ(file->size(), static_cast<int64_t>(crystals.size()));
  for (int64_t i = file->size() - 1; i >= 0; --i) {
    const auto frame = file->read(i);
    ASSERT_TRUE(frame) << frame.error().message;
    const nlohmann::json& expected = crystals[static_cast<size_t>(i)];
    EXPECT_EQ(frame->crystal.lattice, expected["lattice"].get<Matrix3>());
    EXPECT_EQ(frame->crystal.numbers, expected["numbers"].get<std::vector<uint8_t>>());
    EXPECT_EQ(frame->crystal.positions, expected["positions"].get<std::vector<Vector3>>());
    EXPECT_EQ(frame->info.at("cod"), expected["cod"].get<std::string>());
    EXPECT_EQ(std::stod(frame->info.at("formation_energy_per_atom")), expected["formation_energy_per_atom"]);
    EXPECT_EQ(frame->info.at("a key"), "two \"words\"");
    EXPECT_EQ(frame->info.at("flag"), "T");
  }
}

TEST(Extxyz, ReadsAnyColumnsAndComments) {
  const Written file(
      "2\r\n"
      "Properties=force:R:3:pos:R:3:Z:I:1:tag:S:1 'quoted key' = \"a=b, \\\"c\\\"\" Lattice=[[2,0,0],[0,3,0],[0,0,4]] "
      "alone pbc=[True, T, 1] list={1 2 {3}}\r\n"
      "9 9 9 0 .5 +1e-1 26 a\r\n"
      "9\t9 9 -1 1.5 2 92 b\r\n"
      "1\n"
      "Lattice=\"1 0 0 0 1 0 0 0 1\"\n"
      "Og 0 0 0\n\n \n");
  const auto xyz = ExtxyzFile::open(file.path());
  ASSERT_TRUE(xyz) << xyz.error().message;
  ASSERT_EQ(xyz->size(), 2);
  const auto first = xyz->read(0);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_THAT(first->crystal.numbers, ElementsAre(26, 92));
  EXPECT_THAT(first->crystal.positions, ElementsAre(Vector3{0, 0.5, 0.1}, Vector3{-1, 1.5, 2}));
  EXPECT_EQ(first->crystal.lattice, (Matrix3{{{2, 0, 0}, {0, 3, 0}, {0, 0, 4}}}));
  EXPECT_EQ(first->info.at("quoted key"), "a=b, \"c\"");
  EXPECT_EQ(first->info.at("alone"), "T");
  EXPECT_EQ(first->info.at("list"), "1 2 {3}");
  const auto second = xyz->read(1);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_THAT(second->crystal.numbers, ElementsAre(118));
}

TEST(Extxyz, ReadsListsOfAseAndSymbolsOfAnyCase) {
  const Written file(
      "3\nLattice=\"4 0 0 0 4 0 0 0 4\" pbc=\"_JSON [true, true, true]\" t2=\"_JSON [1.0, 2.5]\" "
      "m=\"_JSON [[1, 2], [3, -4e1]]\"\nCU 0 0 0\nfe 1 1 1\nh 2 2 2\n");
  const auto frame = ExtxyzFile::open(file.path()).value().read(0);
  ASSERT_TRUE(frame) << frame.error().message;
  EXPECT_THAT(frame->crystal.numbers, ElementsAre(29, 26, 1));
  EXPECT_THAT(extxyz_numbers(frame->info.at("t2")).value(), ElementsAre(1, 2.5));
  EXPECT_THAT(extxyz_numbers(frame->info.at("m")).value(), ElementsAre(1, 2, 3, -40));
}

// Some lines cross the end of the read buffer.
TEST(Extxyz, ReadsManyFramesFromManyThreads) {
  constexpr int kFrames = 20'000;
  std::string text;
  for (int i = 0; i < kFrames; ++i) {
    text += "2\nLattice=\"4 0 0 0 4 0 0 0 4\" energy=" + std::to_string(i) + " pad=" + std::string(i % 97, 'x') +
            "\nNa 0 0 0\nCl 2 2 " + std::to_string(i) + "\n";
  }
  text.pop_back();  // the last line may lack its line ending
  ASSERT_GT(text.size(), size_t{2} << 20);
  const Written file(text);
  const auto xyz = ExtxyzFile::open(file.path());
  ASSERT_TRUE(xyz) << xyz.error().message;
  ASSERT_EQ(xyz->size(), kFrames);
  std::vector<int> wrong(3, 0);
  std::vector<std::jthread> readers;
  for (size_t reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&, reader] {
      for (int i = static_cast<int>(reader); i < kFrames; i += 3) {
        const auto frame = xyz->read(i);
        const bool right =
            frame && frame->info.at("energy") == std::to_string(i) && frame->crystal.positions[1][2] == i;
        if (!right) ++wrong[reader];
      }
    });
  }
  readers.clear();
  EXPECT_THAT(wrong, testing::Each(0));
}

std::string opening_error(const std::string& text) {
  const Written file(text);
  const auto xyz = ExtxyzFile::open(file.path());
  if (xyz) return "it was opened";
  EXPECT_EQ(xyz.error().code, ExitCode::kDataErr);
  EXPECT_THAT(xyz.error().message, testing::Not(HasSubstr("\n")));
  return xyz.error().message;
}

TEST(Extxyz, TruncatedFilesNameTheLine) {
  EXPECT_THAT(opening_error(""), HasSubstr("contains no frame"));
  EXPECT_THAT(opening_error("1\nc\nH 0 0 0\n2\nc\nH 0 0 0\n"),
              AllOf(HasSubstr("some.extxyz:6: "), HasSubstr("ends 1 lines before the end of frame 1"),
                    HasSubstr("begins at line 4")));
  EXPECT_THAT(opening_error("1\nc\nH 0 0 0\nH 0 0 0\n"),
              AllOf(HasSubstr(":4: "), HasSubstr("is not a number of atoms")));
  EXPECT_THAT(opening_error("0\n\n"), HasSubstr(":1: '0' is not a number of atoms"));
  EXPECT_THAT(opening_error("1\nc\nH 0 0 0\n\n1\nc\nH 0 0 0\n"), HasSubstr(":5: "));
  EXPECT_EQ(ExtxyzFile::open("/nonexistent.xyz").error().code, ExitCode::kNoInput);
}

std::string reading_error(const std::string& comment, const std::string& atom = "H 0 0 0") {
  const Written file("1\nLattice=\"1 0 0 0 1 0 0 0 1\"\nH 0 0 0\n1\n" + comment + "\n" + atom + "\n");
  const auto xyz = ExtxyzFile::open(file.path());
  if (!xyz) return xyz.error().message;
  const auto frame = xyz->read(1);
  if (frame) return "it was read";
  EXPECT_EQ(frame.error().code, ExitCode::kDataErr);
  EXPECT_THAT(frame.error().message, testing::Not(HasSubstr("\n")));
  return frame.error().message;
}

TEST(Extxyz, InvalidFramesNameLineAndFrame) {
  const std::string cell = "Lattice=\"1 0 0 0 1 0 0 0 1\"";
  EXPECT_THAT(reading_error("energy=1"), AllOf(HasSubstr("some.extxyz:5 (frame 1): "), HasSubstr("is missing")));
  EXPECT_THAT(reading_error("Lattice=\"1 0 0 0 1 0 0 0\""), HasSubstr("8 numbers, expected 9"));
  EXPECT_THAT(reading_error("Lattice=\"1 0 0 2 0 0 0 0 1\""), HasSubstr("spans no volume"));
  EXPECT_THAT(reading_error("Lattice=\"nan 0 0 0 1 0 0 0 1\""), HasSubstr("spans no volume"));
  EXPECT_THAT(reading_error("Lattice=\"1 0 0 0 one 0 0 0 1\""), HasSubstr("'one' is not a number"));
  EXPECT_THAT(reading_error("Lattice=\"1 0 0"), HasSubstr("\" is not closed"));
  std::string keys;
  for (int i = 0; i <= 10'000; ++i) keys += fmt::format("k{} ", i);
  EXPECT_THAT(reading_error(keys), HasSubstr("more than 10000 keys"));
  EXPECT_THAT(reading_error(cell + " pbc=\"T T F\""), HasSubstr("periodic in all directions"));
  EXPECT_THAT(reading_error(cell + " pbc=\"T T maybe\""), HasSubstr("'maybe' is not T or F"));
  EXPECT_THAT(reading_error(cell + " Properties=pos:R:3"), HasSubstr("species:S:1"));
  EXPECT_THAT(reading_error(cell + " Properties=species:S:1"), HasSubstr("pos:R:3"));
  EXPECT_THAT(reading_error(cell + " Properties=species:S"), HasSubstr("name:type:columns"));
  EXPECT_THAT(reading_error(cell, "Xx 0 0 0"),
              AllOf(HasSubstr(":6 (frame 1)"), HasSubstr("'Xx' is not a chemical element")));
  EXPECT_THAT(reading_error(cell, "H 0 0"), HasSubstr("expected 4 columns according to Properties, found 3"));
  EXPECT_THAT(reading_error(cell, "H 0 0 nan"), HasSubstr("'nan' is not a finite coordinate"));
  EXPECT_THAT(reading_error(cell + " Properties=Z:I:1:pos:R:3", "119 0 0 0"),
              HasSubstr("'119' is not an atomic number"));
}

TEST(IndexSlice, ParsesIndexStringsOfAse) {
  const nlohmann::json slices = golden()["slices"];
  for (const auto& [text, expected] : slices.items()) {
    const auto slice = IndexSlice::parse(text);
    ASSERT_TRUE(slice) << text;
    EXPECT_EQ(*slice->indices(8), expected.get<std::vector<int64_t>>()) << text;
  }
  EXPECT_THAT(*IndexSlice::parse("")->indices(3), ElementsAre(0, 1, 2));
  EXPECT_THAT(IndexSlice::parse("-9")->indices(8).error().message, HasSubstr("out of range for 8 structures"));
  for (const char* text : {"a", "1:2:0", "1:2:3:4", "1.5", " "}) EXPECT_FALSE(IndexSlice::parse(text)) << text;
  EXPECT_THAT(*IndexSlice::parse("1::9223372036854775807")->indices(10), ElementsAre(1));
  EXPECT_THAT(*IndexSlice::parse("8::-9223372036854775808")->indices(10), ElementsAre(8));
  EXPECT_THAT(*IndexSlice::parse("-9223372036854775808:9223372036854775807:4")->indices(10), ElementsAre(0, 4, 8));
  EXPECT_THAT(*IndexSlice::parse("9223372036854775807:-9223372036854775808:-4")->indices(10), ElementsAre(9, 5, 1));
}

TEST(ChemicalElements, ConvertsSymbolsAndNumbers) {
  for (int number = 1; number <= kElements; ++number)
    EXPECT_EQ(atomic_number(element_symbol(static_cast<uint8_t>(number))), number);
  EXPECT_EQ(atomic_number("Pb"), 82);
  EXPECT_FALSE(atomic_number("pb"));
  EXPECT_FALSE(atomic_number(""));
}

}  // namespace
}  // namespace oarlock
