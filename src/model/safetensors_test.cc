#include "model/safetensors.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "model/test_folder.h"

namespace baton::model {
namespace {

Result<std::vector<SafetensorsTensor>> parse(const std::string& file) { return parse_safetensors(std::as_bytes(std::span(file)), "file"); }
std::string error_of(const std::string& header, size_t data_bytes) {
  const auto tensors = parse(raw_safetensors(header, std::string(data_bytes, 'x')));
  return tensors.ok() ? "" : tensors.error().message;
}
std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

#define EXPECT_MENTIONS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Safetensors, ReadsTensorsInOrderOfTheirBytes) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\",\"more\":[1,{\"a\":null}]}," + tensor("b", "BF16", "[2,3]", "[8,20]") +
                             "," + tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("c", "I64", "[]", "[20,28]") + "," +
                             tensor("e", "U8", "[0,5]", "[28,28]") + "}  ";
  const auto tensors = parse(raw_safetensors(header, std::string(28, 'x')));
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  ASSERT_EQ(tensors->size(), 4U);
  const int64_t data = 8 + static_cast<int64_t>(header.size());
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].type, DType::kF32);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_EQ((*tensors)[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*tensors)[1].begin, data + 8);
  EXPECT_EQ((*tensors)[1].end, data + 20);
  EXPECT_EQ((*tensors)[2].dtype, "I64");
  EXPECT_FALSE((*tensors)[2].type.has_value());
}

TEST(Safetensors, ReadsAFileWithoutTensors) {
  EXPECT_TRUE(parse(raw_safetensors("{}", "")).ok());
  EXPECT_TRUE(parse(raw_safetensors(R"({"__metadata__":{}})", "")).ok());
}

TEST(Safetensors, RefusesBadLengths) {
  EXPECT_MENTIONS(parse("").error().message, "0 bytes");
  EXPECT_MENTIONS(parse("short").error().message, "5 bytes");
  EXPECT_MENTIONS(parse(std::string("\x03\0\0\0\0\0\0\0{}", 10)).error().message, "truncated");
  EXPECT_MENTIONS(parse(std::string(8, '\xFF') + "{}").error().message, "18446744073709551615");
  EXPECT_MENTIONS(parse(std::string("\0\0\0\x10\0\0\0\0{}", 10)).error().message, "truncated");
  EXPECT_FALSE(parse(std::string("\x01\0\0\x10\0\0\0\0{}", 10)).ok());
  EXPECT_FALSE(parse(raw_safetensors("", "")).ok());
}

TEST(Safetensors, RefusesHeadersOfAnotherForm) {
  for (const char* header : {"[]",
                             "3",
                             "null",
                             "\"x\"",
                             "{",
                             "{}}",
                             "{} {}",
                             R"({"a":3})",
                             R"({"a":"b"})",
                             R"({"a":null})",
                             R"({"a":true})",
                             R"({"a":[1]})",
                             R"({"__metadata__":3})",
                             R"({"a":{}})",
                             R"({"a":{"dtype":"U8","shape":[1]}})",
                             R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})",
                             R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})",
                             R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})",
                             R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})",
                             R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})",
                             R"({"a":{"dtype":"U8","shape":{"x":1},"data_offsets":[0,1]}})",
                             R"({"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}})",
                             R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})",
                             R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})",
                             R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})",
                             R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})",
                             R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})",
                             "{\"\xFF\":{}}"})
    EXPECT_NE(error_of(header, 1), "") << header;
}

