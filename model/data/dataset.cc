#include "model/data/dataset.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"

namespace tailor::data {
namespace {

/// What ::glob could not list; its callback has no other way to hand this out.
thread_local Status g_unlisted;

/// A missing folder matches nothing, like a missing file; any other failure ends the search.
int on_unlisted(const char* folder, int number) {
  if (number == ENOENT) return 0;
  g_unlisted = errno_status(number, "list", folder);
  return 1;
}

/// ::glob recurses a folder for each part of the path with a wildcard, and its work is a power of
/// them.
Status check_pattern(const std::string& pattern) {
  constexpr std::size_t kBytesMax = 4096;  // no longer path can be opened
  constexpr std::size_t kWildPartsMax = 8;
  std::size_t wild = 0;
  for (const std::string_view part : split(pattern, '/')) {
    wild += part.find_first_of("*?[") != std::string_view::npos ? 1 : 0;
  }
  if (pattern.size() <= kBytesMax && wild <= kWildPartsMax) return Status::ok();
  return Status(
      Code::kInvalidArgument,
      fmt::format(
          "the pattern {} has {} bytes and wildcards in {} folders; allowed: up to {} and {}",
          short_text(pattern), pattern.size(), wild, kBytesMax, kWildPartsMax));
}

/// The files that match one pattern, sorted by name.
Result<std::vector<std::string>> expand(const std::string& pattern) {
  TAILOR_RETURN_IF_ERROR(check_pattern(pattern));
  glob_t found{};
  const int outcome = ::glob(pattern.c_str(), 0, on_unlisted, &found);
  std::vector<std::string> paths;
  for (std::size_t i = 0; outcome == 0 && i < found.gl_pathc; ++i) {
    paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  // A file of exactly this name that the pattern does not match: other data must not stand in for
  // it.
  std::error_code ignored;
  if ((outcome == 0 || outcome == GLOB_NOMATCH) && std::filesystem::exists(pattern, ignored) &&
      std::find(paths.begin(), paths.end(), pattern) == paths.end()) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} is a file, but as a pattern it means {}: write a backslash before "
                             "each of * ? [ ] that stands for itself",
                             pattern, paths.empty() ? "no file" : paths.front()));
  }
  if (outcome == GLOB_NOMATCH) {
    return error(Code::kNotFound,
                 fmt::format("no token shard matches {}: check the path, or write shards with "
                             "tailor data prepare",
                             pattern));
  }
  if (outcome == GLOB_ABORTED) return error(g_unlisted.with_context(pattern));
  if (outcome != 0) {
    return error(Code::kResourceExhausted, fmt::format("no memory to list {}", pattern));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Status different_tokenizers(const TokenShardReader& a, const TokenShardReader& b) {
  return Status(Code::kInvalidArgument,
                fmt::format("token shards {} (vocabulary {}) and {} (vocabulary {}) come from "
                            "different tokenizers: encode both with the same --model",
                            a.path(), a.info().vocab_size, b.path(), b.info().vocab_size));
}

bool same_tokenizer(const TokenShardInfo& a, const TokenShardInfo& b) {
  return a.tokenizer_sha256 == b.tokenizer_sha256 && a.vocab_size == b.vocab_size &&
         a.eos_id == b.eos_id;
}

}  // namespace

Result<Dataset> Dataset::open(const std::vector<std::string>& paths,
                              const DatasetOptions& options) {
  if (paths.empty()) return error(Code::kInvalidArgument, "the list of token shards is empty");
  Dataset dataset;
  Sha256 hash;
  for (const std::string& path : paths) {
    TAILOR_ASSIGN_OR_RETURN(TokenShardReader shard, TokenShardReader::open(path));
    const TokenShardInfo& info = shard.info();
    if (options.vocab_size != 0 && info.token_count > 0 && info.max_id >= options.vocab_size) {
      return error(
          Code::kInvalidArgument,
          fmt::format("token shard {} holds token id {}, outside the model's vocabulary of {}: "
                      "set the vocabulary to {} or encode with another tokenizer",
                      path, info.max_id, options.vocab_size, info.vocab_size));
    }
    if (!dataset.shards_.empty() && !same_tokenizer(dataset.shards_.front().info(), info)) {
      return error(different_tokenizers(dataset.shards_.front(), shard));
    }
    if (options.verify) TAILOR_RETURN_IF_ERROR(shard.verify());
    hash.update(info.sha256);
    dataset.starts_.push_back(dataset.token_count_);
    dataset.token_count_ += info.token_count;
    dataset.text_bytes_ += info.text_bytes;
    dataset.document_count_ += info.document_count;
    dataset.shards_.push_back(std::move(shard));
  }
  if (dataset.token_count_ == 0) {
    return error(
        Code::kInvalidArgument,
        fmt::format("token shard {} holds no tokens: its corpus was empty", paths.front()));
  }
  dataset.content_hash_ = hash.hex();
  return dataset;
}

Result<Dataset> Dataset::open_glob(std::string_view patterns, const DatasetOptions& options) {
  std::vector<std::string> paths;
  for (const std::string_view part : split_patterns(patterns)) {
    const std::string pattern(part);
    if (pattern.empty()) continue;
    TAILOR_ASSIGN_OR_RETURN(const std::vector<std::string> found, expand(pattern));
    paths.insert(paths.end(), found.begin(), found.end());
  }
  if (paths.empty()) return error(Code::kInvalidArgument, "no token shards are named");
  return open(paths, options);
}

Status Dataset::read(std::uint64_t position, std::span<std::uint32_t> out) const {
  TAILOR_CHECK(position <= token_count_ && out.size() <= token_count_ - position,
               "position {} + {} of {} tokens", position, out.size(), token_count_);
  auto shard = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) -
                                        starts_.begin() - 1);
  while (!out.empty()) {
    const std::uint64_t inside = position - starts_[shard];
    const std::uint64_t here =
        std::min<std::uint64_t>(out.size(), shards_[shard].info().token_count - inside);
    if (here > 0) TAILOR_RETURN_IF_ERROR(shards_[shard].read(inside, out.first(here)));
    out = out.subspan(here);
    position += here;
    ++shard;
  }
  return Status::ok();
}

Status check_same_tokenizer(const Dataset& train, const Dataset& validation) {
  const TokenShardReader& a = train.shards().front();
  const TokenShardReader& b = validation.shards().front();
  return same_tokenizer(a.info(), b.info()) ? Status::ok() : different_tokenizers(a, b);
}

}  // namespace tailor::data
