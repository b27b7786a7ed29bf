// The manifest of a checkpoint directory. Its content alone decides between damaged (kDataErr) and of another format
// (kCheckpoint): only a damaged checkpoint may be skipped. One that is accepted prints as the same manifest.
#include "tests/fuzz/input.h"
#include "tests/support/temporary_directory.h"
#include "trainer/checkpoint/manifest.h"

using namespace oarlock;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const test::TemporaryDirectory directory;
  fuzz::write_file(directory.path() / kManifestFile, fuzz::text_of(data, size));
  const Result<Manifest> manifest = read_manifest(directory.path());
  if (!manifest) {
    fuzz::require(manifest.error().code == ExitCode::kDataErr || manifest.error().code == ExitCode::kCheckpoint);
    fuzz::require(manifest.error().message.find('\n') == std::string::npos);
    return 0;
  }
  fuzz::require(manifest->step >= 0);
  const std::string text = to_text(*manifest);
  fuzz::write_file(directory.path() / kManifestFile, text);
  const Result<Manifest> again = read_manifest(directory.path());
  fuzz::require(again && to_text(*again) == text);
  return 0;
}
