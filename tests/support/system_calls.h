// Records the system calls on files that a piece of code makes, in order, and makes any of them fail. The code runs in
// a child process under ptrace, and needs no changes for the test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace oarlock::test {

struct SystemCall {
  std::string name;    // "openat", "fsync"
  std::string path;    // the file or directory, absolute; for a rename, the old name
  std::string target;  // for a rename, the new name; for a symbolic link, its content
  bool creates = false;
  size_t bytes = 0;  // requested by a read or a write

  bool is_read() const { return name == "read" || name == "pread64"; }
  bool is_write() const { return name == "write" || name == "pwrite64"; }
  bool is_rename() const { return name == "rename" || name == "renameat" || name == "renameat2"; }
  bool is_sync() const { return name == "fsync" || name == "fdatasync"; }
};

// Returns 0 to make the call, or the errno with which the call fails without being made.
using CallDecision = std::function<int(const SystemCall&)>;

namespace internal {

inline std::string text_at(pid_t child, uint64_t address) {
  std::string text;
  for (char byte = 0;; ++address) {  // one at a time, because the next page may not be mapped
    const iovec local{&byte, 1};
    const iovec remote{reinterpret_cast<void*>(address), 1};
    if (process_vm_readv(child, &local, 1, &remote, 1, 0) != 1 || byte == 0) return text;
    text += byte;
  }
}

inline std::string path_of(pid_t child, uint64_t descriptor) {
  std::error_code ignored;
  return std::filesystem::read_symlink(
             "/proc/" + std::to_string(child) + "/fd/" + std::to_string(static_cast<int>(descriptor)), ignored)
      .string();
}

inline std::string path_at(pid_t child, uint64_t directory, uint64_t address) {
  const std::string path = text_at(child, address);
  if (path.starts_with('/') || static_cast<int>(directory) == AT_FDCWD) return path;
  return path.empty() ? path_of(child, directory) : path_of(child, directory) + "/" + path;
}

// Returns an empty name for a call that is not about files.
inline SystemCall decoded(pid_t child, const __ptrace_syscall_info& info) {
  const auto* a = info.entry.args;
  const uint64_t here = static_cast<uint64_t>(AT_FDCWD);
  const auto by_fd = [&](const char* name, size_t bytes = 0) {
    return SystemCall{.name = name, .path = path_of(child, a[0]), .target = "", .creates = false, .bytes = bytes};
  };
  const auto by_path = [&](const char* name, uint64_t directory, uint64_t path, bool creates = false) {
    return SystemCall{
        .name = name, .path = path_at(child, directory, path), .target = "", .creates = creates, .bytes = 0};
  };
  const auto pair = [&](const char* name, uint64_t directory, uint64_t path, uint64_t target_directory,
                        uint64_t target) {
    SystemCall call = by_path(name, directory, path);
    call.target = path_at(child, target_directory, target);
    return call;
  };
  switch (info.entry.nr) {
    case SYS_read:
      return by_fd("read", a[2]);
    case SYS_pread64:
      return by_fd("pread64", a[2]);
    case SYS_write:
      return by_fd("write", a[2]);
    case SYS_pwrite64:
      return by_fd("pwrite64", a[2]);
    case SYS_fsync:
      return by_fd("fsync");
    case SYS_fdatasync:
      return by_fd("fdatasync");
    case SYS_getdents64:
      return by_fd("getdents64");
    case SYS_openat:
      return by_path("openat", a[0], a[1], (a[2] & O_CREAT) != 0);
    case SYS_newfstatat:
      return by_path("newfstatat", a[0], a[1]);
    case SYS_unlinkat:
      return by_path("unlinkat", a[0], a[1]);
    case SYS_mkdirat:
      return by_path("mkdirat", a[0], a[1], true);
    case SYS_renameat:
      return pair("renameat", a[0], a[1], a[2], a[3]);
    case SYS_renameat2:
      return pair("renameat2", a[0], a[1], a[2], a[3]);
    case SYS_symlinkat: {
      SystemCall call = by_path("symlinkat", a[1], a[2]);
      call.target = text_at(child, a[0]);
      return call;
    }
#ifdef SYS_open  // the older calls, which this architecture may have
    case SYS_open:
      return by_path("open", here, a[0], (a[1] & O_CREAT) != 0);
    case SYS_stat:
      return by_path("stat", here, a[0]);
    case SYS_lstat:
      return by_path("lstat", here, a[0]);
    case SYS_unlink:
      return by_path("unlink", here, a[0]);
    case SYS_rmdir:
      return by_path("rmdir", here, a[0]);
    case SYS_mkdir:
      return by_path("mkdir", here, a[0], true);
    case SYS_rename:
      return pair("rename", here, a[0], here, a[1]);
    case SYS_symlink: {
      SystemCall call = by_path("symlink", here, a[1]);
      call.target = text_at(child, a[0]);
      return call;
    }
#endif
    default:
      return {};
  }
}

// Skips the call that the child is about to make.
inline void skip_call(pid_t child) {
  ptrace(PTRACE_POKEUSER, child, offsetof(user_regs_struct, orig_rax), static_cast<long>(-1));
}
inline void set_result(pid_t child, long result) {
  ptrace(PTRACE_POKEUSER, child, offsetof(user_regs_struct, rax), result);
}

}  // namespace internal

// Runs the body in a child process. Returns the body's result (0 to 255), or -signal. decide(call) is called in the
// parent before the child makes the call.
inline int with_system_calls(const std::function<int()>& body, const CallDecision& decide) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(255);
    raise(SIGSTOP);
    int code = 254;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the traced code threw: %s\n", error.what());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  int failure = 0;
  for (long signal = 0;; signal = 0) {
    ptrace(PTRACE_SYSCALL, child, nullptr, signal);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    if (WIFSIGNALED(status)) return -WTERMSIG(status);
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
      signal = WSTOPSIG(status);
      continue;
    }
    __ptrace_syscall_info info{};
    ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info);
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
      const SystemCall call = internal::decoded(child, info);
      failure = call.name.empty() ? 0 : decide(call);
      if (failure != 0) internal::skip_call(child);
    } else if (failure != 0) {
      internal::set_result(child, -failure);
      failure = 0;
    }
  }
}

// Returns the calls of the body on files below `directory`. The body must return 0.
inline std::vector<SystemCall> system_calls(const std::filesystem::path& directory, const std::function<int()>& body) {
  std::vector<SystemCall> calls;
  const int code = with_system_calls(body, [&](const SystemCall& call) {
    if (call.path.starts_with(directory.string())) calls.push_back(call);
    return 0;
  });
  EXPECT_EQ(code, 0);
  return calls;
}

// Returns the index of the first call at or after `from` that satisfies the condition, or the number of calls.
inline size_t position_of(const std::vector<SystemCall>& calls, const std::function<bool(const SystemCall&)>& condition,
                          size_t from = 0) {
  const auto found = std::find_if(calls.begin() + static_cast<std::ptrdiff_t>(from), calls.end(), condition);
  return static_cast<size_t>(found - calls.begin());
}

}  // namespace oarlock::test
