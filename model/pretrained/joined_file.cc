#include "model/pretrained/joined_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "base/text.h"

namespace tailor::pretrained {
namespace {

namespace fs = std::filesystem;

// "NAME.part07" -> the length of "NAME.part"; 0 when the name is not of that form.
std::size_t part_stem(std::string_view path) {
  const std::size_t digits = path.find_last_not_of("0123456789") + 1;
  const bool is_part = digits < path.size() && path.substr(0, digits).ends_with(".part");
  return is_part ? digits : 0;
}

Result<std::vector<std::string>> sibling_parts(const std::string& path, std::size_t stem) {
  const std::size_t width = path.size() - stem;
  const auto numbered = [&](int number) {
    return fmt::format("{}{:0{}}", path.substr(0, stem), number, width);
  };
  std::error_code ignored;
  const int first = fs::exists(numbered(0), ignored) ? 0 : 1;
  std::vector<std::string> parts;
  for (int number = first; fs::exists(numbered(number), ignored); ++number) {
    parts.push_back(numbered(number));
  }
  // A gap would otherwise look like a file that ends there.
  if (std::find(parts.begin(), parts.end(), path) == parts.end()) {
    return error(
        Code::kNotFound,
        fmt::format("{}: a part before it is missing ({}); put all parts in one folder, or "
                    "give them in order with commas",
                    path, numbered(first + static_cast<int>(parts.size()))));
  }
  return parts;
}

Result<std::vector<std::string>> matches(const std::string& pattern) {
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_NOCHECK, nullptr, &found);
  std::vector<std::string> paths;
  if (code == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::error_code ignored;
  if (code != 0 || (paths.size() == 1 && !fs::exists(paths[0], ignored))) {
    return error(Code::kNotFound, fmt::format("{}: there is no such file", pattern));
  }
  std::stable_sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    return fs::path(a).filename() < fs::path(b).filename();
  });
  return paths;
}

}  // namespace

Result<JoinedFile> JoinedFile::open(const std::vector<std::string>& paths) {
  JoinedFile file;
  for (const std::string& path : paths) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return error(errno_status(errno, "open", path));
    file.parts_.push_back({path, descriptor, file.size_, 0});
    struct stat info {};
    if (::fstat(descriptor, &info) != 0) return error(errno_status(errno, "stat", path));
    if (!S_ISREG(info.st_mode)) {
      return error(Code::kDataLoss, fmt::format("{}: not a regular file", path));
    }
    file.parts_.back().size = static_cast<std::uint64_t>(info.st_size);
    file.size_ += file.parts_.back().size;
  }
  return file;
}

JoinedFile::JoinedFile(JoinedFile&& other) noexcept
    : parts_(std::move(other.parts_)), size_(other.size_) {
  other.parts_.clear();
}
JoinedFile& JoinedFile::operator=(JoinedFile&& other) noexcept {
  std::swap(parts_, other.parts_);
  std::swap(size_, other.size_);
  return *this;
}
JoinedFile::~JoinedFile() {
  for (const Part& part : parts_) ::close(part.descriptor);
}

Status JoinedFile::read(std::uint64_t position, void* out, std::size_t size) const {
  char* at = static_cast<char*>(out);
  for (const Part& part : parts_) {
    if (size == 0 || position < part.begin || position >= part.begin + part.size) continue;
    const std::uint64_t offset = position - part.begin;
    const std::size_t wanted = std::min<std::uint64_t>(size, part.size - offset);
    TAILOR_ASSIGN_OR_RETURN(const std::size_t got,
                            read_at(part.descriptor, at, wanted, offset, part.path));
    if (got < wanted) {
      return Status(Code::kDataLoss, fmt::format("{}: was cut while it was read", part.path));
    }
    at += wanted;
    position += wanted;
    size -= wanted;
  }
  return Status::ok();
}

Result<std::vector<std::string>> files_to_join(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) || path.find_first_of(",*?[") == std::string::npos) {
    if (const std::size_t stem = part_stem(path); stem > 0) return sibling_parts(path, stem);
    return std::vector<std::string>{path};
  }
  std::vector<std::string> paths;
  for (const std::string_view pattern : split(path, ',')) {
    TAILOR_ASSIGN_OR_RETURN(std::vector<std::string> some, matches(std::string(trim(pattern))));
    paths.insert(paths.end(), some.begin(), some.end());
  }
  return paths;
}

}  // namespace tailor::pretrained
