// oarlock convert: converts jobs of other systems to TrainingJobs.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/convert/converters.h"
#include "cli/job_file.h"
#include "common/files.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "yaml/writer.h"

namespace oarlock::cli {
namespace {

constexpr char kConvertDescription[] =
    "Convert a job of another system to a TrainingJob, and print it. Reads PyTorchJob, TrainJob with its runtime, "
    "MPIJob\n"
    "and JobSet from YAML, and job scripts of Slurm; the subcommands read command lines. Notes on standard error list\n"
    "what could not be carried over: file:line:column: note: path: message.";

constexpr char kTorchrun[] = "A command line of torchrun, or of python -m torch.distributed.run.";
constexpr char kAccelerate[] = "A command line of accelerate launch.";
constexpr char kQuantumGrav[] =
    "The YAML of QuantumGrav's DDP trainer (train_ddp.yaml). Notes on standard error list the keys that\n"
    "need no counterpart. A key without a counterpart is a problem: file:line:column: key: message.";

constexpr char kConvertFooter[] = R"(
exit codes: 0; 64: a command line is invalid; 66: a file cannot be read; 78: a file is invalid, or a job cannot be
converted.

examples:
  oarlock convert -f pytorchjob.yaml > job.yaml
  oarlock convert -f trainjob.yaml -f runtime.yaml | kubectl apply -f -
  oarlock convert -f train.sbatch --image registry.example.com/train:1
  oarlock convert torchrun --gpus 4 -- torchrun --nnodes 2 --nproc-per-node 4 train.py --epochs 3
  oarlock convert accelerate -- accelerate launch --num_machines 2 --num_processes 8 train.py
  oarlock convert quantumgrav train_ddp.yaml --data sets.zarr
)";

struct ConvertFlags {
  std::vector<std::string> files;
  convert::ConvertOptions options;
};

struct QuantumGravFlags {
  std::string file;
  convert::QuantumGravOptions options{.image = "oarlock/trainer:" OARLOCK_VERSION "-cuda", .data = {}};
};

// Prints the jobs, and their notes on standard error.
Result<int> print(const std::vector<convert::Converted>& jobs) {
  std::string text;
  for (const convert::Converted& converted : jobs) {
    for (const std::string& note : converted.notes) print_error(printable(note) + "\n");
    text += (text.empty() ? "" : "---\n") + yaml::to_yaml(converted.job);
  }
  return write_standard_output(text).map([] { return 0; });
}

Result<int> convert_quantumgrav_file(const QuantumGravFlags& flags) {
  ASSIGN_OR_RETURN(const std::vector<yaml::Node> documents, yaml::load_all(flags.file));
  if (documents.size() != 1)
    return fail(ExitCode::kConfig, fmt::format("{}: {} documents; one is expected", flags.file, documents.size()));
  ASSIGN_OR_RETURN(const convert::Converted converted,
                   convert::convert_quantumgrav(documents.front(), flags.file, flags.options));
  return print({converted});
}

Result<int> convert_files(const ConvertFlags& flags) {
  if (flags.files.empty())
    return fail(ExitCode::kUsage,
                "missing file; give it with -f FILE (- for standard input), or see oarlock convert --help");
  if (std::ranges::count(flags.files, "-") > 1) return fail(ExitCode::kUsage, "standard input (-) is given twice");
  std::vector<convert::SourceDocument> documents;
  for (const std::string& given : flags.files) {
    ASSIGN_OR_RETURN(const InputFile file, InputFile::open(given));
    ASSIGN_OR_RETURN(const std::string text, read_file(file.path(), yaml::limits::kFileBytes + 1));
    if (convert::is_job_script(text)) {
      if (flags.files.size() > 1)
        return fail(ExitCode::kUsage, fmt::format("{} is a job script; convert it without other files", file.name()));
      return convert::convert_sbatch(text, file.name(), flags.options).and_then([](const convert::Converted& job) {
        return print({job});
      });
    }
    ASSIGN_OR_RETURN(const std::vector<yaml::Node> roots, yaml::parse_all(text, file.name()));
    for (const yaml::Node& root : roots) documents.push_back({root, file.name()});
  }
  ASSIGN_OR_RETURN(const std::vector<convert::Converted> jobs, convert::convert_kubernetes(documents, flags.options));
  return print(jobs);
}

// Adds the options that all converters of foreign jobs share.
void add_options(CLI::App& app, convert::ConvertOptions& options) {
  app.add_option("--name", options.name, "name of the TrainingJob; default: that of the source")->type_name("NAME");
  app.add_option("--image", options.image, "image of the container 'trainer'; default: that of the source")
      ->type_name("IMAGE");
  app.add_option("--gpus", options.gpus, "GPUs on each node; default: those of the source")
      ->type_name("N")
      ->check(CLI::Range(1, 128));
}

void add_command_line(CLI::App& parent, const char* name, const char* description, convert::LauncherKind kind,
                      const std::optional<Words>& after_marker, Chosen& chosen) {
  auto options = std::make_shared<convert::ConvertOptions>();
  CLI::App* app = parent.add_subcommand(name, description);
  set_usage(*app, fmt::format("oarlock convert {} [OPTIONS] -- COMMAND [ARGUMENTS...]", name));
  app->footer(kConvertFooter);
  add_options(*app, *options);
  app->callback([options, kind, &after_marker, &chosen] {
    chosen = [options, kind, &after_marker]() -> Result<int> {
      ASSIGN_OR_RETURN(const convert::Converted job,
                       convert::convert_command_line(after_marker.value_or(Words()), kind, *options));
      return print({job});
    };
  });
}

}  // namespace

