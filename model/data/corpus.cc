#include "model/data/corpus.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "model/data/byte_source.h"
#include "model/data/json_text.h"

namespace tailor::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = 256 << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

enum class Kind { kText, kJsonLines, kUnknown };

Kind kind_of(std::string_view name) {
  for (const std::string_view suffix : {".gz", ".zst"}) {
    if (name.ends_with(suffix)) {
      name.remove_suffix(suffix.size());
      break;
    }
  }
  for (const std::string_view suffix : {".txt", ".rst", ".md"}) {
    if (name.ends_with(suffix)) return Kind::kText;
  }
  return name.ends_with(".jsonl") ? Kind::kJsonLines : Kind::kUnknown;
}

/// All text files under `folder`, sorted by their names relative to it.
Result<std::vector<CorpusFile>> list_folder(const std::string& folder) {
  std::vector<CorpusFile> files;
  std::error_code code;
  fs::recursive_directory_iterator entry(folder, code);
  const fs::recursive_directory_iterator end;
  for (; !code && entry != end; entry.increment(code)) {
    std::error_code ignored;  // a dangling link is no text file
    if (!entry->is_regular_file(ignored)) continue;
    const std::string path = entry->path().string();
    if (kind_of(path) == Kind::kUnknown) continue;
    files.push_back({path, entry->path().lexically_relative(folder).generic_string(),
                     entry->file_size(ignored)});
  }
  if (code) return error(errno_status(code.value(), "list", folder));
  std::sort(files.begin(), files.end(),
            [](const CorpusFile& a, const CorpusFile& b) { return a.name < b.name; });
  if (files.empty()) {
    return error(
        Code::kInvalidArgument,
        fmt::format("the folder {} holds no text: none of its files ends in .txt, .rst, .md or "
                    ".jsonl (each also with .gz or .zst)",
                    folder));
  }
  return files;
}

Status not_utf8(const std::string& path, std::uint64_t line, std::uint64_t offset) {
  return Status(
      Code::kInvalidArgument,
      fmt::format("{} is not UTF-8: wrong byte at offset {} (line {}); convert it with iconv, or "
                  "pass over such text with --skip-bad",
                  path, offset, line));
}

/// Length of the whole characters of `text`, which may end inside one.
std::size_t whole_characters(std::string_view text) {
  // Back to the last byte that starts a character.
  std::size_t start = text.size();
  for (std::size_t back = 1; back <= std::min<std::size_t>(4, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    if (length > back) start = text.size() - back;
    break;
  }
  return start;
}

/// Where to cut a full buffer: after its last newline, else before its last space, else between
/// characters. Never 0.
std::size_t cut_position(std::string_view text) {
  const std::size_t newline = text.rfind('\n');
  if (newline != std::string_view::npos) return newline + 1;
  const std::size_t space = text.rfind(' ');
  if (space != std::string_view::npos && space > text.size() / 2) return space;
  const std::size_t cut = whole_characters(text);
  return cut > 0 ? cut : text.size();
}

std::uint64_t count_newlines(std::string_view text) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
}

constexpr std::size_t kReasonsMax = 10;  // that are kept of a file

/// What is to be passed over in a file, found by reading it ahead.
struct BadParts {
  std::vector<std::uint64_t> lines;  // of a .jsonl file, from 1, ascending
  bool whole_file = false;
  std::vector<Status> reasons;  // the first few
};

/// Reads one file and says what it holds. Without a `sink` the file is only checked: bad lines are
/// noted in `bad` and reading goes on. With one, what `bad` names is passed over.
class FileReader {
 public:
  FileReader(const CorpusFile& file, const CorpusOptions& options, const CorpusSink* sink,
             BadParts* bad, const CorpusPosition& start, SourceDigest* digest)
      : file_(file),
        options_(options),
        piece_bytes_(std::max<std::size_t>(options.piece_bytes, 16)),
        sink_(sink),
        bad_(bad),
        start_(start),
        next_(start),
        digest_(digest) {}

  Status run() {
    TAILOR_ASSIGN_OR_RETURN(source_, open_byte_source(file_.path, digest_));
    buffer_.resize(kReadBytes);
    TAILOR_RETURN_IF_ERROR(pass_over(start_.offset));
    // Whatever lies before the start has text, or there would be no start inside.
    document_bytes_ = start_.piece > 0 || (!is_json() && start_.offset > 0) ? 1 : 0;
    return is_json() ? read_lines() : read_text();
  }

  /// Counts of the whole file, what lies before the start included.
  const CorpusPosition& counted() const { return next_; }

