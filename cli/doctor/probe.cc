#include "cli/doctor/probe.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "cli/doctor/child.h"
#include "cli/launch/process.h"
#include "cli/run/local_job.h"
#include "common/contract.h"
#include "common/cpu.h"
#include "common/files.h"
#include "common/memory_limit.h"
#include "common/port_socket.h"
#include "common/text.h"

namespace oarlock::doctor {
namespace {

using launch::environment_variable;
namespace fs = std::filesystem;
using Json = nlohmann::json;
using Milliseconds = std::chrono::milliseconds;

std::string error_text(int number) { return std::generic_category().message(number); }

// Returns the first line of a file without the space at its ends; "" if it cannot be read.
std::string first_line(const fs::path& path) {
  const std::string text = read_file(path, 4096).value_or("");
  return std::string(trim(text.substr(0, text.find('\n'))));
}

std::string system_name() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("PRETTY_NAME=")) return std::string(trim(std::string_view(line).substr(12), "\""));
  }
  return "Linux";
}

// ---- Devices ---------------------------------------------------------------------------------------------------

int count_device_files() {
  int count = 0;
  visit_directory("/dev", [&count](const fs::path& path) {
    const std::string name = path.filename().string();
    if (name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos)
      ++count;
  });
  return count;
}

// Whether a display or 3D controller of NVIDIA is on the PCI bus.
bool find_nvidia_pci_device() {
  bool found = false;
  visit_directory("/sys/bus/pci/devices", [&found](const fs::path& path) {
    found = found || (first_line(path / "vendor") == "0x10de" && first_line(path / "class").starts_with("0x03"));
  });
  return found;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ...", or "... for x86_64  580.65.06  Release Build".
std::string kernel_driver_version() {
  std::istringstream words(first_line("/proc/driver/nvidia/version"));
  for (std::string word; words >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0 && word.find('.') != std::string::npos) return word;
  }
  return "";
}

