// oarlock render: the objects that the operator would create, without a cluster.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/job_file.h"
#include "common/standard_streams.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/yaml/writer.h"
#include "operator/core/desired.h"

namespace oarlock::cli {
namespace {

using Json = nlohmann::json;

constexpr char kRenderDescription[] =
    "Print the Service, the PersistentVolumeClaim (for spec.checkpoints.size) and the pods that the operator would\n"
    "create for a TrainingJob. The uid is shown as zeros unless the file has one, since the API server assigns it.";

constexpr char kRenderFooter[] = R"(
exit codes: 0; 66: the file cannot be read; 78: the file is invalid.

examples:
  oarlock render trainingjob.yaml
  oarlock render -f trainingjob.yaml -o json | jq '.items[1].spec.containers[0].env'
)";

struct RenderFlags {
  std::string file;
  std::string argument;  // likewise a file
  std::string name;
  std::string output = "yaml";
  int attempt = 0;
  control::PodDefaults defaults;
};

Result<int> render(const RenderFlags& flags) {
  if (flags.file.empty() == flags.argument.empty())
    return fail(ExitCode::kUsage, "give one file, as oarlock render FILE, or with -f FILE (- for standard input)");
  ASSIGN_OR_RETURN(const InputFile input, InputFile::open(flags.file.empty() ? flags.argument : flags.file));
  ASSIGN_OR_RETURN(std::vector<api::TrainingJob> jobs, load_jobs(input.path(), TemplateCheck::kNone, input.name()));
  if (!flags.name.empty()) {
    ASSIGN_OR_RETURN(api::TrainingJob job, choose_job(std::move(jobs), flags.name, input.name()));
    jobs = {std::move(job)};
  }
  Json items = Json::array();
  for (api::TrainingJob& job : jobs) {
    if (job.metadata.uid.empty()) job.metadata.uid = "00000000-0000-0000-0000-000000000000";
    items.push_back(control::desired_service(job));
    if (control::wants_claim(job)) items.push_back(control::desired_claim(job));
    const control::PodFactory factory(job, flags.attempt, flags.defaults, control::placeholder_secret());
    for (int node = 0; node < job.spec.nodes; ++node) items.push_back(factory.pod(node));
    for (const std::string& name : factory.overridden_variables()) {
      print_error(fmt::format("oarlock render: note: {}: the template's value of {} is replaced by the operator's\n",
                              job.metadata.name, name));
    }
  }
  std::string text;
  if (flags.output == "json") {
    const Json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", items}};
    text = list.dump(2) + "\n";
    if (!is_printable(list.dump())) text = list.dump(2, ' ', /*ensure_ascii=*/true) + "\n";
  } else {
    for (const Json& item : items) text += (text.empty() ? "" : "---\n") + yaml::to_yaml(item);
  }
  return write_standard_output(text).map([] { return 0; });
}

}  // namespace

void add_render(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<RenderFlags>();
  CLI::App* render_app = app.add_subcommand("render", kRenderDescription);
  set_usage(*render_app, "oarlock render FILE [OPTIONS]");
  render_app->footer(kRenderFooter);
  render_app->add_option("-f,--file", flags->file, "the TrainingJobs, YAML or JSON; - is standard input")
      ->type_name("FILE");
  render_app->add_option("argument", flags->argument, "the same")->type_name("FILE");
  render_app->add_option("--name", flags->name, "only this TrainingJob")->type_name("NAME");
  render_app->add_option("-o,--output", flags->output, "yaml or json")
      ->type_name("FORMAT")
      ->capture_default_str()
      ->check(CLI::IsMember({"yaml", "json"}));
  render_app->add_option("--attempt", flags->attempt, "number of the attempt: the restarts before it")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(0, 9999));
  render_app
      ->add_option(
          "--trainer-image", flags->defaults.image,
          "the operator's --trainer-image: for jobs that set neither spec.image nor an image in their template")
      ->type_name("IMAGE")
      ->capture_default_str();
  render_app->callback([flags, &chosen] { chosen = [flags] { return render(*flags); }; });
}

}  // namespace oarlock::cli
