#include "trainer/formats/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "common/file_descriptor.h"

namespace oarlock {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path, Access access) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return fail_errno(errno, fmt::format("{}: cannot be opened", path.string()));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno(errno, fmt::format("{}: cannot be read", path.string()));
  if (!S_ISREG(status.st_mode)) return fail(ExitCode::kNoInput, fmt::format("{}: not a regular file", path.string()));
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return MappedFile(nullptr, 0);
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return fail_errno(errno, fmt::format("{}: cannot be mapped into memory", path.string()));
  ::madvise(memory, size, access == Access::kRandom ? MADV_RANDOM : MADV_SEQUENTIAL);
  return MappedFile(static_cast<const uint8_t*>(memory), size);
}

MappedFile::~MappedFile() {
  // mmap returned a pointer to non-const memory.
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace oarlock
