// Files: read-only mappings, whole-file reads, and writes that either complete or leave nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

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

// The whole file; an error if it is larger than `limit_bytes`. Pipes are read to their end.
Result<std::string> read_file(const std::filesystem::path& path, int64_t limit_bytes);
// The same for a file of a folder that others wrote: anything but a regular file is refused, so that a pipe cannot hang the reader.
Result<std::string> read_regular_file(const std::filesystem::path& path, int64_t limit_bytes);

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

// The same for a folder: files are made under path(); commit() renames it to the destination, anything else removes it with its content.
// A destination that exists must be an empty folder.
class PendingDirectory {
 public:
  static Result<PendingDirectory> create(const std::filesystem::path& destination);
  PendingDirectory(PendingDirectory&& o) noexcept;
  PendingDirectory& operator=(PendingDirectory&&) = delete;
  PendingDirectory(const PendingDirectory&) = delete;
  PendingDirectory& operator=(const PendingDirectory&) = delete;
  ~PendingDirectory();

  const std::filesystem::path& path() const { return temporary_; }
  Status commit();

 private:
  PendingDirectory(std::filesystem::path temporary, std::filesystem::path destination);
  std::filesystem::path temporary_;
  std::filesystem::path destination_;
};

// A new file whose size is known: its space is reserved first, then threads fill it in any order.
class SizedFile {
 public:
  static Result<SizedFile> create(const std::filesystem::path& path, int64_t bytes);
  SizedFile(SizedFile&& o) noexcept;
  SizedFile& operator=(SizedFile&&) = delete;
  SizedFile(const SizedFile&) = delete;
  SizedFile& operator=(const SizedFile&) = delete;
  ~SizedFile();

  Status write_at(int64_t offset, std::span<const std::byte> bytes) const;  // thread-safe
  Status close();                                                           // makes the content durable

 private:
  SizedFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::filesystem::path path_;
};

}  // namespace baton