template <typename Function>
Function symbol(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

// Calls NVML, which is part of the driver, without its header. Runs in a child, because a broken driver may block.
std::string query_nvml() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Json{{"error", std::string(::dlerror())}}.dump(-1, ' ', true);
  using Call = int (*)();
  using Text = int (*)(char*, unsigned);
  using Number = int (*)(int*);
  using Count = int (*)(unsigned*);
  using Handle = int (*)(unsigned, void**);
  using Name = int (*)(void*, char*, unsigned);
  struct Memory {
    unsigned long long total, free, used;
  };
  using MemoryOf = int (*)(void*, Memory*);
  using ErrorString = const char* (*)(int);
  const auto init = symbol<Call>(library, "nvmlInit_v2");
  const auto driver = symbol<Text>(library, "nvmlSystemGetDriverVersion");
  const auto cuda = symbol<Number>(library, "nvmlSystemGetCudaDriverVersion");
  const auto count = symbol<Count>(library, "nvmlDeviceGetCount_v2");
  const auto handle = symbol<Handle>(library, "nvmlDeviceGetHandleByIndex_v2");
  const auto name = symbol<Name>(library, "nvmlDeviceGetName");
  const auto memory = symbol<MemoryOf>(library, "nvmlDeviceGetMemoryInfo");
  const auto error_string = symbol<ErrorString>(library, "nvmlErrorString");
  if (init == nullptr || driver == nullptr || cuda == nullptr || count == nullptr || handle == nullptr ||
      name == nullptr || memory == nullptr || error_string == nullptr)
    return Json{{"error", "libnvidia-ml.so.1 lacks functions of NVML"}}.dump();
  if (const int result = init(); result != 0)
    return Json{{"error", std::string(error_string(result))}}.dump(-1, ' ', true);
  Json out = {{"gpus", Json::array()}};
  char text[128] = {};
  if (driver(text, sizeof text) == 0) out["driver"] = std::string(text);
  if (int version = 0; cuda(&version) == 0) out["cuda"] = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  unsigned devices = 0;
  if (const int result = count(&devices); result != 0) out["error"] = std::string(error_string(result));
  for (unsigned i = 0; i < devices; ++i) {
    void* device = nullptr;
    if (const int result = handle(i, &device); result != 0) {
      out["error"] = fmt::format("GPU {}: {}", i, error_string(result));
      continue;
    }
    Memory size{};
    if (name(device, text, sizeof text) != 0) text[0] = '\0';
    if (memory(device, &size) != 0) size.total = 0;
    out["gpus"].push_back({{"name", std::string(text)}, {"memory", static_cast<uint64_t>(size.total)}});
  }
  return out.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string query_nccl() {
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Json{{"error", std::string(::dlerror())}}.dump(-1, ' ', true);
  const auto version = symbol<int (*)(int*)>(library, "ncclGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) return Json{{"error", "ncclGetVersion failed"}}.dump();
  // 22803 is 2.28.3; up to 2.8, 2804 was 2.8.4.
  const int major = number >= 10000 ? number / 10000 : number / 1000;
  const int minor = number >= 10000 ? number % 10000 / 100 : number % 1000 / 100;
  return Json{{"version", fmt::format("{}.{}.{}", major, minor, number % 100)}}.dump();
}

void probe_devices(Facts& facts, Milliseconds limit) {
  facts.gpu_device_files = count_device_files();
  facts.has_nvidia_pci_device = find_nvidia_pci_device();
  facts.kernel_driver = kernel_driver_version();
  facts.restricts_devices = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  facts.cuda_visible_devices = environment_variable("CUDA_VISIBLE_DEVICES");
  const bool any_sign = facts.gpu_device_files > 0 || !facts.kernel_driver.empty();
  const std::optional<std::string> nccl = run_with_limit(query_nccl, limit);
  const Json nccl_report = Json::parse(nccl.value_or("{}"), nullptr, false);
  if (nccl_report.is_object()) {
    facts.nccl_version = nccl_report.value("version", "");
    facts.nccl_error = nccl_report.value("error", nccl ? "" : "loading it crashed, or took too long");
  }
  if (!any_sign) return;
  const std::optional<std::string> nvml = run_with_limit(query_nvml, limit);
  const Json report = Json::parse(nvml.value_or("{}"), nullptr, false);
  if (!nvml || !report.is_object()) {
    facts.nvml_error = fmt::format("NVML crashed, or did not reply within {} s", limit.count() / 1000);
    return;
  }
  facts.nvml_error = report.value("error", "");
  facts.driver_version = report.value("driver", "");
  facts.cuda_version = report.value("cuda", "");
  for (const Json& gpu : report.value("gpus", Json::array()))
    facts.gpus.push_back({gpu.value("name", ""), gpu.value("memory", int64_t{0})});
}

// ---- Programs --------------------------------------------------------------------------------------------------

void probe_trainer(Facts& facts, Milliseconds limit) {
  const auto found = run::find_program({"oarlock-trainer"}, run::own_directory(), environment_variable("PATH"));
  if (!found) return;
  facts.trainer_path = found->front();
  int exit_code = 0;
  const std::string output = program_output({facts.trainer_path, "--version"}, limit, exit_code);
  const std::string line(trim(output.substr(0, output.find('\n'))));
  if (exit_code == 0) {
    facts.trainer_version = line;
  } else {
    facts.trainer_error = exit_code < 0 ? fmt::format("no reply within {} s", limit.count() / 1000) : line;
    if (facts.trainer_error.empty()) facts.trainer_error = fmt::format("exit code {}", exit_code);
  }
}

// ---- Network ---------------------------------------------------------------------------------------------------

// Resolves a name in a child. Returns {"addresses": [...]} or {"error": "..."}.
std::string query_name(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int result = ::getaddrinfo(name.c_str(), nullptr, &hints, &list); result != 0)
    return Json{{"error", std::string(result == EAI_SYSTEM ? error_text(errno) : ::gai_strerror(result))}}.dump();
  Json addresses = Json::array();
  for (const addrinfo* entry = list; entry != nullptr && addresses.size() < 8; entry = entry->ai_next) {
    char text[NI_MAXHOST] = {};
    if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.push_back(std::string(text));
  }
  ::freeaddrinfo(list);
  return Json{{"addresses", addresses}}.dump();
}

double look_up(const std::string& name, Milliseconds limit, std::vector<std::string>& addresses, std::string& error) {
  const auto begin = std::chrono::steady_clock::now();
  const std::optional<std::string> reply = run_with_limit([&] { return query_name(name); }, limit);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Json report = Json::parse(reply.value_or("{}"), nullptr, false);
  if (!reply || !report.is_object()) {
    error = fmt::format("no reply within {} s", limit.count() / 1000);
    return seconds;
  }
  error = report.value("error", "");
  addresses = report.value("addresses", std::vector<std::string>());
  return seconds;
}

void probe_network(Facts& facts, Milliseconds limit) {
  const auto port_of = [](const char* name, int fallback) {
    const std::string text = environment_variable(name);
    const bool is_number =
        !text.empty() && text.size() < 6 && text.find_first_not_of("0123456789") == std::string::npos;
    const int port = is_number ? std::stoi(text) : fallback;
    return port >= 1 && port <= 65535 ? port : fallback;
  };
  const int rendezvous = port_of(kEnvMasterPort, kDefaultMasterPort);
  facts.ports.push_back({"rendezvous port", rendezvous, probe_port(rendezvous)});
  const int metrics = port_of(kEnvMetricsPort, kDefaultMetricsPort);
  facts.ports.push_back({"metrics port", metrics, probe_port(metrics)});
  facts.master_address = environment_variable(kEnvMasterAddr);
  if (!facts.master_address.empty())
    facts.lookup_seconds = look_up(facts.master_address, limit, facts.master_addresses, facts.master_error);
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) == 0) facts.own_name = name;
  std::vector<std::string> unused;
  facts.lookup_seconds = std::max(facts.lookup_seconds, look_up(facts.own_name, limit, unused, facts.own_error));
}

