#include "model/data/corpus.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <initializer_list>
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
constexpr std::size_t kStartBytes = 4096;  // that an encoding is known by
constexpr std::size_t kFirstLineBytesMax = 1 << 20;
constexpr std::size_t kKindsMax = 20;
constexpr std::string_view kReadKinds =
    ".txt, .text, .rst, .md, .markdown, and JSON lines as .jsonl, .ndjson or .json (each also with "
    ".gz or .zst)";

enum class Kind { kText, kJsonLines, kUnknown };

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

Kind kind_of(std::string_view name) {
  const std::string plain = lower_case(without_compression(name));
  const auto ends_in_one_of = [&](std::initializer_list<std::string_view> endings) {
    return std::any_of(endings.begin(), endings.end(),
                       [&](std::string_view ending) { return plain.ends_with(ending); });
  };
  if (ends_in_one_of({".txt", ".text", ".rst", ".md", ".markdown"})) return Kind::kText;
  return ends_in_one_of({".jsonl", ".ndjson", ".json"}) ? Kind::kJsonLines : Kind::kUnknown;
}

/// The ending of a file's name, for people: ".png", ".csv.gz", "no extension".
std::string ending_of(const fs::path& file) {
  constexpr std::size_t kEndingMax = 16;
  const auto usable = [](const std::string& ending) {
    return ending.size() > 1 && ending.size() <= kEndingMax;
  };
  std::string ending = lower_case(utf8_name(file.extension().string()));
  if (!usable(ending)) return "no extension";
  for (const std::string_view packed : {".gz", ".zst", ".xz", ".bz2", ".lz4", ".lzma", ".z"}) {
    if (ending != packed) continue;
    const std::string inner = lower_case(utf8_name(file.stem().extension().string()));
    if (usable(inner)) ending = inner + ending;
    break;
  }
  return ending;
}

/// What a .json holds, by its first line.
enum class JsonShape { kLines, kArray, kOther };

/// What cannot be read counts as lines: reading it will say why.
JsonShape json_shape(const std::string& path) {
  const auto source = open_byte_source(path);
  if (!source) return JsonShape::kLines;
  std::string start;
  std::vector<char> block(kStartBytes);
  bool is_whole = false;
  std::size_t first = std::string::npos;
  std::size_t newline = std::string::npos;
  while (!is_whole && newline == std::string::npos && start.size() < kFirstLineBytesMax) {
    const Result<std::size_t> got = (*source)->read(block.data(), block.size());
    if (!got) return JsonShape::kLines;
    is_whole = *got == 0;
    start.append(block.data(), *got);
    const std::size_t mark = start.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
    first = start.find_first_not_of(" \t\r\n", mark);
    newline = first == std::string::npos ? first : start.find('\n', first);
  }
  if (first == std::string::npos) return JsonShape::kLines;  // empty
  if (start[first] == '[') return JsonShape::kArray;
  std::string_view line = std::string_view(start).substr(first);
  const bool is_whole_line = is_whole || newline != std::string::npos;
  line = line.substr(0, newline == std::string::npos ? line.size() : newline - first);
  if (!is_whole_line || !is_valid_utf8(line)) return JsonShape::kLines;
  JsonText json("\xFF");  // no member is called that
  json.start();
  std::string unused;
  // A pretty-printed value ends too late for a line. What is wrong with a line otherwise, reading
  // the lines will say.
  if (start[first] != '{') return JsonShape::kOther;
  if (!json.feed(line, &unused).empty()) return JsonShape::kLines;
  const std::string_view end = json.finish();
  return end.empty() || end == "has no such member" ? JsonShape::kLines : JsonShape::kOther;
}

bool ends_in_json(const std::string& path) {
  return lower_case(without_compression(path)).ends_with(".json");
}

constexpr std::string_view kArrayKind = ".json that is one array";
constexpr std::string_view kOtherJsonKind = ".json that is no object a line";

/// All text files under a folder, and what else there is.
class FolderListing {
 public:
  FolderListing(std::string folder, const std::string& own_folder)
      : folder_(std::move(folder)), own_folder_(own_folder) {}

