#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "model/problems.h"

namespace baton::model {
namespace {

constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;
constexpr size_t kMaxRank = 8;
constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxDepth = 16;

struct DTypeName {
  std::string_view name;
  int64_t bits;
  std::optional<DType> type;
};

constexpr std::array kDTypes = {
    DTypeName{"F32", 32, DType::kF32},
    DTypeName{"BF16", 16, DType::kBF16},
    DTypeName{"F8_E4M3", 8, DType::kF8E4M3},
    DTypeName{"I32", 32, DType::kI32},
    DTypeName{"U8", 8, DType::kU8},
    DTypeName{"F64", 64, {}},
    DTypeName{"F16", 16, {}},
    DTypeName{"F8_E5M2", 8, {}},
    DTypeName{"F8_E8M0", 8, {}},
    DTypeName{"F6_E2M3", 6, {}},
    DTypeName{"F6_E3M2", 6, {}},
    DTypeName{"F4", 4, {}},
    DTypeName{"C64", 64, {}},
    DTypeName{"I64", 64, {}},
    DTypeName{"U64", 64, {}},
    DTypeName{"U32", 32, {}},
    DTypeName{"I16", 16, {}},
    DTypeName{"U16", 16, {}},
    DTypeName{"I8", 8, {}},
    DTypeName{"BOOL", 8, {}},
};

const DTypeName* find_dtype(std::string_view name) {
  for (const DTypeName& d : kDTypes)
    if (d.name == name) return &d;
  return nullptr;
}

// Bytes of a tensor, or nothing where they are no whole number or do not fit.
std::optional<int64_t> tensor_bytes(const std::vector<int64_t>& shape, int64_t bits) {
  int64_t total = bits;
  // A zero extent makes the product zero whatever the others are, and hides no overflow: the partial products are checked all the same.
  for (const int64_t s : shape)
    if (__builtin_mul_overflow(total, s, &total)) return std::nullopt;
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

// Streaming reader of the header: it holds the tensors found so far and nothing else, so memory follows the bytes that are really there.
//   { "name": { "dtype": "...", "shape": [...], "data_offsets": [begin, end] }, ..., "__metadata__": {...} }
struct HeaderHandler {
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = kMaxNameBytes;
  static constexpr size_t max_string_size = static_cast<size_t>(-1);
  using error_code = boost::system::error_code;
  using string_view = boost::json::string_view;

  enum class Field { kNone, kDtype, kShape, kOffsets };

  std::vector<SafetensorsTensor> tensors;
  std::unordered_set<std::string> names;
  std::string problem;

  int depth = 0;          // of containers
  bool metadata = false;  // inside __metadata__, which may hold anything
  Field field = Field::kNone;
  unsigned seen = 0;  // fields of the current tensor, as bits
  std::string key;
  std::string text;
  std::vector<int64_t> numbers;

  bool stop(error_code& ec, std::string message) {
    problem = std::move(message);
    ec = boost::json::error::syntax;
    return false;
  }
  std::string here() const { return tensors.empty() ? "the header" : fmt::format("tensor {}", tensors.back().name); }
  bool misplaced(error_code& ec, const char* what) { return stop(ec, fmt::format("{}: {} where none is expected", here(), what)); }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }

  bool on_object_begin(error_code& ec) {
    ++depth;
    if (metadata || depth == 1) return true;
    if (depth > 2) return misplaced(ec, "an object");
    if (key == "__metadata__") {
      metadata = true;
      return true;
    }
    tensors.push_back({});
    tensors.back().name = key;
    field = Field::kNone;
    seen = 0;
    return true;
  }
  bool on_object_end(size_t, error_code& ec) {
    --depth;
    if (depth != 1) return true;
    if (metadata) {
      metadata = false;
    } else if (seen != 7U) {
      return stop(ec, fmt::format("{}: dtype, shape and data_offsets are all needed", here()));
    }
    return true;
  }

  bool on_key_part(string_view s, size_t, error_code&) {
    if (!metadata) text.append(s.data(), s.size());
    return true;
  }
  bool on_key(string_view s, size_t, error_code& ec) {
    if (metadata) return true;
    text.append(s.data(), s.size());
    std::string name = std::move(text);
    text.clear();
    if (depth == 1) {
      if (!names.insert(name).second) return stop(ec, fmt::format("{} appears twice", name));
      key = std::move(name);
      return true;
    }
    field = name == "dtype" ? Field::kDtype : name == "shape" ? Field::kShape : name == "data_offsets" ? Field::kOffsets : Field::kNone;
    if (field == Field::kNone) return stop(ec, fmt::format("{}: unknown field \"{}\"", here(), name));
    const unsigned bit = 1U << (static_cast<unsigned>(field) - 1U);
    if ((seen & bit) != 0) return stop(ec, fmt::format("{}: field {} appears twice", here(), name));
    seen |= bit;
    return true;
  }

  bool on_array_begin(error_code& ec) {
    ++depth;
    if (metadata) return true;
    if (depth != 3 || (field != Field::kShape && field != Field::kOffsets)) return misplaced(ec, "a list");
    numbers.clear();
    return true;
  }
  bool on_array_end(size_t, error_code& ec) {
    --depth;
    if (metadata) return true;
    SafetensorsTensor& t = tensors.back();
    if (field == Field::kShape) {
      t.shape = numbers;
    } else {
      if (numbers.size() != 2) return stop(ec, fmt::format("{}: data_offsets must be two numbers", here()));
      t.begin = numbers[0];
      t.end = numbers[1];
    }
    field = Field::kNone;
    return true;
  }

  bool on_string_part(string_view s, size_t, error_code&) {
    if (!metadata) text.append(s.data(), s.size());
    return true;
  }
  bool on_string(string_view s, size_t, error_code& ec) {
    if (metadata) return true;
    text.append(s.data(), s.size());
    if (depth != 2 || field != Field::kDtype) return misplaced(ec, "a text");
    tensors.back().dtype = std::move(text);
    text.clear();
    field = Field::kNone;
    return true;
  }

  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t value, string_view, error_code& ec) {
    if (metadata) return true;
    if (depth != 3) return misplaced(ec, "a number");
    if (value < 0) return stop(ec, fmt::format("{}: {} is negative", here(), value));
    if (numbers.size() == kMaxRank) return stop(ec, fmt::format("{}: more than {} dimensions", here(), kMaxRank));
    numbers.push_back(value);
    return true;
  }
  bool on_uint64(uint64_t value, string_view, error_code& ec) {
    return metadata || stop(ec, fmt::format("{}: {} is too large", here(), value));  // what fits arrives as int64
  }
  bool on_double(double value, string_view, error_code& ec) {
    return metadata || stop(ec, fmt::format("{}: {} is not a whole number", here(), value));
  }
  bool on_bool(bool, error_code& ec) { return metadata || misplaced(ec, "a truth value"); }
  bool on_null(error_code& ec) { return metadata || misplaced(ec, "a null"); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }
};

// What one tensor claims of itself, offsets still counted from the data part.
void check_tensor(SafetensorsTensor& t, Problems& problems) {
  const DTypeName* dtype = find_dtype(t.dtype);
  if (t.begin > t.end) return problems.add("reversed ranges", fmt::format("{}: bytes {} to {}", t.name, t.begin, t.end));
  if (dtype != nullptr) t.type = dtype->type;
  // An unknown type has no size to compare with, and is an error only where the tensor is needed; its shape must still be possible.
  const std::optional<int64_t> bytes = tensor_bytes(t.shape, dtype != nullptr ? dtype->bits : 8);
  if (!bytes || (dtype != nullptr && *bytes != t.end - t.begin))
    problems.add("tensors of the wrong size",
                 fmt::format("{}: {} [{}] does not take {} bytes", t.name, t.dtype, fmt::join(t.shape, ", "), t.end - t.begin));
}

// `tensors` in order of their bytes.
void check_coverage(const std::vector<SafetensorsTensor>& tensors, int64_t data_bytes, Problems& problems) {
  int64_t covered = 0;
  const SafetensorsTensor* last = nullptr;
  for (const SafetensorsTensor& t : tensors) {
    if (t.begin < covered)
      problems.add("overlapping tensors", fmt::format("{} and {}", last->name, t.name));
    else if (t.begin > covered)
      problems.add("gaps", fmt::format("{} bytes before {} belong to no tensor", t.begin - covered, t.name));
    if (t.end >= covered) {
      covered = t.end;
      last = &t;
    }
  }
  if (covered < data_bytes) problems.add("gaps", fmt::format("the last {} bytes of the file belong to no tensor", data_bytes - covered));
}

}  // namespace