void add_convert(CLI::App& app, const std::optional<Words>& after_marker, Chosen& chosen) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* convert_app = app.add_subcommand("convert", kConvertDescription);
  set_usage(*convert_app,
            "oarlock convert -f FILE... [OPTIONS]\n       oarlock convert torchrun|accelerate [OPTIONS] -- COMMAND\n"
            "       oarlock convert quantumgrav FILE [OPTIONS]");
  convert_app->require_subcommand(0, 1);
  convert_app->footer(kConvertFooter);
  convert_app
      ->add_option("-f,--file", flags->files,
                   "Kubernetes objects in YAML or JSON, or a job script; - is standard input")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  add_options(*convert_app, flags->options);
  add_command_line(*convert_app, "torchrun", kTorchrun, convert::LauncherKind::kTorchrun, after_marker, chosen);
  add_command_line(*convert_app, "accelerate", kAccelerate, convert::LauncherKind::kAccelerate, after_marker, chosen);

  auto quantumgrav_flags = std::make_shared<QuantumGravFlags>();
  CLI::App* quantumgrav = convert_app->add_subcommand("quantumgrav", kQuantumGrav);
  set_usage(*quantumgrav, "oarlock convert quantumgrav FILE [OPTIONS]");
  quantumgrav->footer(kConvertFooter);
  quantumgrav->add_option("file", quantumgrav_flags->file, "QuantumGrav's configuration")
      ->type_name("FILE")
      ->required();
  quantumgrav->add_option("--data", quantumgrav_flags->options.data, "zarr stores or HDF5 files")->type_name("PATH");
  quantumgrav->add_option("--name", quantumgrav_flags->options.name, "name of the TrainingJob")
      ->type_name("NAME")
      ->capture_default_str();
  quantumgrav->add_option("--image", quantumgrav_flags->options.image, "image of its pods")
      ->type_name("IMAGE")
      ->capture_default_str();
  quantumgrav->callback([quantumgrav_flags, &chosen] {
    chosen = [quantumgrav_flags] { return convert_quantumgrav_file(*quantumgrav_flags); };
  });
  // The callback of a parent runs after that of its subcommand.
  convert_app->callback([convert_app, flags, &chosen] {
    if (convert_app->get_subcommands().empty()) chosen = [flags] { return convert_files(*flags); };
  });
}

}  // namespace oarlock::cli
