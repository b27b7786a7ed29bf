#include "tests/support/trainer_program/tiny_task.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <thread>

#include "ddp/batch_norm.h"
#include "trainer/data/batch.h"
#include "trainer/data/fingerprint.h"

namespace oarlock::test {
namespace {

constexpr int64_t kFeatures = 8;
constexpr int64_t kClasses = 3;
constexpr std::chrono::milliseconds kSlowBatch(500);

struct Fault {
  std::string kind;
  int64_t rank = 0;
  int64_t step = 0;   // counted from 0, of this process; of the run for the faults that kill, and slow_forward
  std::string once;   // file that the first process with the fault creates; if it exists, there is no fault
  int64_t delay = 0;  // microseconds, of kill_later

  bool here(const std::string& wanted) const {
    const char* own = std::getenv("RANK");
    return kind == wanted && rank == (own != nullptr ? std::atoll(own) : 0);
  }

  // Returns the new file `once`; -1 if there is no such fault now, or another process had it.
  int begin(const std::string& wanted, int64_t now) const {
    if (now < step || !here(wanted)) return -1;
    return ::open(once.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  }

  // Kills this process.
  void kill_if(const std::string& wanted, int64_t now) const {
    const int file = begin(wanted, now);
    if (file < 0) return;
    ::close(file);
    if (delay == 0) ::kill(::getpid(), SIGKILL);
    std::thread([microseconds = delay] {
      std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
      ::kill(::getpid(), SIGKILL);
    }).detach();
  }

  // Writes a line to stderr, and never returns.
  void stall_if(const std::string& wanted) const {
    if (!here(wanted)) return;
    std::fprintf(stderr, "the fault '%s' begins\n", wanted.c_str());
    for (;;) ::pause();
  }

  // Reports it on stderr and takes this long, on every rank.
  void slow_if(const std::string& wanted, std::chrono::milliseconds duration) const {
    if (kind != wanted) return;
    std::fprintf(stderr, "the fault '%s' begins\n", wanted.c_str());
    std::this_thread::sleep_for(duration);
  }
};

// Kills this process when the optimizer has updated one parameter and is about to write to another one, whose memory is
// read-only from then on. Writes "in the update" to `report` if the first one has changed.
class HalfUpdate {
 public:
  static void arm(const at::Tensor& first, const at::Tensor& second, int report) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    size_ = (second.nbytes() + page - 1) / page * page;
    memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::runtime_error("no memory for the fault 'kill_update'");
    const at::NoGradGuard no_grad;
    const at::Tensor copy = torch::from_blob(memory_, second.sizes(), second.options().requires_grad(false));
    copy.copy_(second);
    second.set_data(copy);
    first_ = first.const_data_ptr();
    before_.assign(static_cast<const char*>(first_), first.nbytes());
    report_ = report;
    struct sigaction action{};
    action.sa_sigaction = on_write;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, nullptr);
    ::mprotect(memory_, size_, PROT_READ);
  }

 private:
  static void on_write(int, siginfo_t* info, void*) {
    const char* const begin = static_cast<const char*>(memory_);
    const char* const at = static_cast<const char*>(info->si_addr);
    const bool is_update =
        at >= begin && at < begin + size_ && std::memcmp(first_, before_.data(), before_.size()) != 0;
    constexpr std::string_view kReport = "in the update";
    if (is_update && ::write(report_, kReport.data(), kReport.size()) < 0) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }

  inline static void* memory_ = nullptr;
  inline static size_t size_ = 0;
  inline static const void* first_ = nullptr;
  inline static std::string before_;
  inline static int report_ = -1;
};

class RandomData final : public Dataset {
 public:
  // Called with the number of the batch, from 0, its seed and its samples, on the loader's threads.
  using BeforeBatch = std::function<void(int64_t, uint64_t, std::span<const int64_t>)>;
  RandomData(int64_t size, uint64_t seed, BeforeBatch before_batch = {}) : before_batch_(std::move(before_batch)) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    features_ = torch::randn({size, kFeatures}, generator);
    labels_ = features_.narrow(1, 0, kClasses).argmax(1);
  }