std::string_view safetensors_dtype(DType type) {
  for (const DTypeName& d : kDTypes)
    if (d.type == type) return d.name;
  return {};
}

Result<std::vector<SafetensorsTensor>> parse_safetensors(std::span<const std::byte> file, const std::string& where) {
  const auto invalid = [&where](const std::string& what) { return Error{Error::Kind::kInvalid, fmt::format("{}: {}", where, what)}; };
  uint64_t length = 0;
  if (file.size() < sizeof length) return invalid(fmt::format("a file of {} bytes is no safetensors file", file.size()));
  for (size_t i = 0; i < sizeof length; ++i) length |= static_cast<uint64_t>(file[i]) << (8 * i);
  const uint64_t room = file.size() - sizeof length;
  if (length > kMaxHeaderBytes)
    return invalid(fmt::format("a header of {} bytes is claimed, at most {} are read (is it safetensors?)", length, kMaxHeaderBytes));
  if (length > room) return invalid(fmt::format("a header of {} bytes is claimed, {} follow (is the file truncated?)", length, room));

  boost::json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::json::basic_parser<HeaderHandler> parser(options);
  boost::system::error_code ec;
  const auto* text = reinterpret_cast<const char*>(file.data() + sizeof length);
  const size_t parsed = parser.write_some(false, text, static_cast<size_t>(length), ec);
  HeaderHandler& header = parser.handler();
  if (ec)
    return invalid(header.problem.empty() ? fmt::format("the header is not valid JSON at byte {}: {}", parsed, ec.message())
                                          : printable(std::move(header.problem)));
  if (parsed != length) return invalid(fmt::format("the JSON of the header ends at byte {} of {}", parsed, length));

  const auto data_bytes = static_cast<int64_t>(room - length);
  int64_t described = 0;
  for (const SafetensorsTensor& t : header.tensors) described = std::max(described, t.end);
  if (described > data_bytes)
    return invalid(fmt::format("the header describes {} bytes of tensors, {} follow: the file is truncated or damaged, fetch it again",
                               described, data_bytes));
  Problems problems;
  for (SafetensorsTensor& t : header.tensors) check_tensor(t, problems);
  // What is wrong with single tensors shows as gaps and overlaps, too, which would only repeat it.
  if (problems.empty()) {
    std::sort(header.tensors.begin(), header.tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
    });
    check_coverage(header.tensors, data_bytes, problems);
  }
  if (!problems.empty()) return problems.error(fmt::format("{} is not a sound safetensors file", where));
  for (SafetensorsTensor& t : header.tensors) {
    t.begin += static_cast<int64_t>(sizeof length + length);
    t.end += static_cast<int64_t>(sizeof length + length);
  }
  return std::move(header.tensors);
}

}  // namespace baton::model
