// Syntax errors of YAML: one clear sentence at the place of the cause.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "yaml/reader.h"

namespace oarlock::yaml {
namespace {

std::string syntax_error_of(const std::string& text) {
  const auto documents = parse_all(text, "f");
  if (documents) return "";
  EXPECT_EQ(documents.error().code, ExitCode::kConfig);
  return documents.error().message;
}

// kubectl rejects these files too, except for those with a byte order mark, with a duplicate key, or with a line that
// follows a document without ---. It reads the last ones as something else than they seem to be.
TEST(YamlSyntax, NamesCauseOfErrors) {
  struct Row {
    const char* text;
    const char* error;  // after the file name
  };
  const Row kRows[] = {
      {.text = "a: *x\n",
       .error = "1:4: '*x' refers to an anchor that does not exist; put the value in quotes, or define the anchor "
                "above with &"},
      {.text = "a: @x\n", .error = "1:4: a value cannot begin with '@'; put it in quotes"},
      {.text = "a: >x\n  b\n",
       .error = "1:5: text follows '|' or '>'; write the text in the next lines, or put the value in quotes"},
      {.text = "a: |\n  b\n c: d\n",
       .error = "3:2: this line is indented by 1 space, and the lines that can contain it by 0; indent it like one "
                "of them"},
      {.text = "a: 1\n---\n\xef\xbb\xbf"
               "b: 1\n",
       .error = "3:1: a byte order mark (U+FEFF) begins this line; remove it"},
      {.text = "a: 1\n\xef\xbb\xbf"
               "b: 1\n",
       .error = "2:1: a byte order mark (U+FEFF) begins this line; remove it"},
      {.text = "a: `x`\n", .error = "1:4: a value cannot begin with '`'; put it in quotes"},
      {.text = "a: b: c\n",
       .error = "1:5: a second ':' is in this line; put the value in quotes, or move the second key to the next line"},
      {.text = "command: echo a: b\nd: 1\n",
       .error = "1:16: a second ':' is in this line; put the value in quotes, or move the second key to the next line"},
      {.text = "spec:\n  nodes 2\n  epochs: 3\n",
       .error = "2:3: a ':' is missing after the key 'nodes'; write 'nodes: ...'"},
      {.text = "spec:\n  epochs: 3\n  nodes 2\n",
       .error = "3:3: a ':' is missing after the key 'nodes'; write 'nodes: ...'"},
      {.text = "spec:\n  epochs: 3\n  nodes 2\n  lr: 3\n",
       .error = "3:3: a ':' is missing after the key 'nodes'; write 'nodes: ...'"},
      {.text = "spec:\n  nodes:2\n  epochs: 3\n",
       .error = "2:3: a space is missing after the ':' of the key 'nodes'; write 'nodes: ...'"},
      {.text = "spec\n  nodes: 2\n", .error = "1:1: a ':' is missing after the key 'spec'; write 'spec: ...'"},
      {.text = "nodes: 2\nspec\n", .error = "2:1: a ':' is missing after the key 'spec'; write 'spec: ...'"},
      {.text = "spec:\n  epochs: 3\n  # comment\n\n  nodes\n  lr: 2\n",
       .error = "5:3: a ':' is missing after the key 'nodes'; write 'nodes: ...'"},
      {.text = "spec:\n<<<<<<< HEAD\n  nodes: 2\n=======\n  nodes: 3\n>>>>>>> x\n",
       .error = "2:1: this line is a conflict marker of git; resolve the conflict, and remove the markers"},
      {.text = "--- a: 1\nb: 2\n",
       .error = "1:4: text follows '---', which begins a document; write it in the next line"},
      {.text = "---\na: 1\n----\nb: 2\n",
       .error = "3:1: '----' separates no documents; write '---', with three dashes"},
      {.text = "a: 1\na: 2\n", .error = "2:1: duplicate key 'a'; remove one of them; the first is in line 1"},
      {.text = "a: [1, 2\nb: 3\n", .error = "1:4: the '[' that begins here has no end; add the closing ']'"},
      {.text = "a: {b: 1\nc: 2\n", .error = "1:4: the '{' that begins here has no end; add the closing '}'"},
      {.text = "a: [1, 2}\nb: 3\n", .error = "1:9: '}' does not close the '[' in line 1; write ']'"},
      {.text = "a: [1 2]\nb: ]\n", .error = "2:4: ']' closes no '['; remove it, or put the value in quotes"},
      {.text = "a: {b: [1, 2}\nc: 3\n", .error = "1:13: '}' does not close the '[' in line 1; write ']'"},
      {.text = "a: {{ .Values.x }}\n",
       .error = "1:5: '{{' is part of a template of Helm; render the file first, with helm template"},
      {.text = "{{- if .Values.x }}\na: 1\n{{- end }}\n",
       .error = "1:1: '{{' is part of a template of Helm; render the file first, with helm template"},
      {.text = "spec:\n  nodes: 2\n epochs: 3\n",
       .error = "3:2: this line is indented by 1 space, and the lines that can contain it by 0 or 2; indent it like "
                "one of them"},
      {.text = "spec:\n  nodes: 2\n    epochs: 3\n",
       .error = "3:5: this line is indented by 4 spaces, but line 2 has a value already; indent both alike"},
      {.text = "spec:\n  a:\n    b: 1\n   c: 2\n",
       .error = "4:4: this line is indented by 3 spaces, and the lines that can contain it by 0, 2 or 4; indent it "
                "like one of them"},
      {.text = "spec:\n  - a: 1\n   b: 2\n",
       .error = "3:4: this line is indented by 3 spaces, and the lines that can contain it by 0, 2 or 4; indent it "
                "like one of them"},
      {.text = " spec: 1\na: 2\n",
       .error = "2:1: this line does not belong to the list or map above it; indent it like the lines above, or "
                "write --- before it if it begins another document"},
      {.text = "a:\n- b\nc:\n  - d\n - e\n",
       .error = "5:2: this line is indented by 1 space, and the lines that can contain it by 0, 2 or 4; indent it "
                "like one of them"},
      {.text = "{\"a\": 1 \"b\": 2}\n",
       .error = "1:12: ',', ':' or '}' is missing before this; the '{' in line 1 is still open"},
      {.text = "{\"a\" 1}\n", .error = "1:6: ',', ':' or '}' is missing before this; the '{' in line 1 is still open"},
      {.text = "a: %x\n", .error = "1:4: a value cannot begin with '%'; put it in quotes"},
      {.text = "name: \"abc\nspec: 1\n", .error = "1:7: the quote \" that begins here has no end; add the closing \""},
      {.text = "name: 'abc\nspec: 1\n", .error = "1:7: the quote ' that begins here has no end; add the closing '"},
      {.text = "name: \"abc\nspec: \"x\"\n",
       .error = "1:7: the quote \" that begins here ends in line 2, where text follows it; add the closing \" where "
                "the value ends"},
      {.text = "name: 'it's'\n",
       .error = "1:11: text follows the closing quote; remove it, or write '' for an apostrophe inside of the value"},
      {.text = "name: \"a\" b\nc: 1\n",
       .error = "1:10: text follows the closing quote; remove it, or write \\\" for a quote inside of the value"},
      {.text = "name: \"a\\qb\"\n",
       .error = "1:11: this escape sequence does not exist; write \\\\ for a backslash, or use single quotes"},
      {.text = "a: \"x\"y: 1\n",
       .error = "1:7: text follows the closing quote; remove it, or write \\\" for a quote inside of the value"},
      {.text = "a: - b\n",
       .error = "1:4: a list item cannot begin in the line of its key; write '- ' in the next line"},
      {.text = "a: 1\n- b\n",
       .error = "2:1: a list item is where a key of a map is expected; indent it like the items of its list, or "
                "write a key"},
      {.text = "- b\na: 1\n",
       .error = "2:1: this line does not belong to the list or map above it; indent it like the lines above, or "
                "write --- before it if it begins another document"},
      {.text = "a: 1\n...\nb: 2\n",
       .error =
           "3:1: this line does not belong to the list or map above it; indent it like the lines above, or write --- "
           "before it if it begins another document"},
      {.text = "a: 1\n%b: 2\nc: 3\n",
       .error =
           "3:1: this line does not belong to the list or map above it; indent it like the lines above, or write --- "
           "before it if it begins another document"},
      {.text = "a: [1, , 2]\n", .error = "1:8: a value is missing before this comma; remove the comma, or write null"},
      {.text = "a: {b: {c: 1", .error = "1:8: the '{' that begins here has no end; add the closing '}'"},
      {.text = "a: [1] b\n", .error = "1:8: text follows the end of a value; remove it, or write it in the next line"},
      {.text = "a:\n-b\n- c: 1\n", .error = "2:1: a space is missing after the '-' of the list item"},
      {.text = "spec:\n\tnodes: 2\n",
       .error = "2:1: a tab is used as indentation, which YAML does not allow; use spaces instead"},
      {.text = "spec:\n  nodes: 2\n\ttrainer: 3\n",
       .error = "3:1: a tab is used as indentation, which YAML does not allow; use spaces instead"},
      {.text = "a: |\n\tx\n",
       .error = "2:1: a tab is used as indentation, which YAML does not allow; use spaces instead"},
      {.text = "a:\n  b: |\n    x\n\ty\n  c: 1\n",
       .error = "4:1: a tab is used as indentation, which YAML does not allow; use spaces instead"},
      {.text = "a:\n  -\tx: 1\n",
       .error = "2:4: a tab is used as indentation, which YAML does not allow; use spaces instead"},
      {.text = "a: 1\n\t\nb: 2\n",
       .error = "2:1: a tab is used as indentation, which YAML does not allow; use spaces instead"},
      {.text = "a: x\n\ty\nb: 2\n",
       .error = "2:1: a tab is used as indentation, which YAML does not allow; use spaces instead"},
      {.text = "é: ü: x\n",
       .error = "1:5: a second ':' is in this line; put the value in quotes, or move the second key to the next line"},
      {.text = "a: \"é\" b\n",
       .error = "1:7: text follows the closing quote; remove it, or write \\\" for a quote inside of the value"},
  };
  for (const Row& row : kRows) EXPECT_EQ(syntax_error_of(row.text), std::string("f:") + row.error) << row.text;
}

TEST(YamlSyntax, NamesUtf16) {
  using namespace std::string_literals;
  for (const std::string& text : {"\xff\xfe"
                                  "a\0:\0"s,
                                  "\xfe\xff\0a\0:"s, "a\0:\0"s, "\0a\0:"s})
    EXPECT_EQ(syntax_error_of(text), "f:1:1: the file is encoded as UTF-16, not as UTF-8; save it as UTF-8");
}

// kubectl accepts these files, and reads them as the same values.
TEST(YamlSyntax, AcceptsUnusualFiles) {
  struct Row {
    const char* text;
    const char* json;  // of all documents
  };
  constexpr Row kRows[] = {
      {.text = "\xef\xbb\xbf"
               "a: 1\n",
       .json = R"([{"a":1}])"},
      {.text = "a: 1\r\nb: \"x\"\r\n", .json = R"([{"a":1,"b":"x"}])"},
      {.text = "a:\t1\nb: 2\t# c\n", .json = R"([{"a":1,"b":2}])"},
      {.text = "a: {\n\tb: 1,\n\tc: 2\n}\n", .json = R"([{"a":{"b":1,"c":2}}])"},
      {.text = "{\n\t\"a\": 1\n}\n", .json = R"([{"a":1}])"},
      {.text = "{\"a\": [1, 2,],}\n", .json = R"([{"a":[1,2]}])"},
      {.text = "{\"a\": 1}\n{\"b\": 2}\n", .json = R"([{"a":1},{"b":2}])"},
      {.text = "# c\n---\na: 1\n---\n# d\n\nb: 2\n...\n---\nc: 3\n", .json = R"([{"a":1},{"b":2},{"c":3}])"},
      {.text = "%YAML 1.1\n---\na: 1\n", .json = R"([{"a":1}])"},
      {.text = "a: \"x\n  y\"\nb: 'it''s'\n", .json = R"([{"a":"x y","b":"it's"}])"},
      {.text = "a: x\n  y\nb: c:d\n", .json = R"([{"a":"x y","b":"c:d"}])"},
      {.text = "a: |\n  <<<<<<< x\n  {{ y }}\n  \"z\n", .json = R"([{"a":"<<<<<<< x\n{{ y }}\n\"z\n"}])"},
      {.text = "? a\n? b\n: 1\n", .json = R"([{"a":null,"b":1}])"},
      {.text = "a:\nb: {c, d: 1}\n", .json = R"([{"a":null,"b":{"c":null,"d":1}}])"},
      {.text = "a:\n- b\n- c:\n  d: 1\n", .json = R"([{"a":["b",{"c":null,"d":1}]}])"},
      {.text = "a: !!str \"x\"\nb: &c 'y'\nd: ! z\n", .json = R"([{"a":"x","b":"y","d":"z"}])"},
  };
  for (const Row& row : kRows) {
    const auto documents = parse_all(row.text, "f");
    ASSERT_TRUE(documents) << row.text << documents.error().message;
    nlohmann::json all = nlohmann::json::array();
    for (const Node& document : *documents) all.push_back(document.to_json());
    EXPECT_EQ(all, nlohmann::json::parse(row.json)) << row.text;
  }
}

TEST(YamlSyntax, CountsColumnsInCharacters) {
  Problems problems("f");
  const auto documents = parse_all("\xef\xbb\xbf{\"\xc3\xa4\xc3\xb6\": \"\xe6\x97\xa5\", nodes: x}\n", "f");
  ASSERT_TRUE(documents);
  MapReader reader(documents->front(), "", problems);
  int nodes = 0;
  reader.read("nodes", nodes);
  EXPECT_EQ(problems.to_error().message, "f:1:20: nodes: expected an integer, got 'x'");
}

// The cause of an error in a large file is found within seconds.
TEST(YamlSyntax, ExplainsLargeFilesWithinSeconds) {
  for (const char* unit :
       {"a: \"x\"\n", "- [\n", "a:\n  b: |\n    c\n", "\"x\n", "- 'a\n  b'\n", "x\n", "{\n", " a:\n"}) {
    std::string text;
    while (text.size() < size_t{100'000}) text += unit;
    const std::clock_t begin = std::clock();  // of the CPU, so that other processes do not count
    EXPECT_NE(syntax_error_of(text + "c: d: e\n"), "") << unit;
    EXPECT_LT((std::clock() - begin) / CLOCKS_PER_SEC, 10) << unit;
  }
}

}  // namespace
}  // namespace oarlock::yaml
