#include "cli/launch/rank_errors.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace oarlock::launch {
namespace {

std::string reason_of(const std::string& text) {
  RankErrors errors;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) errors.add(line);
  return errors.reason();
}

const std::string kTraceback =
    "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    main()\n    ~~~~^^\n";

struct ErrorCase {
  const char* name;
  std::string text;
  std::string reason;
};

TEST(RankErrors, FindsTheLineThatNamesTheCause) {
  const std::string ranks =
      "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"t.py\", line 1\n"
      "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"t.py\", line 9\n"
      "[rank1]: ValueError: bad batch\n[rank0]: RuntimeError: connection closed by peer\n";
  const std::string of_torchrun =
      kTraceback +
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n=====\n";
  const std::vector<ErrorCase> cases = {
      {.name = "nothing", .text = "", .reason = ""},
      {.name = "last line", .text = "error: --dta\n\n  \n", .reason = "error: --dta"},
      {.name = "exception", .text = "step 1\n" + kTraceback + "ValueError: bad\n", .reason = "ValueError: bad"},
      {.name = "lines after it",
       .text = kTraceback + "ValueError: bad\nsecond line\n[W1129] process group has NOT been destroyed\n",
       .reason = "ValueError: bad"},
      {.name = "chain",
       .text = kTraceback + "KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n" +
               kTraceback + "ValueError: bad\n",
       .reason = "ValueError: bad"},
      {.name = "ignored exception",
       .text = kTraceback + "ValueError: bad\nException ignored in: <function f>\n" + kTraceback + "OSError: closed\n",
       .reason = "ValueError: bad"},
      {.name = "syntax error",
       .text = "  File \"t.py\", line 1\n    x = (\n        ^\nSyntaxError: '(' was never closed\n",
       .reason = "SyntaxError: '(' was never closed"},
      {.name = "torchrun", .text = kTraceback + "ValueError: bad\n" + of_torchrun, .reason = "ValueError: bad"},
      {.name = "first of several ranks", .text = ranks + of_torchrun, .reason = "ValueError: bad batch"},
      {.name = "of long ago",
       .text = kTraceback + "ValueError: retried\n" + std::string(200, '\n') +
               [] {
                 std::string out;
                 for (int i = 0; i < 100; ++i) out += "step\n";
                 return out;
               }() +
               "Killed\n",
       .reason = "Killed"},
      {.name = "C++",
       .text = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  boom\n",
       .reason = "what():  boom"},
  };
  for (const ErrorCase& row : cases) EXPECT_EQ(reason_of(row.text), row.reason) << row.name;
}

}  // namespace
}  // namespace oarlock::launch
