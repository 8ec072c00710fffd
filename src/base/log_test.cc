#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace baton {
namespace {

// What `write` sends to standard error, which is no terminal meanwhile.
template <class Write>
std::string captured(Write write) {
  std::FILE* file = std::tmpfile();
  std::fflush(stderr);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  write();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  std::rewind(file);
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(Log, WritesOneJsonObjectPerLine) {
  const std::string text = captured([] {
    log_info("loaded {} tensors from \"{}\"", 3, "a\\b\n");
    log_warning("bytes \xFF\x01 and \xC3\xA4");
  });
  EXPECT_NE(text.find(R"("level":"info","message":"loaded 3 tensors from \"a\\b\u000a\""})"
                      "\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(R"("level":"warning","message":"bytes \ufffd\u0001 and ä"})"
                      "\n"),
            std::string::npos)
      << text;
  EXPECT_TRUE(text.starts_with(R"({"time":"20)")) << text;
}

TEST(Log, WritesFieldsAsMembers) {
  const std::string text = captured([] {
    const LogField fields[] = {{"request", std::string("a\"b")}, {"status", 200}, {"seconds", 0.5}};
    log_event(LogLevel::kInfo, "answered", fields);
  });
  EXPECT_NE(text.find(R"("message":"answered","request":"a\"b","status":200,"seconds":0.5})"
                      "\n"),
            std::string::npos)
      << text;
}

TEST(Log, DropsWhatIsBelowTheLevel) {
  set_log_level(LogLevel::kError);
  EXPECT_EQ(captured([] { log_warning("nothing"); }), "");
  set_log_level(LogLevel::kDebug);
  EXPECT_NE(captured([] { log_message(LogLevel::kDebug, "a {} stays"); }).find("a {} stays"), std::string::npos);
}

}  // namespace
}  // namespace baton
