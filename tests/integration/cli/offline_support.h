// Commands that need no cluster, in a dedicated directory.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace oarlock::test {

inline constexpr char kJob[] = R"(apiVersion: oarlock.dev/v1alpha1
kind: TrainingJob
metadata: {name: j}
spec:
  nodes: 2
  template: {spec: {containers: [{name: trainer, image: x, command: [python3], env: [{name: RANK, value: "7"}]}]}}
)";

// A directory with oarlock alone, or with a stand-in for oarlock-trainer next to it.
class OfflineTest : public testing::Test {
 protected:
  OfflineTest() { std::filesystem::copy_file(oarlock(), directory_.path() / "oarlock"); }
  void write(const std::string& name, const std::string& text) { std::ofstream(directory_.path() / name) << text; }
  void trainer(const std::string& script) {
    write("oarlock-trainer", "#!/bin/sh\n" + script);
    std::filesystem::permissions(directory_.path() / "oarlock-trainer", std::filesystem::perms::owner_all);
  }
  std::unique_ptr<Program> start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), (directory_.path() / "oarlock").string());
    return std::make_unique<Program>(
        arguments, ProgramOptions{.environment = {{"PATH", "/usr/bin:/bin"}}, .directory = directory_.path()});
  }
  TemporaryDirectory directory_;
};

}  // namespace oarlock::test
