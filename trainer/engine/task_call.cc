#include "trainer/engine/task_call.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ddp/library_errors.h"

namespace oarlock {
namespace {

// Returns the last line of an error of the TorchScript interpreter, which follows a trace of the script; empty for
// another text.
std::string script_failure(std::string text) {
  if (text.find("TorchScript interpreter") == std::string::npos) return "";
  text.erase(text.find_last_not_of(" \n") + 1);
  return text.substr(text.rfind('\n') + 1);
}

// Returns the error of an exception that to_error() considers a bug.
Error input_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::IndexError& error) {
    return {ExitCode::kDataErr, fault_detail(error.what_without_backtrace())};
  } catch (const c10::ValueError& error) {
    return {ExitCode::kDataErr, fault_detail(error.what_without_backtrace())};
  } catch (const std::exception& error) {
    const std::string failure = script_failure(error.what());
    return failure.empty() ? to_error(exception)
                           : Error{ExitCode::kDataErr, "the TorchScript model failed: " + failure};
  } catch (...) {
    return to_error(exception);
  }
}

}  // namespace

std::string samples_of(const Batch& batch) {
  constexpr size_t kShown = 16;
  const auto end = batch.ids.begin() + static_cast<std::ptrdiff_t>(std::min(batch.ids.size(), kShown));
  const std::string rest = batch.ids.size() > kShown ? fmt::format(" and {} more", batch.ids.size() - kShown) : "";
  return fmt::format("{} {}{}", batch.size() == 1 ? "sample" : "samples", fmt::join(batch.ids.begin(), end, ", "),
                     rest);
}

Error to_task_error(const std::exception_ptr& exception, const std::string& place) {
  Error error = to_error(exception);
  if (error.code == ExitCode::kSoftware) error = input_error(exception);
  const bool is_of_task =
      error.code == ExitCode::kSoftware || error.code == ExitCode::kDataErr || error.code == ExitCode::kConfig;
  if (is_of_task) error.message = fmt::format("{}: {}", place, error.message);
  return error;
}

}  // namespace oarlock
