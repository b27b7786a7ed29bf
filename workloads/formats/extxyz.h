// Extended XYZ files, as ase writes them: a sequence of frames, each of which is a crystal.
//
//   2
//   Lattice="3.6 0 0 0 3.6 0 0 0 3.6" Properties=species:S:1:pos:R:3 energy=-1.5 pbc="T T T"
//   Cs 0 0 0
//   Cl 1.8 1.8 1.8
//
// The columns that Properties names may have any order and number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "workloads/formats/crystal.h"
#include "workloads/formats/extxyz_comment.h"

namespace oarlock {

struct ExtxyzFrame {
  Crystal crystal;
  ExtxyzInfo info;  // the keys and values of the comment line
};

// Reads frames in any order. Opening scans the file once to find the beginnings of the frames, which take 16 bytes of
// memory each.
class ExtxyzFile {
 public:
  // Returns kNoInput or kIoErr if the file cannot be read; and kDataErr, naming the line, if a number of atoms is
  // invalid, a frame is truncated, or there is no frame.
  static Result<ExtxyzFile> open(const std::filesystem::path& path);

  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }  // frames

  // Reads a frame. `frame` must be in [0, size()). Thread-safe. Returns kDataErr, naming the line, if the lattice is
  // missing or degenerate, the crystal is not periodic in all directions, Properties has no column of elements or
  // positions, an element or a position is invalid, or a line has another number of columns.
  Result<ExtxyzFrame> read(int64_t frame) const;

  // Returns "FILE:LINE (frame N)" for messages, with the line of the frame's comment.
  std::string place(int64_t frame) const;

 private:
  struct Begin {
    int64_t offset;
    int64_t line;  // from 1
  };

  ExtxyzFile(std::filesystem::path path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  Result<void> find_frames();

  std::filesystem::path path_;
  FileDescriptor file_;
  std::vector<Begin> begins_;  // of the frames, followed by the end of the file
};

}  // namespace oarlock