  int64_t size() const override { return features_.size(0); }

  std::string fingerprint() const override {
    FingerprintBuilder out;
    out.add(features_);
    return out.text();
  }

  void make_batch(std::span<const int64_t> indices, uint64_t seed, Batch& batch) const override {
    if (before_batch_) before_batch_(batches_++, seed, indices);
    stack_rows(features_, indices, "features", batch);
    stack_rows(labels_, indices, "labels", batch);
  }

 private:
  BeforeBatch before_batch_;
  mutable std::atomic<int64_t> batches_{0};
  at::Tensor features_;
  at::Tensor labels_;
};

class TinyNet final : public torch::nn::Module {
 public:
  TinyNet(int64_t hidden, double dropout, bool batch_norm)
      : batch_norm_(batch_norm),
        fc1_(register_module("fc1", torch::nn::Linear(kFeatures, hidden))),
        norm_(batch_norm ? register_module("norm", BatchNorm1d(hidden)) : nullptr),
        dropout_(register_module("dropout", torch::nn::Dropout(dropout))),
        fc2_(register_module("fc2", torch::nn::Linear(hidden, kClasses))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = fc1_(x);
    return fc2_(dropout_(torch::relu(batch_norm_ ? norm_(hidden) : hidden)));
  }

 private:
  bool batch_norm_;
  torch::nn::Linear fc1_;
  BatchNorm1d norm_;
  torch::nn::Dropout dropout_;
  torch::nn::Linear fc2_;
};

class TinyTask final : public ModelTask<TinyNet> {
 public:
  explicit TinyTask(Fields& root) {
    root.section(
        "data",
        [&](Fields& data) {
          data.field("samples", samples_, at_least(1), "to train on");
          data.field("eval_samples", eval_samples_, at_least(0), "to evaluate on");
          data.field("rows", rows_, "evaluation gives target, prediction and logits of each sample, too");
          data.field("prepared_file", prepared_file_, "prepare_data() adds a line with its rank");
          data.choice<PrepareOn>("prepare_on", prepare_on_,
                                 {{"one_rank", PrepareOn::kOneRank},
                                  {"one_rank_per_node", PrepareOn::kOneRankPerNode},
                                  {"every_rank", PrepareOn::kEveryRank}},
                                 "where prepare_data() runs");
          data.field("pass_file", pass_file_, "a pass adds a line: steps, rows, accuracy, mean weight; empty: no pass");
          data.field("seeds_file", seeds_file_, "each batch to train on adds a line with its seed");
          data.field("ids_file", ids_file_, "each batch to train on adds a line with its samples");
          data.field("pass_every", pass_every_, at_least(0), "steps between two passes; 0: at the end");
          data.field("pass_best", pass_best_, "the pass is of the best checkpoint's weights");
        },
        "random features and a rule");
    root.section(
        "model",
        [&](Fields& model) {
          model.field("hidden", hidden_, at_least(1), "width");
          model.field("dropout", dropout_, from_below(0, 1), "probability");
          model.field("batch_norm", batch_norm_, "between the layers");
          model.section("fault", [&](Fields& fault) { describe_fault(fault); }, "what goes wrong, where and when");
        },
        "an MLP");
  }

  PrepareOn prepare_on() const override { return prepare_on_; }

  Result<void> prepare_data(const Logger& /*log*/) override {
    if (fault_.here("prepare_data")) return fail(ExitCode::kNoInput, "the fault 'prepare_data': no such file");
    fault_.slow_if("long_prepare_data", std::chrono::seconds(50));
    if (fault_.here("slow_prepare_data")) std::this_thread::sleep_for(std::chrono::seconds(6));
    if (!prepared_file_.empty()) std::ofstream(prepared_file_, std::ios::app) << std::getenv("RANK") << "\n";
    return {};
  }

