#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace baton {
namespace {

// An error of the system about one path. `attempt` reads as "cannot <attempt> <path>".
Error system_error(const char* attempt, const std::filesystem::path& path, int code) {
  Error::Kind kind = Error::Kind::kIo;
  if (code == ENOENT || code == ENOTDIR) kind = Error::Kind::kNotFound;
  if (code == ENOSPC || code == EDQUOT || code == EFBIG || code == ENOMEM) kind = Error::Kind::kExhausted;
  return {kind, fmt::format("cannot {} {}: {}", attempt, path.string(), std::system_category().message(code))};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Non-blocking, so that a pipe without a writer cannot hang the open itself.
int open_for_reading(const std::filesystem::path& path, int extra = 0) {
  int fd = -1;
  do fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | extra);
  while (fd < 0 && errno == EINTR);
  return fd;
}

Status write_all(int fd, const std::byte* data, size_t size, const std::filesystem::path& path) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("write", path, errno);
    data += n;
    size -= static_cast<size_t>(n);
  }
  return {};
}

// Makes a rename in `directory` durable. Some filesystems refuse to sync a directory; the rename itself has happened, so that is no error.
void sync_directory(const std::filesystem::path& directory) {
  const Descriptor fd(open_for_reading(directory.empty() ? "." : directory, O_DIRECTORY));
  if (fd.get() >= 0) ::fsync(fd.get());
}