 private:
  bool is_json() const { return kind_of(file_.path) == Kind::kJsonLines; }
  bool checking() const { return sink_ == nullptr; }

  Status pass_over(std::uint64_t bytes) {
    while (bytes > 0) {
      TAILOR_ASSIGN_OR_RETURN(
          const std::size_t got,
          source_->read(buffer_.data(), std::min<std::uint64_t>(bytes, buffer_.size())));
      if (got == 0) {
        return Status(Code::kDataLoss,
                      fmt::format("{} is shorter than when reading it began: start over with "
                                  "--overwrite",
                                  file_.path));
      }
      bytes -= got;
    }
    return Status::ok();
  }

  /// The document is out already; what may follow (padding of gzip) belongs to the digest.
  Status read_to_end() {
    for (std::size_t got = 1; got > 0;) {
      TAILOR_ASSIGN_OR_RETURN(got, source_->read(buffer_.data(), buffer_.size()));
    }
    return Status::ok();
  }

  /// Hands on a piece; `next_` already says what comes after it.
  Status emit(std::string document, std::string text, bool ends_document) {
    next_.text_bytes += text.size();
    document_bytes_ += text.size();
    bool empty = false;
    if (ends_document) {
      empty = document_bytes_ == 0;
      ++(empty ? next_.empty_documents : next_.documents);
      document_bytes_ = 0;
    }
    if (empty || checking()) return Status::ok();
    return (*sink_)({std::move(document), std::move(text), ends_document, next_,
                     digest_ != nullptr ? digest_->bytes : 0});
  }

  Status read_text() {
    if (start_.piece > 0) return read_to_end();
    std::string text;
    for (bool more = true; more;) {
      while (more && text.size() < piece_bytes_) {
        // Through a buffer: a short text must not keep the room of a long one.
        const std::size_t size = std::min(kReadBytes, piece_bytes_ - text.size());
        const Result<std::size_t> got = source_->read(buffer_.data(), size);
        if (!got.has_value()) return got.error();
        text.append(buffer_.data(), *got);
        more = *got > 0;
      }
      const std::size_t cut = more ? cut_position(text) : text.size();
      std::string rest = text.substr(cut);
      text.resize(cut);
      std::size_t at = 0;
      if (!is_valid_utf8(text, &at)) {
        const std::uint64_t newlines = count_newlines(std::string_view(text).substr(0, at));
        return not_utf8(file_.path, next_.line + newlines + 1, next_.offset + at);
      }
      next_.offset += text.size();
      next_.line += count_newlines(text);
      next_.piece = more ? 0 : 1;
      TAILOR_RETURN_IF_ERROR(emit(file_.name, std::move(text), !more));
      text = std::move(rest);
    }
    return Status::ok();
  }

  Status read_lines() {
    begin_line();
    for (;;) {
      TAILOR_ASSIGN_OR_RETURN(const std::size_t got, source_->read(buffer_.data(), buffer_.size()));
      std::string_view block(buffer_.data(), got);
      if (got == 0) return line_bytes_ > 0 ? end_line(0) : Status::ok();
      for (;;) {
        const std::size_t newline = block.find('\n');
        TAILOR_RETURN_IF_ERROR(feed(block.substr(0, newline)));
        if (newline == std::string_view::npos) break;
        TAILOR_RETURN_IF_ERROR(end_line(1));
        block.remove_prefix(newline + 1);
      }
    }
  }

  void begin_line() {
    json_.start();
    line_status_ = Status::ok();
    passing_ = !checking() && bad_ != nullptr &&
               std::binary_search(bad_->lines.begin(), bad_->lines.end(), next_.line + 1);
    blank_ = true;
    line_bytes_ = 0;
    pieces_ = 0;
    text_.clear();
    half_character_.clear();
  }

  /// Part of the line at hand.
  Status feed(std::string_view part) {
    if (part.empty()) return Status::ok();
    const std::uint64_t before = line_bytes_ - half_character_.size();  // of the line, was taken
    line_bytes_ += part.size();
    if (passing_ || !line_status_) return Status::ok();
    std::string joined;
    if (!half_character_.empty()) {
      joined = half_character_ + std::string(part);
      part = joined;
    }
    const std::size_t whole = whole_characters(part);
    half_character_ = part.substr(whole);
    part = part.substr(0, whole);
    std::size_t at = 0;
    if (!is_valid_utf8(part, &at)) {
      return refuse(not_utf8(file_.path, next_.line + 1, next_.offset + before + at));
    }
    if (next_.line == 0 && before == 0 && part.starts_with(kByteOrderMark)) {
      part.remove_prefix(kByteOrderMark.size());
    }
    blank_ = blank_ && trim(part).empty();
    const std::string_view wrong = json_.feed(part, &text_);
    if (!wrong.empty()) return refuse(bad_line(wrong));
    while (text_.size() >= 2 * piece_bytes_) TAILOR_RETURN_IF_ERROR(emit_part());
    return Status::ok();
  }