// ---- Clock -----------------------------------------------------------------------------------------------------

void probe_clock(Facts& facts, const ProbeOptions& options) {
  timex state{};
  const int result = ::adjtimex(&state);
  if (result >= 0) facts.clock_synchronized = (state.status & STA_UNSYNC) == 0 && result != TIME_ERROR;
  std::string url = options.server;
  const std::string host = environment_variable("KUBERNETES_SERVICE_HOST");
  if (url.empty() && !host.empty()) {
    const std::string port = environment_variable("KUBERNETES_SERVICE_PORT");
    url = fmt::format("https://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]",
                      port.empty() ? "443" : port);
  }
  if (url.empty()) return;
  // Only the header is used, so the certificate does not matter, and a refused request will do.
  int exit_code = 0;
  const std::string headers =
      program_output({"curl", "--silent", "--insecure", "--head", "--max-time", "2", "--", url + "/version"},
                     options.limit, exit_code);
  const auto now = std::chrono::system_clock::now();
  if (const std::optional<int64_t> date = date_of_headers(headers)) {
    const double server = static_cast<double>(*date) + 0.5;  // the header has whole seconds
    facts.server_skew_seconds = server - std::chrono::duration<double>(now.time_since_epoch()).count();
  }
}

// ---- Memory and limits -----------------------------------------------------------------------------------------

int64_t limit_of(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_max, INT64_MAX));
}

void probe_limits(Facts& facts) {
  facts.open_files = limit_of(RLIMIT_NOFILE);
  facts.processes = limit_of(RLIMIT_NPROC);
  facts.locked_memory = limit_of(RLIMIT_MEMLOCK);
  struct sysinfo memory{};
  if (::sysinfo(&memory) == 0)
    facts.memory_bytes = static_cast<int64_t>(memory.totalram) * static_cast<int64_t>(memory.mem_unit);
  if (const std::optional<uint64_t> limit = cgroup_memory_limit())
    facts.memory_limit_bytes = static_cast<int64_t>(*limit);
  facts.cpus = usable_cpus();
  facts.machine_cpus = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  facts.omp_threads = environment_variable("OMP_NUM_THREADS");
  const std::string ranks = environment_variable(kEnvLocalWorldSize);
  if (!ranks.empty() && ranks.size() < 5 && ranks.find_first_not_of("0123456789") == std::string::npos)
    facts.local_world_size = std::max(1, std::stoi(ranks));
}

void probe_shared_memory(Facts& facts) {
  struct statvfs space{};
  if (::statvfs("/dev/shm", &space) != 0) return;
  facts.shm_bytes = static_cast<int64_t>(space.f_blocks) * static_cast<int64_t>(space.f_frsize);
  facts.shm_free_bytes = static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
}

void probe_place(Facts& facts) {
  facts.system = system_name();
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = fmt::format("Linux {} {}", name.release, name.machine);
  if (!environment_variable("KUBERNETES_SERVICE_HOST").empty()) {
    facts.place = Place::kPod;
    facts.place_detail = environment_variable("HOSTNAME");
    const std::string namespace_name = first_line("/var/run/secrets/kubernetes.io/serviceaccount/namespace");
    if (!namespace_name.empty()) facts.place_detail = namespace_name + "/" + facts.place_detail;
  } else if (!environment_variable("SLURM_JOB_ID").empty()) {
    facts.place = Place::kSlurm;
    facts.place_detail = environment_variable("SLURM_JOB_ID");
  }
}