  Result<void> prepare() override {
    if (fault_.here("prepare")) return fail(ExitCode::kNoInput, "the fault 'prepare': a file is missing");
    fault_.slow_if("long_prepare", std::chrono::seconds(50));
    const int64_t samples = fault_.here("less_data") ? samples_ / 2 : samples_;
    const uint64_t content = fault_.here("other_data") ? 3 : 1;
    train_ = std::make_unique<RandomData>(
        samples, content, [this](int64_t batch, uint64_t seed, std::span<const int64_t> ids) {
          if (!ids_file_.empty()) std::ofstream(ids_file_, std::ios::app) << fmt::format("{}\n", fmt::join(ids, " "));
          if (!seeds_file_.empty()) std::ofstream(seeds_file_, std::ios::app) << std::to_string(seed) + "\n";
          if (batch == fault_.step) fault_.stall_if("stall_data");
        });
    eval_ = std::make_unique<RandomData>(eval_samples_, 2);
    return {};
  }

  const Dataset& train_data() const override { return *train_; }
  const Dataset& eval_data() const override { return *eval_; }

  std::shared_ptr<TinyNet> create_model() override {
    return std::make_shared<TinyNet>(fault_.here("shape") ? hidden_ + 1 : hidden_, dropout_, batch_norm_);
  }

  at::Tensor training_loss(TinyNet& model, const Batch& batch, const StepContext& context) override {
    run_step_ = context.step;
    fault_.kill_if("kill_later", context.step);
    if (const int report = fault_.begin("kill_update", context.step); report >= 0) {
      const std::vector<at::Tensor> parameters = model.parameters();
      HalfUpdate::arm(parameters.front(), parameters[parameters.size() - 2], report);
    }
    if (fault_.step == step_ && fault_.here("throw")) throw std::runtime_error("the fault 'throw'");
    if (fault_.step == step_ && fault_.here("device"))
      throw std::runtime_error("CUDA error: uncorrectable ECC error encountered");
    if (fault_.step == step_ && fault_.here("diverge")) {
      const at::NoGradGuard no_grad;
      model.parameters().front().add_(1);
    }
    if (context.step >= fault_.step) fault_.slow_if("slow_forward", kSlowBatch);
    if (fault_.here("slow")) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (fault_.step == step_ && fault_.here("label")) {
      Batch wrong = batch;
      wrong.tensors["labels"] = batch["labels"] + kClasses;
      return loss_of(model, wrong);
    }
    at::Tensor loss = loss_of(model, batch);
    fault_.kill_if("kill_forward", context.step);
    if (fault_.here("kill_backward") && context.step >= fault_.step)
      loss.register_hook([this](const at::Tensor&) { fault_.kill_if("kill_backward", run_step_); });
    if (fault_.step == step_ && fault_.here("nan")) loss = loss * std::numeric_limits<double>::quiet_NaN();
    if (fault_.step <= step_ && fault_.here("nan_from")) loss = loss * std::numeric_limits<double>::quiet_NaN();
    if (fault_.step == step_ && fault_.here("nan_gradient")) loss = loss + (loss * 0).sqrt();  // the loss is unchanged
    if (fault_.step == step_ && fault_.here("inf")) loss = loss + std::numeric_limits<double>::infinity();
    ++step_;
    return loss;
  }

  EvalOutput evaluate(TinyNet& model, const Batch& batch) override {
    fault_.stall_if("stall_eval");
    fault_.kill_if("kill_eval", run_step_);
    fault_.slow_if("slow_eval", kSlowBatch);
    const at::Tensor logits = model.forward(batch["features"]);
    const at::Tensor loss = torch::nn::functional::cross_entropy(logits, batch["labels"]);
    EvalOutput out;
    out.sums = {{"loss", loss.item<double>() * static_cast<double>(batch.size())},
                {"correct", logits.argmax(1).eq(batch["labels"]).sum().item<double>()}};
    if (fault_.here("mean")) out.sums["loss"] = loss.item<double>();
    if (rows_) out.rows = {{"target", batch["labels"]}, {"prediction", logits.argmax(1)}, {"logit", logits}};
    return out;
  }

