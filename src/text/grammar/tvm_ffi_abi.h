// The part of TVM-FFI's C interface that xgrammar is called through, declared anew so that the build needs no file of either package.
// The facts (names, numbers, layouts) are those of tvm/ffi/c_api.h and dlpack/dlpack.h of apache-tvm-ffi 0.1.15 (Apache-2.0), whose authors
// keep them stable within 0.1; Ffi::load refuses other versions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::text::tvm_ffi {

enum TypeIndex : int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kDlTensorPtr = 7,
  kSmallStr = 11,
  kSmallBytes = 12,
  kFirstObject = 64,  // from here on a value is a counted reference
  kStr = 65,
  kBytes = 66,
  kFunction = 68,
};

struct Version {
  uint32_t major, minor, patch;
};

struct ByteArray {
  const char* data;
  size_t size;
};

// What every object begins with. Strings and errors hold their content right behind it.
struct ObjectHeader {
  uint64_t reference_counts;
  int32_t type_index;
  uint32_t padding;
  void (*deleter)(void* self, int flags);
};

struct Any {
  int32_t type_index = kNone;
  uint32_t small_length = 0;  // of kSmallStr and kSmallBytes; zero otherwise
  union {
    int64_t integer = 0;
    void* pointer;
    char bytes[8];
  };
};

struct ErrorContent {
  ByteArray kind, message, backtrace;
};

struct MethodInfo {
  ByteArray name, documentation, metadata;
  int64_t flags;
  Any method;  // a function object
};

struct TypeInfo {
  int32_t type_index, type_depth;
  ByteArray type_key;
  const TypeInfo** ancestors;
  uint64_t type_key_hash;
  int32_t field_count, method_count;
  const void* fields;
  const MethodInfo* methods;
  const void* metadata;
};

struct Device {
  int32_t type, id;  // type 1: CPU
};
struct DataType {
  uint8_t code, bits;  // code 0: signed integer
  uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  int32_t dimensions;
  DataType type;
  int64_t* shape;
  int64_t* strides;  // null: compact, row by row
  uint64_t byte_offset;
};

// Functions of libtvm_ffi.so; those that return int return 0, or raise an error that error_move_from_raised takes.
struct Functions {
  void (*get_version)(Version*);
  int (*object_inc_ref)(void*);
  int (*object_dec_ref)(void*);
  int (*type_key_to_index)(const ByteArray*, int32_t*);
  const TypeInfo* (*get_type_info)(int32_t);
  int (*function_get_global)(const ByteArray*, void**);
  int (*function_call)(void* function, Any* arguments, int32_t count, Any* result);
  void (*error_move_from_raised)(void**);
  int (*string_from_byte_array)(const ByteArray*, Any*);
  int (*bytes_from_byte_array)(const ByteArray*, Any*);
};

static_assert(sizeof(Any) == 16 && sizeof(ObjectHeader) == 24 && sizeof(MethodInfo) == 72 && sizeof(Tensor) == 48);

}  // namespace baton::text::tvm_ffi
