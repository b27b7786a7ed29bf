// Extended XYZ files: any number of crystals one after the other, each as
//
//   2
//   Lattice="3.6 0 0 0 3.6 0 0 0 3.6" Properties=species:S:1:pos:R:3 energy=-1.5 pbc="T T T"
//   Cs 0 0 0
//   Cl 1.8 1.8 1.8
//
// as ase writes them; the columns of Properties may come in any order and number. The file is read through once to find
// where its frames begin, and then frame by frame: in memory are 16 bytes per frame, and the frames being read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/file_descriptor.h"
#include "trainer/data/crystal.h"
#include "trainer/data/extxyz_comment.h"

namespace oarlock {

struct ExtxyzFrame {
  Crystal crystal;
  ExtxyzInfo info;  // the second line
};

class ExtxyzFile {
 public:
  // Finds the frames. kNoInput, kIoErr; kDataErr, naming the line: a number of atoms that is none, a frame that is cut
  // off, no frame at all.
  static Result<ExtxyzFile> open(const std::filesystem::path& path);

  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }

  // `frame` must be below size(). Thread-safe. kDataErr, naming the line: no lattice or one without volume, not
  // periodic in all directions, no column of elements or positions, an element that is none, a position that is no
  // finite number, lines of other lengths.
  Result<ExtxyzFrame> read(int64_t frame) const;

  // "FILE:LINE (frame N)" of a frame's second line, for messages.
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
  std::vector<Begin> begins_;  // of each frame, and the end
};

}  // namespace oarlock
