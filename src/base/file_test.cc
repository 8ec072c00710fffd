#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

namespace baton {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 protected:
  FileTest() {
    dir_ = fs::temp_directory_path() / ("baton-file-test-" + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  ~FileTest() override { fs::remove_all(dir_); }

  fs::path make(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  int64_t entries() const { return std::distance(fs::directory_iterator(dir_), fs::directory_iterator()); }

  fs::path dir_;
};

std::string text_of(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

TEST_F(FileTest, MapsAWholeFile) {
  auto file = MappedFile::open(make("a", "hello"));
  ASSERT_TRUE(file.ok());
  MappedFile moved = std::move(*file);
  EXPECT_EQ(text_of(moved.bytes()), "hello");
  EXPECT_EQ(moved.path().filename(), "a");
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(FileTest, MapsAnEmptyFileAsNothing) {
  const auto file = MappedFile::open(make("a", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(FileTest, MapRefusesWhatIsNoFile) {
  const auto absent = MappedFile::open(dir_ / "absent");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().kind, Error::Kind::kNotFound);
  EXPECT_NE(absent.error().message.find("absent"), std::string::npos);
  const auto folder = MappedFile::open(dir_);
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("is a directory"), std::string::npos);
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(MappedFile::open(dir_ / "pipe").ok());  // and does not wait for a writer
}

TEST_F(FileTest, ReadsUpToALimit) {
  const std::string text(200'000, 'x');
  make("a", text);
  EXPECT_EQ(*read_file(dir_ / "a", 200'000), text);
  EXPECT_FALSE(read_file(dir_ / "a", 199'999).ok());
  EXPECT_FALSE(read_file(dir_, 100).ok());
  EXPECT_EQ(read_file(dir_ / "b", 100).error().kind, Error::Kind::kNotFound);
}

TEST_F(FileTest, ReadsPipes) {
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  std::jthread writer([this] { std::ofstream(dir_ / "pipe") << "through"; });
  EXPECT_EQ(*read_file(dir_ / "pipe", 100), "through");
}

TEST_F(FileTest, PendingFileAppearsOnCommit) {
  {
    auto file = PendingFile::create(dir_ / "out");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("one ").ok());
    ASSERT_TRUE(file->write("two").ok());
    EXPECT_FALSE(fs::exists(dir_ / "out"));
    PendingFile moved = std::move(*file);
    ASSERT_TRUE(moved.commit().ok());
  }
  EXPECT_EQ(*read_file(dir_ / "out", 100), "one two");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, PendingFileLeavesNothingBehind) {
  make("out", "old");
  {
    auto file = PendingFile::create(dir_ / "out");
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE(file->write("new").ok());
  }
  EXPECT_EQ(*read_file(dir_ / "out", 100), "old");
  EXPECT_EQ(entries(), 1);
  EXPECT_FALSE(PendingFile::create(dir_ / "no" / "out").ok());
}

TEST_F(FileTest, PendingFileReplacesNothingButFiles) {
  fs::create_directory(dir_ / "folder");
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  for (const fs::path& path : {dir_ / "folder", dir_ / "pipe", fs::path("/dev/null")}) {
    const auto file = PendingFile::create(path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_NE(file.error().message.find("not a regular file"), std::string::npos) << file.error().message;
  }
  EXPECT_EQ(entries(), 2);
}

TEST_F(FileTest, PendingDirectoryAppearsOnCommit) {
  auto folder = PendingDirectory::create(dir_ / "out/");
  ASSERT_TRUE(folder.ok());
  std::ofstream(folder->path() / "a") << "x";
  ASSERT_TRUE(folder->commit().ok());
  EXPECT_TRUE(fs::exists(dir_ / "out" / "a"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, PendingDirectoryReplacesOnlyAnEmptyFolder) {
  fs::create_directory(dir_ / "out");
  {
    auto folder = PendingDirectory::create(dir_ / "out");
    ASSERT_TRUE(folder.ok());
    std::ofstream(folder->path() / "a") << "x";
  }
  EXPECT_EQ(entries(), 1);
  EXPECT_TRUE(fs::is_empty(dir_ / "out"));
  {
    auto folder = PendingDirectory::create(dir_ / "out");
    std::ofstream(dir_ / "out" / "late") << "x";  // somebody else was quicker
    EXPECT_FALSE(folder->commit().ok());
  }
  EXPECT_FALSE(PendingDirectory::create(dir_ / "out").ok());
  EXPECT_TRUE(fs::exists(dir_ / "out" / "late"));
  EXPECT_EQ(entries(), 1);
  make("file", "");
  EXPECT_FALSE(PendingDirectory::create(dir_ / "file").ok());
  EXPECT_FALSE(PendingDirectory::create(".").ok());
  EXPECT_FALSE(PendingDirectory::create("/").ok());
  EXPECT_FALSE(PendingDirectory::create("").ok());
}

TEST_F(FileTest, SizedFileIsFilledInAnyOrder) {
  auto file = SizedFile::create(dir_ / "a", 6);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->write_at(3, std::as_bytes(std::span("def", 3))).ok());
  ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span("abc", 3))).ok());
  ASSERT_TRUE(file->close().ok());
  EXPECT_EQ(*read_file(dir_ / "a", 100), "abcdef");
  EXPECT_FALSE(SizedFile::create(dir_ / "a", 6).ok());
}

TEST_F(FileTest, SpaceIsRefusedBeforeAnythingIsWritten) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &small);
  const auto file = SizedFile::create(dir_ / "a", 8192);
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().kind, Error::Kind::kExhausted);
}

}  // namespace
}  // namespace baton