  Metrics metrics(const MetricSums& totals, const EvalRows& rows) const override {
    const double count = totals.at("count");
    Metrics out = {{"loss", totals.at("loss") / count}, {"accuracy", totals.at("correct") / count}, {"count", count}};
    if (rows_) {
      out["rows"] = static_cast<double>(rows.ids.size());
      out["row_accuracy"] =
          rows.columns.at("target").eq(rows.columns.at("prediction")).to(at::kDouble).mean().item<double>();
    }
    return out;
  }

  std::vector<std::string> metric_names() const override {
    return {"loss", "accuracy", "count", "rows", "row_accuracy"};
  }

  Monitor monitor() const override { return {.metric = "accuracy", .mode = MetricMode::kMax}; }

  std::vector<UnusedSetting> unused_settings() const override {
    if (rows_) return {};
    return {{"eval.rows_file", "data.rows is false"}};
  }

  std::vector<EvalPass> passes() override {
    if (pass_file_.empty()) return {};
    return {{.name = "pass",
             .every_steps = pass_every_,
             .weights = pass_best_ ? PassWeights::kBest : PassWeights::kCurrent,
             .batch_size = 3,
             .data = eval_.get(),
             .step = pass_step([this](TinyNet& model, const Batch& batch) { return pass_output(model, batch); }),
             .finish = [this](const MetricSums& totals, const EvalRows& rows, int64_t steps) {
               return write_pass(totals, rows, steps);
             }}};
  }

 private:
  void describe_fault(Fields& fault) {
    fault.field("kind", fault_.kind,
                "throw, label, mean, device, nan, nan_gradient, shape, prepare, prepare_data, less_data, other_data, "
                "stall_data, stall_eval, diverge, "
                "slow, slow_prepare_data, kill_forward, kill_backward, kill_update, kill_eval, kill_later, "
                "or, on every rank, long_prepare_data, long_prepare, slow_forward, slow_eval or slow_pass");
    fault.field("once", fault_.once, "of the faults that kill: created by the process that is killed");
    fault.field("delay", fault_.delay, at_least(0), "of kill_later, in microseconds");
    fault.field("rank", fault_.rank, at_least(0), "of the rank that fails");
    fault.field("step", fault_.step, at_least(0), "of this process, from 0; of slow_forward: the first of the run");
  }

  EvalOutput pass_output(TinyNet& model, const Batch& batch) {
    const double weight = model.parameters().front().abs().sum().item<double>();
    fault_.slow_if("slow_pass", kSlowBatch);
    EvalOutput out = evaluate(model, batch);
    out.sums["weight"] = weight * static_cast<double>(batch.size());
    out.rows = {{"target", batch["labels"]}};
    return out;
  }

  Result<Metrics> write_pass(const MetricSums& totals, const EvalRows& rows, int64_t steps) const {
    const double count = totals.at("count");
    std::ofstream file(pass_file_, std::ios::app);
    file << fmt::format("{} {} {:a} {:a}\n", steps, rows.ids.size(), totals.at("correct") / count,
                        totals.at("weight") / count);
    if (!file.flush()) return fail(ExitCode::kIoErr, "cannot write " + pass_file_);
    return Metrics{{"accuracy", totals.at("correct") / count}};
  }

  static at::Tensor loss_of(TinyNet& model, const Batch& batch) {
    return torch::nn::functional::cross_entropy(model.forward(batch["features"]), batch["labels"]);
  }

  int64_t samples_ = 256;
  int64_t eval_samples_ = 101;
  bool rows_ = false;
  std::string prepared_file_;
  std::string pass_file_;
  std::string seeds_file_;
  std::string ids_file_;
  int64_t pass_every_ = 0;
  bool pass_best_ = false;
  PrepareOn prepare_on_ = PrepareOn::kOneRank;
  int64_t hidden_ = 16;
  double dropout_ = 0.2;
  bool batch_norm_ = true;
  Fault fault_;
  int64_t step_ = 0;
  int64_t run_step_ = 0;  // of the run, from 0
  std::unique_ptr<RandomData> train_;
  std::unique_ptr<RandomData> eval_;
};

}  // namespace

std::unique_ptr<Task> make_tiny(Fields& root) { return std::make_unique<TinyTask>(root); }

}  // namespace oarlock::test