  /// Hands on the front of a text that goes on.
  Status emit_part() {
    const std::size_t cut = cut_position(std::string_view(text_).substr(0, piece_bytes_));
    std::string front = text_.substr(0, cut);
    text_.erase(0, cut);
    if (++pieces_ <= start_.piece && next_.offset == start_.offset) return Status::ok();
    next_.piece = pieces_;
    return emit(document(), std::move(front), false);
  }

  /// `newline`: bytes that end the line; 0 for a last line without one.
  Status end_line(std::uint64_t newline) {
    if (!passing_ && line_status_) {
      if (!half_character_.empty()) {
        TAILOR_RETURN_IF_ERROR(refuse(not_utf8(
            file_.path, next_.line + 1, next_.offset + line_bytes_ - half_character_.size())));
      } else if (!blank_) {
        const std::string_view wrong = json_.finish();
        if (!wrong.empty()) TAILOR_RETURN_IF_ERROR(refuse(bad_line(wrong)));
      }
    }
    const bool emits = !passing_ && line_status_ && !blank_;
    if (emits) {
      while (text_.size() >= 2 * piece_bytes_) TAILOR_RETURN_IF_ERROR(emit_part());
    }
    std::string name = emits ? document() : "";
    next_.offset += line_bytes_ + newline;
    next_.line += 1;
    next_.piece = 0;
    if (emits) TAILOR_RETURN_IF_ERROR(emit(std::move(name), std::move(text_), true));
    begin_line();
    return Status::ok();
  }

  /// What is wrong with the line at hand: noted when only checking, else the end.
  Status refuse(Status status) {
    line_status_ = std::move(status);
    if (!checking() || bad_ == nullptr) return line_status_;
    bad_->lines.push_back(next_.line + 1);
    if (bad_->reasons.size() < kReasonsMax) bad_->reasons.push_back(line_status_);
    return Status::ok();
  }

  Status bad_line(std::string_view reason) const {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}: line {} (offset {}) {}; each line must be an object with a string "
                    "\"{}\" (--text-key names another; --skip-bad passes over such lines)",
                    file_.path, next_.line + 1, next_.offset, reason, options_.text_key));
  }

  std::string document() const { return fmt::format("{}:{}", file_.name, next_.line + 1); }

  const CorpusFile& file_;
  const CorpusOptions& options_;
  const std::size_t piece_bytes_;
  const CorpusSink* sink_;
  BadParts* bad_;
  const CorpusPosition start_;
  CorpusPosition next_;
  SourceDigest* digest_;
  std::unique_ptr<ByteSource> source_;
  std::vector<char> buffer_;
  std::uint64_t document_bytes_ = 0;  // of the document that is being read
  // The JSON line that is being read.
  JsonText json_{options_.text_key};
  Status line_status_;
  bool passing_ = false;  // it is one of the bad ones
  bool blank_ = true;
  std::uint64_t line_bytes_ = 0;
  std::uint64_t pieces_ = 0;
  std::string text_;            // decoded, not handed on yet
  std::string half_character_;  // at the end of what came
};

bool is_bad_text(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kDataLoss;
}

/// Reads a file ahead to find what must be passed over.
Result<BadParts> find_bad_parts(const CorpusFile& file, const CorpusOptions& options) {
  BadParts bad;
  const Status checked = FileReader(file, options, nullptr, &bad, {}, nullptr).run();
  if (is_bad_text(checked)) {
    bad.whole_file = true;
    bad.reasons = {checked};
  } else if (!checked) {
    return error(checked);
  }
  return bad;
}