  Status run() {
    std::vector<fs::path> folders = {folder_};
    while (!folders.empty()) {
      const fs::path folder = std::move(folders.back());
      folders.pop_back();
      std::error_code code;
      fs::directory_iterator entry(folder, code);
      for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
        if (is_folder_to_enter(*entry)) {
          folders.push_back(entry->path());
        } else {
          add(*entry);
        }
      }
      if (code) return errno_status(code.value(), "list", folder.string());
    }
    std::sort(files_.begin(), files_.end(),
              [](const CorpusFile& a, const CorpusFile& b) { return a.name < b.name; });
    return Status::ok();
  }

  std::vector<CorpusFile> take_files() { return std::move(files_); }
  const std::map<std::string, PassedOver>& passed_over() const { return passed_over_; }

 private:
  std::string name_of(const fs::directory_entry& entry) const {
    return entry.path().lexically_relative(folder_).generic_string();
  }

  void pass_over(std::string_view kind, const fs::directory_entry& entry) {
    const std::string name = utf8_name(name_of(entry));
    PassedOver& all = passed_over_[std::string(kind)];
    all.kind = kind;
    if (all.files++ == 0 || name < all.first) all.first = name;
  }

  bool is_folder_to_enter(const fs::directory_entry& entry) {
    std::error_code ignored;
    if (entry.is_symlink(ignored) || !entry.is_directory(ignored)) return false;
    return own_folder_.empty() || !fs::equivalent(entry.path(), own_folder_, ignored);
  }

  void add(const fs::directory_entry& entry) {
    std::error_code code;
    const bool is_link = entry.is_symlink(code);
    const fs::file_status status = entry.status(code);
    if (is_link && !fs::exists(status)) return pass_over("link that leads nowhere", entry);
    if (fs::is_directory(status)) {
      // Links may lead in a circle, or to what is read already.
      return pass_over(is_link ? "link to a folder" : "folder of the data set itself", entry);
    }
    if (!fs::is_regular_file(status)) return pass_over("pipe, socket or device", entry);
    const std::string path = entry.path().string();
    if (kind_of(path) == Kind::kUnknown) return pass_over(ending_of(entry.path()), entry);
    if (ends_in_json(path)) {
      const JsonShape shape = json_shape(path);
      if (shape == JsonShape::kArray) return pass_over(kArrayKind, entry);
      if (shape == JsonShape::kOther) return pass_over(kOtherJsonKind, entry);
    }
    files_.push_back({path, name_of(entry), entry.file_size(code)});
  }

  const std::string folder_;
  const std::string& own_folder_;
  std::vector<CorpusFile> files_;
  std::map<std::string, PassedOver> passed_over_;
};

/// The most frequent kinds first; those beyond a number as one.
std::vector<PassedOver> ranked(const std::map<std::string, PassedOver>& kinds) {
  std::vector<PassedOver> all;
  for (const auto& [kind, passed] : kinds) all.push_back(passed);
  std::stable_sort(all.begin(), all.end(),
                   [](const PassedOver& a, const PassedOver& b) { return a.files > b.files; });
  if (all.size() <= kKindsMax) return all;
  PassedOver rest{"other kinds", 0, all[kKindsMax - 1].first};
  for (std::size_t i = kKindsMax - 1; i < all.size(); ++i) {
    rest.files += all[i].files;
    rest.first = std::min(rest.first, all[i].first);
  }
  all.resize(kKindsMax - 1);
  all.push_back(std::move(rest));
  return all;
}

Status no_text_in(const std::string& folder, const std::map<std::string, PassedOver>& kinds) {
  const std::string there = describe_passed_over(ranked(kinds));
  return Status(Code::kInvalidArgument,
                fmt::format("the folder {} holds no text: {}; read are {}", folder,
                            there.empty() ? "it holds no files" : "it holds " + there, kReadKinds));
}

Status json_array(const std::string& path) {
  return Status(
      Code::kInvalidArgument,
      fmt::format("{} is one JSON array, and JSON is read as an object a line: convert it "
                  "with jq -c '.[]', or pass over such files with --skip-bad",
                  path));
}

Status foreign_encoding(const std::string& path, std::string_view encoding) {
  return Status(
      Code::kInvalidArgument,
      fmt::format("{} is {} text, and UTF-8 is read: convert it with iconv -f {} -t UTF-8, "
                  "or pass over such files with --skip-bad",
                  path, encoding, encoding));
}