TEST(Safetensors, BoundsNesting) {
  EXPECT_NE(error_of("{\"__metadata__\":" + std::string(100'000, '['), 0), "");
  EXPECT_NE(error_of("{\"a\":" + std::string(100'000, '{'), 0), "");
}

TEST(Safetensors, RefusesRangesOutsideTheFile) {
  EXPECT_MENTIONS(error_of("{" + tensor("a", "U8", "[9]", "[0,9]") + "}", 8), "describes 9 bytes of tensors, 8 follow");
  EXPECT_MENTIONS(error_of("{" + tensor("a", "U8", "[1]", "[2,1]") + "}", 8), "a: bytes 2 to 1");
  EXPECT_NE(error_of("{" + tensor("a", "U8", "[1]", "[9223372036854775806,9223372036854775807]") + "}", 8), "");
}

TEST(Safetensors, RefusesSizesThatDisagree) {
  EXPECT_MENTIONS(error_of("{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8), "a: F32 [3] does not take 8 bytes");
  EXPECT_NE(error_of("{" + tensor("a", "F4", "[3]", "[0,1]") + "}", 1), "");                      // half a byte is left over
  EXPECT_NE(error_of("{" + tensor("a", "U8", "[4294967296,4294967296]", "[0,0]") + "}", 0), "");  // 2^64 is no 0
  EXPECT_NE(error_of("{" + tensor("a", "U8", "[4294967296,4294967296,0]", "[0,0]") + "}", 0), "");
  EXPECT_NE(error_of("{" + tensor("a", "F64", "[2305843009213693952]", "[0,0]") + "}", 0), "");
  EXPECT_NE(error_of("{" + tensor("a", "new", "[4294967296,4294967296]", "[0,0]") + "}", 0), "");  // of whatever type
  EXPECT_EQ(error_of("{" + tensor("a", "F4", "[4]", "[0,2]") + "}", 2), "");
}

TEST(Safetensors, RefusesOverlapsAndGaps) {
  EXPECT_MENTIONS(error_of("{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("b", "U8", "[4]", "[3,7]") + "}", 7), "a and b");
  EXPECT_MENTIONS(error_of("{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("b", "U8", "[4]", "[0,4]") + "}", 4), "overlapping");
  EXPECT_MENTIONS(error_of("{" + tensor("a", "U8", "[4]", "[0,4]") + "," + tensor("b", "U8", "[2]", "[5,7]") + "}", 7), "1 bytes before b");
  EXPECT_MENTIONS(error_of("{" + tensor("a", "U8", "[4]", "[1,5]") + "}", 5), "1 bytes before a");
  EXPECT_MENTIONS(error_of("{" + tensor("a", "U8", "[4]", "[0,4]") + "}", 6), "last 2 bytes");
  // A tensor inside another one, and one behind it that touches only the outer.
  EXPECT_NE(error_of("{" + tensor("a", "U8", "[8]", "[0,8]") + "," + tensor("b", "U8", "[2]", "[2,4]") + "," +
                         tensor("c", "U8", "[1]", "[7,8]") + "}",
                     8),
            "");
}

TEST(Safetensors, RefusesDuplicates) {
  EXPECT_MENTIONS(error_of("{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("a", "U8", "[1]", "[1,2]") + "}", 2), "a appears twice");
  EXPECT_MENTIONS(error_of("{" + tensor("a", "U8", "[1]", "[0,1]") + "," + tensor("\\u0061", "U8", "[1]", "[1,2]") + "}", 2),
                  "a appears twice");
  EXPECT_NE(error_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "");
  EXPECT_NE(error_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "");
}

TEST(Safetensors, KeepsTensorsOfUnknownTypes) {
  const auto tensors = parse(raw_safetensors("{" + tensor("a", "F3", "[5]", "[0,2]") + "}", "xx"));
  ASSERT_TRUE(tensors.ok());
  EXPECT_FALSE((*tensors)[0].type.has_value());
}

TEST(Safetensors, MessagesHoldNoControlCharacters) {
  const std::string message = error_of("{" + tensor("a\\u001b[2J\\n", "U8", "[9]", "[0,8]") + "}", 8);
  EXPECT_MENTIONS(message, "a?[2J?: U8");
}

// Whatever the bytes, accepted ranges lie in the file, do not overlap, and agree with their shapes.
TEST(Safetensors, DamagedHeadersAreRefusedOrSound) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + tensor("first", "F32", "[2,3]", "[0,24]") + "," +
                             tensor("second", "BF16", "[10]", "[24,44]") + "," + tensor("third", "U8", "[4]", "[44,48]") + "}";
  const std::string sound = raw_safetensors(header, std::string(48, 'x'));
  ASSERT_TRUE(parse(sound).ok());
  int accepted = 0;
  for (uint32_t i = 0; i < 30'000; ++i) {
    std::string damaged = sound;
    const PhiloxBlock r = philox(5, {i, 0, 0, 0});
    const size_t at = r[0] % damaged.size();
    switch (r[1] % 4) {
      case 0: damaged[at] = static_cast<char>(r[2]); break;
      case 1: damaged[at] = static_cast<char>('0' + r[2] % 10); break;
      case 2: damaged.erase(at, 1 + r[2] % 5); break;
      case 3: damaged.insert(at, sound.substr(r[2] % sound.size(), 1 + r[3] % 9)); break;
    }
    const auto tensors = parse(damaged);
    if (!tensors.ok()) continue;
    ++accepted;
    int64_t covered = 0;
    for (const SafetensorsTensor& t : *tensors) {
      ASSERT_TRUE(covered == 0 || t.begin == covered);
      ASSERT_LE(t.begin, t.end);
      ASSERT_LE(t.end, static_cast<int64_t>(damaged.size()));
      covered = t.end;
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace baton::model