/// One file, from `start` on.
Result<CorpusFileSummary> read_one(const CorpusFile& file, const CorpusOptions& options,
                                   const CorpusSink& sink, const CorpusPosition& start) {
  CorpusFileSummary summary;
  summary.file = start.file;
  BadParts bad;
  if (options.skip_bad) {
    TAILOR_ASSIGN_OR_RETURN(bad, find_bad_parts(file, options));
    summary.skipped_lines = bad.lines.size();
    summary.reasons = bad.reasons;
  }
  SourceDigest digest;
  if (bad.whole_file) {
    summary.skipped = true;
    summary.skipped_lines = 0;
    auto plain = open_plain_source(file.path, &digest);
    if (!plain) return error(plain.error());
    std::vector<char> block(kReadBytes);
    for (std::size_t got = 1; got > 0;) {
      TAILOR_ASSIGN_OR_RETURN(got, (*plain)->read(block.data(), block.size()));
    }
  } else {
    FileReader reader(file, options, &sink, &bad, start, &digest);
    TAILOR_RETURN_IF_ERROR(reader.run());
    summary.documents = reader.counted().documents;
    summary.empty_documents = reader.counted().empty_documents;
    summary.text_bytes = reader.counted().text_bytes;
  }
  summary.file_bytes = digest.bytes;
  summary.sha256 = digest.hash.hex();
  return summary;
}

}  // namespace

Result<std::vector<CorpusFile>> list_corpus(const std::vector<std::string>& inputs) {
  if (inputs.empty()) return error(Code::kInvalidArgument, "no corpus is named");
  std::vector<CorpusFile> files;
  // Which input a file came from: its text would count twice.
  std::map<std::pair<dev_t, ino_t>, std::pair<std::size_t, std::string>> seen;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string& input = inputs[i];
    std::error_code code;
    const fs::file_status status = fs::status(input, code);
    if (status.type() == fs::file_type::not_found) {
      return error(Code::kNotFound, fmt::format("the corpus {} does not exist", input));
    }
    if (code) return error(errno_status(code.value(), "open", input));
    std::vector<CorpusFile> found;
    if (fs::is_directory(status)) {
      TAILOR_ASSIGN_OR_RETURN(found, list_folder(input));
    } else if (kind_of(input) == Kind::kUnknown) {
      return error(
          Code::kInvalidArgument,
          fmt::format("{}: unknown kind of corpus; the name must end in .txt, .rst, .md or "
                      ".jsonl (each also with .gz or .zst)",
                      input));
    } else if (!fs::is_regular_file(status)) {
      return error(Code::kInvalidArgument,
                   fmt::format("{} is no regular file: text is read again when a run goes on, so "
                               "write it to a file first",
                               input));
    } else {
      found.push_back({input, fs::path(input).filename().string(), fs::file_size(input, code)});
    }
    for (CorpusFile& file : found) {
      struct stat info {};
      if (::stat(file.path.c_str(), &info) != 0) {
        return error(errno_status(errno, "stat", file.path));
      }
      const auto [earlier, is_new] = seen.try_emplace({info.st_dev, info.st_ino}, i, file.path);
      if (!is_new && earlier->second.first != i) {
        return error(Code::kInvalidArgument,
                     fmt::format("{} is given twice (also as {}): its text would count twice; name "
                                 "it once",
                                 file.path, earlier->second.second));
      }
      files.push_back(std::move(file));
    }
  }
  return files;
}

Result<CorpusSummary> read_corpus(const std::vector<CorpusFile>& files,
                                  const CorpusOptions& options, const CorpusSink& sink,
                                  const CorpusPosition& start, const CorpusFileSink& file_done) {
  CorpusSummary summary;
  CorpusPosition position = start;
  for (; position.file < files.size(); position = {.file = position.file + 1}) {
    TAILOR_ASSIGN_OR_RETURN(CorpusFileSummary read,
                            read_one(files[position.file], options, sink, position));
    ++(read.skipped ? summary.skipped_files : summary.files);
    summary.skipped_lines += read.skipped_lines;
    summary.documents += read.documents - position.documents;
    summary.bytes += read.text_bytes - position.text_bytes;
    summary.empty_documents += read.empty_documents - position.empty_documents;
    for (const Status& reason : read.reasons) {
      if (summary.reasons.size() < 10 * kReasonsMax) summary.reasons.push_back(reason);
    }
    if (file_done) TAILOR_RETURN_IF_ERROR(file_done(std::move(read)));
  }
  if (summary.bytes == 0 && start == CorpusPosition{}) {
    return error(
        Code::kInvalidArgument,
        fmt::format("the corpus is empty: {} file{} ({}{}) hold{} no text, {} files and "
                    "{} lines skipped as bad",
                    files.size(), files.size() == 1 ? "" : "s",
                    files.empty() ? "" : files.front().path, files.size() > 1 ? " ..." : "",
                    files.size() == 1 ? "s" : "", summary.skipped_files, summary.skipped_lines));
  }
  return summary;
}

}  // namespace tailor::data
