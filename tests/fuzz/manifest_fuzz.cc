// The manifest of a checkpoint folder. Its content alone decides between damaged (kDataErr) and of another format
// (kCheckpoint): only a damaged checkpoint may be skipped. One that is accepted prints as the same manifest.
#include "tests/fuzz/input.h"
#include "tests/support/temporary_folder.h"
#include "trainer/checkpoint/manifest.h"

using namespace oarlock;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const test::TemporaryFolder folder;
  fuzz::write_file(folder.path() / kManifestFile, fuzz::text_of(data, size));
  const Result<Manifest> manifest = read_manifest(folder.path());
  if (!manifest) {
    fuzz::require(manifest.error().code == ExitCode::kDataErr || manifest.error().code == ExitCode::kCheckpoint);
    fuzz::require(manifest.error().message.find('\n') == std::string::npos);
    return 0;
  }
  fuzz::require(manifest->step >= 0);
  const std::string text = to_text(*manifest);
  fuzz::write_file(folder.path() / kManifestFile, text);
  const Result<Manifest> again = read_manifest(folder.path());
  fuzz::require(again && to_text(*again) == text);
  return 0;
}
