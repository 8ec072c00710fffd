#include "text/fixture_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <boost/json/parse.hpp>
#include <memory>

namespace baton::text {

Result<std::string> read_fixture(const std::filesystem::path& path) {
  // zlib passes on what is not gzipped.
  const std::unique_ptr<gzFile_s, decltype(&gzclose)> file(gzopen(path.c_str(), "rb"), &gzclose);
  const auto failure = [&](std::string_view what) { return Error{Error::Kind::kIo, fmt::format("{}: {}", path.string(), what)}; };
  if (file == nullptr) return failure("cannot be opened");
  std::string content;
  while (true) {
    char part[1 << 16];
    const int n = gzread(file.get(), part, sizeof part);
    if (n < 0) return failure("cannot be unpacked");
    if (n == 0) return content;
    content.append(part, static_cast<size_t>(n));
  }
}

Result<std::vector<boost::json::object>> read_json_lines(const std::filesystem::path& path) {
  BATON_ASSIGN(const std::string content, read_fixture(path));
  std::vector<boost::json::object> lines;
  size_t at = 0;
  for (int number = 1; at < content.size(); ++number) {
    const size_t end = std::min(content.find('\n', at), content.size());
    if (end > at) {
      boost::json::error_code error;
      boost::json::value value = boost::json::parse(std::string_view(content).substr(at, end - at), error);
      if (error || !value.is_object())
        return Error{Error::Kind::kInvalid, fmt::format("{}:{}: an object is expected", path.string(), number)};
      lines.push_back(std::move(value.get_object()));
    }
    at = end + 1;
  }
  return lines;
}

}  // namespace baton::text
