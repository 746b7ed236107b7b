// Corpus: documents streamed from text files.
//
// Formats by name, whatever its case: .txt, .text, .rst, .md, .markdown (one document a file, as
// plain text) and .jsonl, .ndjson, .json (one document a line, its member "text" or another that is
// named); each also as .gz or .zst. Folders are read recursively (hidden files too, links to
// folders not), in the byte order of the relative names, so the same files give the same documents
// in the same order on every machine; what is not read of a folder is counted by kind. A .json that
// holds one JSON value instead of an object a line is another kind.
//
// Text must be UTF-8. A byte order mark at the beginning of a file (after decompression) is no
// text, as with Python's utf-8-sig; anywhere else, also as "\ufeff" in a JSON string, it is. UTF-16
// and UTF-32 are refused by name. Offsets in errors count bytes of the text after decompression,
// the mark included.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/data/byte_source.h"

namespace tailor::data {

/// A file of a corpus.
struct CorpusFile {
  std::string path;  ///< as it is opened
  /// Path relative to the folder that was given (or the file's own name): part of the documents'
  /// names, which therefore do not change when the corpus moves.
  std::string name;
  std::uint64_t bytes = 0;  ///< on disk, when it was listed
  friend bool operator==(const CorpusFile&, const CorpusFile&) = default;
};

/// Files of a folder that are not read since they are of some other kind.
struct PassedOver {
  std::string kind;         ///< for people: ".png", ".txt.xz", "no extension", "link to a folder"
  std::uint64_t files = 0;  ///< so many of them
  std::string first;        ///< CorpusFile::name of the first, as utf8_name
  friend bool operator==(const PassedOver&, const PassedOver&) = default;
};

/// What `inputs` hold.
struct CorpusListing {
  std::vector<CorpusFile> files;
  /// The most frequent kind first, then by name; of very many kinds the rest is one, "other kinds".
  std::vector<PassedOver> passed_over;
};

struct CorpusOptions {
  /// Count and pass over what cannot be decoded instead of failing: a line of a file of JSON lines,
  /// else the whole file (wrong UTF-8, compressed data that is cut or altered). Files are then read
  /// twice. Missing and unreadable files fail all the same.
  bool skip_bad = false;
  std::string text_key = "text";  ///< the member of a JSON line that holds the text
  /// Long documents come in pieces of about this size, cut where `last_cut` says.
  std::uint64_t piece_bytes = 1u << 20;
  int zstd_window_log = kZstdWindowLogMax;  ///< open_byte_source's
  /// The last place where the begin of a text that goes on (whole characters) may be cut, or 0 for
  /// none: then more is read, up to `uncut_bytes_max`. Unset: after a newline where there is one,
  /// else before a space, else between characters.
  std::function<std::size_t(std::string_view)> last_cut;
  /// A text in which `last_cut` finds no place within so many bytes is refused: memory for each
  /// thread is some 50 times as much.
  std::uint64_t uncut_bytes_max = 16u << 20;
};

/// Where reading goes on, and what of the file at hand lies before.
struct CorpusPosition {
  std::uint64_t file = 0;    ///< index in the list of files
  std::uint64_t offset = 0;  ///< in its text: of a line of JSON lines, else of a piece
  std::uint64_t line = 0;    ///< newlines before `offset`
  /// Pieces of that JSON line that lie before; of plain text 1 when the document is out.
  std::uint64_t piece = 0;
  std::uint64_t documents = 0;
  std::uint64_t empty_documents = 0;
  std::uint64_t text_bytes = 0;
  friend bool operator==(const CorpusPosition&, const CorpusPosition&) = default;
};

/// A document, or a part of a long one. Parts of one document come in order with nothing between.
struct CorpusPiece {
  std::string document;  ///< CorpusFile::name, with ":LINE" behind it for JSON lines
  std::string text;      ///< valid UTF-8; empty only in the last piece of a longer document
  bool begins_document = true;
  bool ends_document = true;
  CorpusPosition next;           ///< what comes after this piece
  std::uint64_t file_bytes = 0;  ///< of the file on disk, read so far
};

/// What a file came to.
struct CorpusFileSummary {
  std::uint64_t file = 0;       ///< index in the list of files
  std::uint64_t documents = 0;  ///< with at least one byte
  std::uint64_t empty_documents = 0;
  std::uint64_t text_bytes = 0;     ///< decompressed
  std::uint64_t skipped_lines = 0;  ///< CorpusOptions::skip_bad
  bool skipped = false;             ///< the whole file
  std::vector<Status> reasons;      ///< why something was skipped: the first few
  std::uint64_t file_bytes = 0;     ///< as it lies on disk
  std::string sha256;               ///< of those bytes
};

struct CorpusSummary {
  std::uint64_t files = 0;      ///< files read, the skipped ones not counted
  std::uint64_t documents = 0;  ///< documents with at least one byte
  std::uint64_t bytes = 0;      ///< of text, decompressed
  std::uint64_t empty_documents = 0;
  std::uint64_t skipped_files = 0;
  std::uint64_t skipped_lines = 0;
  std::vector<Status> reasons;  ///< why something was skipped: the first few of each file
};

/// A file's name for JSON: bytes that are no UTF-8 are spelled "\\xNN".
std::string utf8_name(std::string_view name);

/// "4 .pdf (the first is a/b.pdf), 1 link to a folder (c)": for people; "" for none.
std::string describe_passed_over(const std::vector<PassedOver>& passed_over);

/// The files that `inputs` (files and folders) name. Inputs keep their order; within a folder the
/// order is that of the names' bytes. `own_folder`, if inside a folder, is passed over: the data
/// set that is being written. Reads the first line of each .json. Errors: kNotFound (missing);
/// kInvalidArgument (an input of unknown kind, one that is no regular file, a folder without a text
/// file, which says what there is instead, the same file under two inputs, no inputs); the system's
/// reason for a folder that cannot be listed.
Result<CorpusListing> list_corpus(const std::vector<std::string>& inputs,
                                  const std::string& own_folder = "");

/// Gets each piece in turn; a failure ends the reading and is returned.
using CorpusSink = std::function<Status(CorpusPiece&&)>;
/// Gets each file once all its pieces are out.
using CorpusFileSink = std::function<Status(CorpusFileSummary&&)>;

/// Streams all documents of `files` from `start` on, in order. Memory: about three pieces, however
/// long a line or a document is, where `last_cut` finds places. The counts of the summary are those
/// from `start` on.
/// Errors, naming the file: kNotFound, kPermissionDenied, kUnavailable (unreadable);
/// kInvalidArgument (not UTF-8 or bad JSON, with line and byte offset; a text that cannot be cut; a
/// corpus without any text); kUnimplemented (zstd data that cannot be decoded here); kDataLoss
/// (compressed data cut short or altered; a file shorter than `start`).
Result<CorpusSummary> read_corpus(const std::vector<CorpusFile>& files,
                                  const CorpusOptions& options, const CorpusSink& sink,
                                  const CorpusPosition& start = {},
                                  const CorpusFileSink& file_done = {});

}  // namespace tailor::data