// The operations of a save. Runs in a child.
std::string exercise_directory(const fs::path& parent) {
  Json out = Json::object();
  std::string directory = (parent / ".oarlock-doctor-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) {
    out["create"] = error_text(errno);
    return out.dump();
  }
  const std::string file = directory + "/file";
  const std::string other = directory + "/renamed";
  const FileDescriptor fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  const std::string block(size_t{1} << 20, 'x');
  int error = fd.open() ? 0 : errno;
  for (int i = 0; i < 4 && error == 0; ++i) {
    const ssize_t written = ::write(fd.get(), block.data(), block.size());
    if (written != static_cast<ssize_t>(block.size())) error = written < 0 ? errno : ENOSPC;
  }
  if (error != 0) out["write"] = error_text(error);
  const auto begin = std::chrono::steady_clock::now();
  if (error == 0 && ::fsync(fd.get()) != 0) out["sync"] = error_text(errno);
  if (error == 0) {
    const FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!opened.open() || ::fsync(opened.get()) != 0) out["sync"] = "of the directory: " + error_text(errno);
  }
  out["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (error == 0 && ::rename(file.c_str(), other.c_str()) != 0) out["rename"] = error_text(errno);
  if (::symlink("renamed", (directory + "/link").c_str()) != 0) out["symlink"] = error_text(errno);
  struct statvfs space{};
  if (::statvfs(directory.c_str(), &space) == 0)
    out["free"] = static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
  std::error_code ignored;
  fs::remove_all(directory, ignored);
  return out.dump();
}

}  // namespace

DirectoryFact probe_directory(const std::string& path, bool is_given, Milliseconds limit) {
  DirectoryFact fact{.path = path, .is_given = is_given};
  // The job creates the directory; here its nearest parent that exists is checked.
  std::error_code error;
  fs::path existing = fs::absolute(path, error);
  const std::optional<std::string> reply = run_with_limit(
      [&] {
        std::error_code ignored;
        while (!fs::exists(existing, ignored) && existing != existing.parent_path()) existing = existing.parent_path();
        return exercise_directory(existing);
      },
      limit);
  const Json report = Json::parse(reply.value_or("{}"), nullptr, false);
  if (!reply || !report.is_object()) {
    fact.write_error = fmt::format("no reply of the file system within {} s", limit.count() / 1000);
    return fact;
  }
  fact.create_error = report.value("create", "");
  fact.write_error = report.value("write", "");
  fact.sync_error = report.value("sync", "");
  fact.rename_error = report.value("rename", "");
  fact.symlink_error = report.value("symlink", "");
  fact.sync_seconds = report.value("seconds", 0.0);
  fact.free_bytes = report.value("free", int64_t{-1});
  return fact;
}

std::string probe_port(int port) {
  PortSocket listener;
  const int error = listen_on_port(port, 1, listener);
  return error == 0 ? "" : error_text(error);
}

std::optional<int64_t> date_of_headers(const std::string& headers) {
  std::istringstream lines(headers);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() < 5 || ::strncasecmp(line.c_str(), "date:", 5) != 0) continue;
    const std::string text(trim(std::string_view(line).substr(5)));
    // The form of RFC 9110: "Sun, 06 Nov 1994 08:49:37 GMT".
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    tm time{};
    char month[4] = {};
    char zone[4] = {};
    if (std::sscanf(text.c_str(), "%*3s, %2d %3s %4d %2d:%2d:%2d %3s", &time.tm_mday, month, &time.tm_year,
                    &time.tm_hour, &time.tm_min, &time.tm_sec, zone) != 7 ||
        std::strcmp(zone, "GMT") != 0)
      return std::nullopt;
    const auto* found = std::ranges::find_if(kMonths, [&](const char* name) { return std::strcmp(name, month) == 0; });
    if (found == std::end(kMonths)) return std::nullopt;
    time.tm_mon = static_cast<int>(found - kMonths);
    time.tm_year -= 1900;
    return ::timegm(&time);
  }
  return std::nullopt;
}

Facts probe(const ProbeOptions& options) {
  Facts facts;
  facts.version = options.version;
  probe_place(facts);
  probe_devices(facts, options.limit);
  probe_trainer(facts, options.limit);
  probe_network(facts, options.limit);
  probe_shared_memory(facts);
  probe_clock(facts, options);
  const std::string of_job = environment_variable(kEnvCheckpointDir);
  const bool is_given = !options.checkpoint_dir.empty() || !of_job.empty();
  facts.directory = probe_directory(!options.checkpoint_dir.empty() ? options.checkpoint_dir
                                    : is_given                      ? of_job
                                                                    : ".",
                                    is_given, options.limit);
  probe_limits(facts);
  return facts;
}

}  // namespace oarlock::doctor
