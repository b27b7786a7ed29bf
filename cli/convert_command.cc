// oarlock convert: converts the configuration of another program to a TrainingJob.
#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/convert/quantumgrav.h"
#include "common/standard_streams.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/yaml/writer.h"

namespace oarlock::cli {
namespace {

constexpr char kDescription[] = "Convert the configuration of another program to a TrainingJob, and print it.";

constexpr char kQuantumGrav[] =
    "The YAML of QuantumGrav's DDP trainer (train_ddp.yaml). Notes on standard error list the keys that\n"
    "need no counterpart. A key without a counterpart is a problem: file:line:column: key: message.";

constexpr char kFooter[] = R"(
exit codes: 0; 66: the file cannot be read; 78: the file is invalid or uses unsupported features.

examples:
  oarlock convert quantumgrav train_ddp.yaml --data sets.zarr > job.yaml
  oarlock run -f job.yaml
)";

struct ConvertFlags {
  std::string file;
  convert::QuantumGravOptions options{.image = "oarlock/trainer:" OARLOCK_VERSION "-cuda", .data = {}};
};

Result<int> convert_file(const ConvertFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<yaml::Node> documents, yaml::load_all(flags.file));
  if (documents.size() != 1)
    return fail(ExitCode::kConfig, fmt::format("{}: {} documents; one is expected", flags.file, documents.size()));
  ASSIGN_OR_RETURN(const convert::Converted converted,
                   convert::convert_quantumgrav(documents.front(), flags.file, flags.options));
  for (const std::string& note : converted.notes) print_error(printable(note) + "\n");
  return write_standard_output(yaml::to_yaml(converted.job)).map([] { return 0; });
}

}  // namespace

void add_convert(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* convert_app = app.add_subcommand("convert", kDescription);
  convert_app->require_subcommand(1);
  convert_app->footer(kFooter);
  CLI::App* quantumgrav = convert_app->add_subcommand("quantumgrav", kQuantumGrav);
  set_usage(*quantumgrav, "oarlock convert quantumgrav FILE [OPTIONS]");
  quantumgrav->footer(kFooter);
  quantumgrav->add_option("file", flags->file, "QuantumGrav's configuration")->type_name("FILE")->required();
  quantumgrav->add_option("--data", flags->options.data, "zarr stores or HDF5 files")->type_name("PATH");
  quantumgrav->add_option("--name", flags->options.name, "name of the TrainingJob")
      ->type_name("NAME")
      ->capture_default_str();
  quantumgrav->add_option("--image", flags->options.image, "image of its pods")
      ->type_name("IMAGE")
      ->capture_default_str();
  quantumgrav->callback([flags, &chosen] { chosen = [flags] { return convert_file(*flags); }; });
}

}  // namespace oarlock::cli