/// What the first bytes of a file that is not compressed by its name say, for people; "" nothing.
std::string_view packed_by_content(std::string_view start) {
  if (start.starts_with("\x1F\x8B")) return "gzip data: let its name end in .gz";
  if (start.starts_with("\x28\xB5\x2F\xFD")) return "zstd data: let its name end in .zst";
  if (start.starts_with("\xFD"
                        "7zXZ"))
    return "xz data: unpack it first";
  return "";
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

/// Where to cut a full buffer unless told otherwise: after its last newline, else before its last
/// space, else between characters. Never 0.
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
    TAILOR_ASSIGN_OR_RETURN(source_,
                            open_byte_source(file_.path, digest_, options_.zstd_window_log));
    buffer_.resize(kReadBytes);
    if (start_.offset == 0) {
      TAILOR_RETURN_IF_ERROR(look_at_start());
    } else {
      TAILOR_RETURN_IF_ERROR(pass_over(start_.offset));
    }
    // Whatever lies before the start has text, or there would be no start inside.
    document_bytes_ = start_.piece > 0 || (!is_json() && start_.offset > 0) ? 1 : 0;
    return is_json() ? read_lines() : read_text();
  }

  /// Counts of the whole file, what lies before the start included.
  const CorpusPosition& counted() const { return next_; }

 private:
  bool is_json() const { return kind_of(file_.path) == Kind::kJsonLines; }
  bool checking() const { return sink_ == nullptr; }

  /// Passes over a byte order mark, and refuses what is no UTF-8 from the beginning on.
  Status look_at_start() {
    ahead_.resize(kStartBytes);
    std::size_t size = 0;
    for (std::size_t got = 1; got > 0 && size < ahead_.size(); size += got) {
      TAILOR_ASSIGN_OR_RETURN(got, source_->read(ahead_.data() + size, ahead_.size() - size));
    }
    ahead_.resize(size);
    if (const std::string_view encoding = utf16_or_utf32(ahead_); !encoding.empty()) {
      return foreign_encoding(file_.path, encoding);
    }
    if (const std::string_view packed = packed_by_content(ahead_); !packed.empty()) {
      return Status(Code::kInvalidArgument, fmt::format("{} is {}", file_.path, packed));
    }
    if (ahead_.starts_with(kByteOrderMark)) {
      ahead_.erase(0, kByteOrderMark.size());
      next_.offset = kByteOrderMark.size();
    }
    return Status::ok();
  }

  /// As ByteSource::read, with what look_at_start took first.
  Result<std::size_t> read(char* out, std::size_t size) {
    if (ahead_.empty()) return source_->read(out, size);
    const std::size_t taken = ahead_.copy(out, size);
    ahead_.erase(0, taken);
    return taken;
  }

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
    const bool begins_document = document_bytes_ == 0;
    document_bytes_ += text.size();
    bool empty = false;
    if (ends_document) {
      empty = document_bytes_ == 0;
      ++(empty ? next_.empty_documents : next_.documents);
      document_bytes_ = 0;
    }
    if (empty || checking()) return Status::ok();
    return (*sink_)({std::move(document), std::move(text), begins_document, ends_document, next_,
                     digest_ != nullptr ? digest_->bytes : 0});
  }

  Status read_text() {
    if (start_.piece > 0) return read_to_end();
    std::string text;
    std::size_t wanted = piece_bytes_;
    for (bool more = true; more;) {
      while (more && text.size() < wanted) {
        // Through a buffer: a short text must not keep the room of a long one.
        const std::size_t size = std::min(kReadBytes, wanted - text.size());
        const Result<std::size_t> got = read(buffer_.data(), size);
        if (!got.has_value()) return got.error();
        text.append(buffer_.data(), *got);
        more = *got > 0;
      }
      std::size_t cut = text.size();
      if (more) {
        TAILOR_ASSIGN_OR_RETURN(cut, cut_of(text));
        if (cut == 0) {
          wanted += piece_bytes_;
          continue;
        }
      }
      wanted = piece_bytes_;
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
      TAILOR_ASSIGN_OR_RETURN(const std::size_t got, read(buffer_.data(), buffer_.size()));
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
    wanted_ = piece_bytes_;
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
    const std::string_view begun = blank_ ? trim(part) : "";
    if (begun.starts_with('[') && is_first_) return json_array(file_.path);
    if (begun.starts_with(kByteOrderMark)) {
      return refuse(bad_line("begins with a byte order mark, as files that were joined do"));
    }
    if (!begun.empty()) {
      blank_ = false;
      is_first_ = false;
    }
    const std::string_view wrong = json_.feed(part, &text_);
    if (!wrong.empty()) return refuse(bad_line(wrong));
    return emit_parts();
  }

  /// Hands on the front of a text that goes on, while there is enough of it.
  Status emit_parts() {
    while (line_status_ && text_.size() >= wanted_ + piece_bytes_) {
      const Result<std::size_t> cut = cut_of(std::string_view(text_).substr(0, wanted_));
      if (!cut) return refuse(cut.error());
      if (*cut == 0) {
        wanted_ += piece_bytes_;
        continue;
      }
      wanted_ = piece_bytes_;
      std::string front = text_.substr(0, *cut);
      text_.erase(0, *cut);
      if (++pieces_ <= start_.piece && next_.offset == start_.offset) continue;
      next_.piece = pieces_;
      TAILOR_RETURN_IF_ERROR(emit(document(), std::move(front), false));
    }
    return Status::ok();
  }

  /// Where to cut a text that goes on; 0: more of it is needed. What is no UTF-8 is for others to
  /// say.
  Result<std::size_t> cut_of(std::string_view text) const {
    if (!options_.last_cut) return cut_position(text);
    const std::string_view whole = text.substr(0, whole_characters(text));
    if (whole.empty() || !is_valid_utf8(whole)) return text.size();
    const std::size_t cut = options_.last_cut(whole);
    if (cut == 0 && text.size() >= options_.uncut_bytes_max) {
      return error(
          Code::kInvalidArgument,
          fmt::format(
              "{}: the {} bytes of text from offset {} on (line {}) hold no place where the "
              "tokenizer would give the same ids to both sides, so memory would not "
              "suffice for longer ones: break the text up into documents or lines, or pass "
              "over it with --skip-bad",
              file_.path, text.size(), next_.offset, next_.line + 1));
    }
    return cut;
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
  std::string ahead_;                 // read by look_at_start, not taken yet
  std::uint64_t document_bytes_ = 0;  // of the document that is being read
  // The JSON line that is being read.
  JsonText json_{options_.text_key};
  Status line_status_;
  bool passing_ = false;  // it is one of the bad ones
  bool blank_ = true;
  bool is_first_ = start_.offset == 0;  // no line with text came before
  std::uint64_t line_bytes_ = 0;
  std::uint64_t pieces_ = 0;
  std::size_t wanted_ = 0;      // bytes to look for a cut in
  std::string text_;            // decoded, not handed on yet
  std::string half_character_;  // at the end of what came
};

bool is_bad_text(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kDataLoss ||
         status.code() == Code::kUnimplemented;
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

std::string utf8_name(std::string_view name) {
  std::string out;
  std::size_t bad = 0;
  while (!is_valid_utf8(name, &bad)) {
    out += name.substr(0, bad);
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(name[bad]));
    name.remove_prefix(bad + 1);
  }
  return out += name;
}

std::string describe_passed_over(const std::vector<PassedOver>& passed_over) {
  std::string text;
  for (const PassedOver& passed : passed_over) {
    text += fmt::format("{}{} {} ({}{})", text.empty() ? "" : ", ", passed.files, passed.kind,
                        passed.files > 1 ? "the first is " : "", escape_controls(passed.first));
  }
  return text;
}

Result<CorpusListing> list_corpus(const std::vector<std::string>& inputs,
                                  const std::string& own_folder) {
  if (inputs.empty()) return error(Code::kInvalidArgument, "no corpus is named");
  CorpusListing listing;
  std::map<std::string, PassedOver> passed_over;
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
      FolderListing folder(input, own_folder);
      TAILOR_RETURN_IF_ERROR(folder.run());
      found = folder.take_files();
      if (found.empty()) return error(no_text_in(input, folder.passed_over()));
      for (const auto& [kind, passed] : folder.passed_over()) {
        PassedOver& all =
            passed_over.try_emplace(kind, PassedOver{kind, 0, passed.first}).first->second;
        all.files += passed.files;
      }
    } else if (kind_of(input) == Kind::kUnknown) {
      return error(
          Code::kInvalidArgument,
          fmt::format("{}: unknown kind of corpus; the name must end in {}", input, kReadKinds));
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
      listing.files.push_back(std::move(file));
    }
  }
  listing.passed_over = ranked(passed_over);
  return listing;
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
