// Files: read-only mappings, whole-file reads, and writes that either complete or leave nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace baton {

// A read-only private mapping of a whole file. Move-only.
class MappedFile {
 public:
  MappedFile() = default;
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& o) noexcept { swap(o); }
  MappedFile& operator=(MappedFile&& o) noexcept {
    MappedFile moved(std::move(o));
    swap(moved);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void swap(MappedFile& o) noexcept;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::filesystem::path path_;
};

// The whole file; an error if it is larger than `limit_bytes`.
Result<std::string> read_file(const std::filesystem::path& path, int64_t limit_bytes);

// A file under a temporary name beside its destination; commit() makes it durable and renames it, anything else removes it.
class PendingFile {
 public:
  static Result<PendingFile> create(const std::filesystem::path& destination);
  PendingFile(PendingFile&& o) noexcept;
  PendingFile& operator=(PendingFile&&) = delete;
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  Status commit();

 private:
  PendingFile(int fd, std::filesystem::path temporary, std::filesystem::path destination);
  int fd_ = -1;
  std::filesystem::path temporary_;
  std::filesystem::path destination_;
};

}  // namespace baton
