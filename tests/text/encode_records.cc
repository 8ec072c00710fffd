// encode_records TOKENIZER RECORDS IDS: encodes texts for tests/text/tokenizers_check.py and bench/tokenizer_peers.py.
// RECORDS holds texts, each behind its size as a little-endian 32-bit word. IDS gets for each text the number of its ids, and the ids.
// --repeat N encodes everything N times more and prints the seconds of each round.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <fstream>

#include "base/file.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

Status run(const std::string& tokenizer_path, const std::string& records_path, const std::string& ids_path, int repeat) {
  BATON_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(tokenizer_path));
  BATON_ASSIGN(const std::string records, read_file(records_path, int64_t{1} << 32));
  std::vector<std::string_view> texts;
  for (size_t at = 0; at + 4 <= records.size();) {
    uint32_t bytes = 0;
    std::memcpy(&bytes, records.data() + at, 4);
    texts.push_back(std::string_view(records).substr(at + 4, bytes));
    at += 4 + bytes;
  }
  std::ofstream out(ids_path, std::ios::binary);
  for (const std::string_view text : texts) {
    BATON_ASSIGN(const std::vector<int32_t> ids, tokenizer.encode(text));
    const auto count = static_cast<uint32_t>(ids.size());
    out.write(reinterpret_cast<const char*>(&count), sizeof count);
    out.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
  }
  if (!out.flush()) return Error{Error::Kind::kIo, fmt::format("{}: cannot be written", ids_path)};
  for (int i = 0; i < repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (const std::string_view text : texts)
      BATON_TRY([&]() -> Status {
        BATON_ASSIGN(const std::vector<int32_t> ids, tokenizer.encode(text));
        return {};
      }());
    fmt::print("{:.6f}\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return {};
}

}  // namespace
}  // namespace baton::text

int main(int argc, char** argv) {
  const bool repeats = argc == 6 && std::string_view(argv[4]) == "--repeat";
  if (argc != 4 && !repeats) {
    fmt::print(stderr, "usage: encode_records TOKENIZER RECORDS IDS [--repeat N]\n");
    return 2;
  }
  const auto status = baton::text::run(argv[1], argv[2], argv[3], repeats ? std::atoi(argv[5]) : 0);
  if (!status) fmt::print(stderr, "encode_records: {}\n", status.error().message);
  return status ? 0 : 1;
}
