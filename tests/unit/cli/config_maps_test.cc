// Volumes of ConfigMaps in the file of a job, as directories of this machine.
#include "cli/run/config_maps.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "common/files.h"
#include "tests/support/temporary_directory.h"

namespace oarlock::run {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::Pair;
using Json = nlohmann::json;

api::TrainingJob job_with(const Json& mounts, const Json& volumes) {
  api::TrainingJob job;
  job.metadata.name = "j";
  job.spec.nodes = 1;
  job.spec.pod_template = Json{
      {"spec",
       {{"containers", Json::array({{{"name", "trainer"}, {"image", "x"}, {"volumeMounts", mounts}}})},
        {"volumes",
         volumes}}}}.dump();
  return job;
}

const ConfigMaps kScripts = {{"scripts", {{"train.py", "print(1)\n"}, {"other.py", ""}}}};

TEST(ConfigMaps, AreReadFromTheFileOfTheJob) {
  const std::string text =
      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: scripts}\ndata:\n  train.py: |\n    print(1)\n"
      "  number: \"7\"\nbinaryData: {x: AA==}\n---\nkind: Secret\nmetadata: {name: s}\n---\n"
      "kind: ConfigMap\nmetadata: {name: empty}\n";
  const ConfigMaps maps = config_maps_of(yaml::parse_all(text, "job.yaml").value());
  ASSERT_EQ(maps.size(), 1u);
  EXPECT_THAT(maps.at("scripts"), ElementsAre(Pair("number", "7"), Pair("train.py", "print(1)\n")));
}

TEST(ConfigMaps, BecomeDirectoriesOfTheirVolumes) {
  const api::TrainingJob job =
      job_with(Json::array({{{"name", "code"}, {"mountPath", "/script/"}}, {{"name", "data"}, {"mountPath", "/data"}}}),
               Json::array({{{"name", "code"}, {"configMap", {{"name", "scripts"}}}},
                            {{"name", "data"}, {"configMap", {{"name", "elsewhere"}}}}}));
  const std::vector<LocalVolume> volumes = local_volumes(job, kScripts, "/runs/volumes");
  ASSERT_EQ(volumes.size(), 1u) << "the other ConfigMap is not in the file";
  EXPECT_EQ(volumes[0].mount_path, "/script");
  EXPECT_EQ(volumes[0].target, "/runs/volumes/code");
  EXPECT_EQ(volumes[0].files, kScripts.at("scripts"));
}

TEST(ConfigMaps, HonorItemsAndSubPaths) {
  const Json volume = {{"name", "code"},
                       {"configMap",
                        {{"name", "scripts"},
                         {"items", Json::array({{{"key", "train.py"}, {"path", "src/main.py"}},
                                                {{"key", "train.py"}, {"path", "../../escape"}}})}}}};
  const api::TrainingJob job =
      job_with(Json::array({{{"name", "code"}, {"mountPath", "/app/main.py"}, {"subPath", "src/main.py"}}}),
               Json::array({volume}));
  const std::vector<LocalVolume> volumes = local_volumes(job, kScripts, "/v");
  ASSERT_EQ(volumes.size(), 1u);
  EXPECT_EQ(volumes[0].target, "/v/code/src/main.py");
  EXPECT_THAT(volumes[0].files, ElementsAre(Pair("src/main.py", "print(1)\n")));
}

TEST(ConfigMaps, AreWrittenInPlaceOfEarlierFiles) {
  const test::TemporaryDirectory directory;
  LocalVolume volume;
  volume.directory = volume.target = directory.path() / "code";
  volume.files = {{"a/b.py", "x"}};
  ASSERT_TRUE(write_volumes({volume}).has_value());
  EXPECT_EQ(read_file(directory.path() / "code/a/b.py").value(), "x");
  volume.files = {{"c.py", "y"}};
  ASSERT_TRUE(write_volumes({volume}).has_value());
  EXPECT_FALSE(fs::exists(directory.path() / "code/a"));
  EXPECT_EQ(read_file(directory.path() / "code/c.py").value(), "y");
}

TEST(ConfigMaps, ReplacePathsOnTheirVolumes) {
  std::vector<LocalVolume> volumes(2);
  volumes[0].mount_path = "/script/lib";
  volumes[0].target = "/v/lib";
  volumes[1].mount_path = "/script";
  volumes[1].target = "/v/code";
  EXPECT_EQ(localize("/script/train.py", volumes), "/v/code/train.py");
  EXPECT_EQ(localize("/script", volumes), "/v/code");
  EXPECT_EQ(localize("--file=/script/lib/a", volumes), "--file=/v/lib/a");
  EXPECT_EQ(localize("cd /script && python3 '/script/a.py'", volumes), "cd /v/code && python3 '/v/code/a.py'");
  for (const char* other : {"/scripts/a", "/my/script/a", "./script", "script", "/script.d"})
    EXPECT_EQ(localize(other, volumes), other);
}

}  // namespace
}  // namespace oarlock::run
