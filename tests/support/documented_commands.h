// The commands of a page of the documentation that a test executes, so that the page remains correct.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace oarlock::test {

// Returns the lines of the ```sh blocks that follow a line "<!-- executed by TEST -->".
inline std::vector<std::string> documented_commands(const std::string& page, const std::string& test) {
  std::ifstream file(page);
  std::vector<std::string> commands;
  bool is_marked = false;
  bool is_in_block = false;
  for (std::string line; std::getline(file, line);) {
    if (is_in_block && line == "```") {
      is_in_block = is_marked = false;
    } else if (is_in_block) {
      commands.push_back(line);
    } else if (line == "<!-- executed by " + test + " -->") {
      is_marked = true;
    } else if (line.starts_with("```")) {
      is_in_block = is_marked && line == "```sh";
    }
  }
  return commands;
}

// Splits a command at its blanks. The commands of these pages have no quotes.
inline std::vector<std::string> words_of(const std::string& command) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace oarlock::test
