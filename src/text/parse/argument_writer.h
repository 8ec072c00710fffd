// The arguments of one call as JSON text, written while their values arrive.
#pragma once

#include <string>
#include <string_view>

#include "text/parse/argument_types.h"

namespace baton::text {

// A string is written as it arrives: raw, neither trimmed nor unescaped. Any other value waits until it is whole, since only then is it
// known whether it is JSON; what is not JSON becomes a string. A value that waits and grows beyond kMostValueBytes becomes a string, too.
// Functions append to `out`; joined, it is one JSON object. Belongs to one parser.
class ArgumentWriter {
 public:
  static constexpr size_t kMostValueBytes = size_t{1} << 20;

  void begin(std::string_view key, ArgumentType type);
  // How many bytes at the beginning of a value say nothing: white space before JSON.
  size_t silent_bytes(std::string_view text) const;
  void add(std::string_view text, std::string& out);
  void end(std::string& out);
  // The output was cut inside the value: JSON is completed, a value that says nothing is left out.
  void end_cut(std::string& out);
  // After the last argument.
  void close(std::string& out);

 private:
  enum class Form { kRaw, kNullOrRaw, kJson };  // kRaw also once a value that waited turned out to be text

  void begin_raw(std::string& out);
  void write(std::string_view value, std::string& out);
  std::string json_of(std::string_view text) const;  // empty: it is text
  void write_key(std::string& out);

  std::string key_;
  ArgumentType type_ = ArgumentType::anything();
  Form form_ = Form::kRaw;
  bool raw_begun_ = false;
  std::string waiting_;
  bool any_ = false;  // an argument was written
};

}  // namespace baton::text