// Beside the destination, hidden, and distinct from any name that another process or thread makes.
std::filesystem::path temporary_name(const std::filesystem::path& destination) {
  static std::atomic<uint32_t> counter{0};
  return destination.parent_path() / fmt::format(".{}.{}-{}.part", destination.filename().string(), ::getpid(), counter.fetch_add(1));
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor fd(open_for_reading(path, O_NONBLOCK));
  if (fd.get() < 0) return system_error("open", path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return system_error("inspect", path, errno);
  if (S_ISDIR(info.st_mode)) return Error{Error::Kind::kIo, fmt::format("{} is a directory, a file is expected", path.string())};
  if (!S_ISREG(info.st_mode)) return Error{Error::Kind::kIo, fmt::format("{} is not a regular file, it cannot be mapped", path.string())};
  MappedFile file;
  file.path_ = path;
  if (info.st_size == 0) return file;
  file.size_ = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return system_error("map", path, errno);
  file.data_ = static_cast<const std::byte*>(data);
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::swap(MappedFile& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  std::swap(path_, o.path_);
}

Result<std::string> read_file(const std::filesystem::path& path, int64_t limit_bytes) {
  const Descriptor fd(open_for_reading(path));
  if (fd.get() < 0) return system_error("open", path, errno);
  // Pipes are welcome and have no size, so the text grows with what really arrives.
  constexpr size_t kChunk = 64 * 1024;
  std::string text;
  for (;;) {
    const size_t used = text.size();
    text.resize(used + kChunk);
    const ssize_t n = ::read(fd.get(), text.data() + used, kChunk);
    if (n < 0 && errno != EINTR) return system_error("read", path, errno);
    text.resize(used + static_cast<size_t>(n > 0 ? n : 0));
    if (static_cast<int64_t>(text.size()) > limit_bytes)
      return Error{Error::Kind::kInvalid, fmt::format("{} is larger than the {} bytes allowed for it", path.string(), limit_bytes)};
    if (n == 0) return text;
  }
}

Result<std::string> read_regular_file(const std::filesystem::path& path, int64_t limit_bytes) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return system_error("open", path, errno);
  if (!S_ISREG(info.st_mode)) return Error{Error::Kind::kInvalid, fmt::format("{} is not a regular file", path.string())};
  return read_file(path, limit_bytes);
}

PendingFile::PendingFile(int fd, std::filesystem::path temporary, std::filesystem::path destination)
    : fd_(fd), temporary_(std::move(temporary)), destination_(std::move(destination)) {}

PendingFile::PendingFile(PendingFile&& o) noexcept
    : fd_(std::exchange(o.fd_, -1)), temporary_(std::move(o.temporary_)), destination_(std::move(o.destination_)) {
  o.temporary_.clear();
}

PendingFile::~PendingFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Result<PendingFile> PendingFile::create(const std::filesystem::path& destination) {
  // The rename would replace a device or a pipe, and fail on a folder, after all the work.
  struct stat info {};
  if (::stat(destination.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return Error{Error::Kind::kInvalid, fmt::format("{} exists and is not a regular file; give another path", destination.string())};
  std::filesystem::path temporary = temporary_name(destination);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return system_error("create", temporary, errno);
  return PendingFile(fd, std::move(temporary), destination);
}

Status PendingFile::write(std::span<const std::byte> bytes) { return write_all(fd_, bytes.data(), bytes.size(), destination_); }

Status PendingFile::write(std::string_view text) { return write(std::as_bytes(std::span(text.data(), text.size()))); }

Status PendingFile::commit() {
  if (::fsync(fd_) != 0) return system_error("write", destination_, errno);
  if (::close(std::exchange(fd_, -1)) != 0) return system_error("write", destination_, errno);
  if (::rename(temporary_.c_str(), destination_.c_str()) != 0) return system_error("replace", destination_, errno);
  temporary_.clear();
  sync_directory(destination_.parent_path());
  return {};
}

PendingDirectory::PendingDirectory(std::filesystem::path temporary, std::filesystem::path destination)
    : temporary_(std::move(temporary)), destination_(std::move(destination)) {}

PendingDirectory::PendingDirectory(PendingDirectory&& o) noexcept
    : temporary_(std::move(o.temporary_)), destination_(std::move(o.destination_)) {
  o.temporary_.clear();
}

PendingDirectory::~PendingDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove_all(temporary_, ignored);
}

Result<PendingDirectory> PendingDirectory::create(const std::filesystem::path& destination) {
  // "out/" names the same folder as "out"; only the latter has a file name to derive the temporary name from.
  // Nothing else is simplified: "link/../out" is beside what the link points to, which only the system knows.
  std::filesystem::path target = destination;
  while (!target.has_filename() && target.has_relative_path()) target = target.parent_path();
  if (target.empty() || target == "." || target == ".." || !target.has_filename())
    return Error{Error::Kind::kInvalid, fmt::format("{} cannot be replaced: name a new folder", destination.string())};
  struct stat info {};
  if (::lstat(target.c_str(), &info) == 0) {
    std::error_code failure;
    if (!S_ISDIR(info.st_mode)) return Error{Error::Kind::kInvalid, fmt::format("{} exists and is not a folder", target.string())};
    const bool empty = std::filesystem::is_empty(target, failure);
    if (failure) return system_error("read", target, failure.value());
    if (!empty)
      return Error{Error::Kind::kInvalid, fmt::format("{} exists and is not empty: remove it or choose another name", target.string())};
  } else if (errno != ENOENT) {
    return system_error("inspect", target, errno);
  }
  std::filesystem::path temporary = temporary_name(target);
  if (::mkdir(temporary.c_str(), 0777) != 0) return system_error("create", temporary, errno);
  return PendingDirectory(std::move(temporary), std::move(target));
}

Status PendingDirectory::commit() {
  sync_directory(temporary_);
  // rename(2) replaces an empty folder and nothing else.
  if (::rename(temporary_.c_str(), destination_.c_str()) != 0) return system_error("create", destination_, errno);
  temporary_.clear();
  sync_directory(destination_.parent_path());
  return {};
}

SizedFile::SizedFile(SizedFile&& o) noexcept : fd_(std::exchange(o.fd_, -1)), path_(std::move(o.path_)) {}

SizedFile::~SizedFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<SizedFile> SizedFile::create(const std::filesystem::path& path, int64_t bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return system_error("create", path, errno);
  SizedFile file(fd, path);
  int failed = 0;
  do failed = bytes > 0 ? ::fallocate(fd, 0, 0, bytes) : 0;
  while (failed != 0 && errno == EINTR);
  // Without fallocate the size is only promised, and a full disk shows at the write.
  if (failed != 0 && (errno == EOPNOTSUPP || errno == ENOSYS)) failed = ::ftruncate(fd, bytes);
  if (failed != 0) return system_error("reserve space for", path, errno);
  return file;
}

Status SizedFile::write_at(int64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error("write", path_, errno);
    offset += n;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status SizedFile::close() {
  const int synced = ::fsync(fd_);
  const int code = errno;
  if (::close(std::exchange(fd_, -1)) != 0) return system_error("write", path_, errno);
  if (synced != 0) return system_error("write", path_, code);
  return {};
}

}  // namespace baton
