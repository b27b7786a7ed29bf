// The commands that `oarlock run` names at its end.
#include "cli/run/run_directory.h"

#include <gtest/gtest.h>

namespace oarlock::run {
namespace {

TEST(ContinueCommand, RepeatsTheOptions) {
  EXPECT_EQ(command_line({.file = "job.yaml"}), "oarlock run job.yaml");
  EXPECT_EQ(
      command_line({.file = "my job.yaml",
                    .name = "bert",
                    .workdir = "/data/it's",
                    .nodes = 1,
                    .nproc = 4,
                    .settings = {"optimizer.lr=4e-3", "tags=[a, b]"}}),
      R"(oarlock run 'my job.yaml' --name bert --workdir '/data/it'\''s' --nodes 1 --nproc 4 optimizer.lr=4e-3 'tags=[a, b]')");
}

TEST(ContinueCommand, TrainsTwiceAsLong) {
  EXPECT_EQ(longer_command({.file = "j"}, R"({"epochs": 3})"), "oarlock run j epochs=6");
  EXPECT_EQ(longer_command({.file = "j"}, R"({"steps": 10})"), "oarlock run j steps=20");
  EXPECT_EQ(longer_command({.file = "j", .settings = {"steps=5", "seed=1"}}, R"({"epochs": 3})"),
            "oarlock run j seed=1 steps=10");
}

TEST(ContinueCommand, ReturnsNothingWithoutALength) {
  for (const char* trainer : {"", "{}", "[]", R"({"steps": 0})", R"({"steps": "x"})"})
    EXPECT_FALSE(longer_command({.file = "j"}, trainer)) << trainer;
}

}  // namespace
}  // namespace oarlock::run
